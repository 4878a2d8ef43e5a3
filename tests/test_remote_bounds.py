"""Who may use a server of environments, and what a client, known or not, can make it spend."""

from __future__ import annotations

import os
import resource
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import attacks_remote  # noqa: F401  (its attacks are run below)
import pytest
from attack import ATTACKS, Skipped
from served import dial, is_hung_up

from agentq import envs
from agentq.envs.browser import processes, wire
from agentq.envs.remote import client, env_server, token
from agentq.envs.remote.address import Listener, connect, split
from agentq.envs.remote.connection import Closed, Connection, SessionLost
from agentq.envs.remote.env_server import EnvServer
from agentq.envs.replies import ResetReply
from agentq.errors import ConfigError, EnvError
from agentq.searching.faults import Resets
from tests.remote_lab import OWN


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of this test's own, and no token in the environment."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv(token.VARIABLE, raising=False)
    return tmp_path / "home"


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[processes.WorkerProcess]]:
    """The processes that were started for sessions."""
    found: list[processes.WorkerProcess] = []
    start = processes.WorkerProcess.start

    def counting(self: processes.WorkerProcess, *args: object) -> None:
        found.append(self)
        start(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(processes.WorkerProcess, "start", counting)
    yield found


def served(at: str = "127.0.0.1:0", sessions: int = 2, **more: float) -> EnvServer:
    return EnvServer(f"{OWN}:make", sys.executable, at, sessions, **more)


def refusal(at: str) -> str:
    with pytest.raises((ConfigError, SessionLost)) as error:
        Connection(at)
    return str(error.value)


@pytest.mark.rest
@pytest.mark.parametrize("number", ["4.10", "4.18", "4.19", "4.20", "4.25"])
def test_the_reviews_attack_ends_as_it_should(number: str, tmp_path: Path) -> None:
    try:
        assert ATTACKS[number].act(tmp_path) == ATTACKS[number].expected
    except Skipped as reason:
        pytest.skip(str(reason))


def test_only_this_user_knows_the_token_while_the_server_lives(home: Path, started: list[object]) -> None:
    with served() as server:
        assert server.token is not None and server.token.file is not None
        file = server.token.file
        assert file == home / ".cache" / "agentq" / "tokens" / f"{server.at}@{socket.gethostname()}"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600 and len(file.read_text()) >= 32
        Connection(server.at).hang_up()
        assert len(started) == 1
        file.write_text("of another server")
        assert refusal(server.at) == f"AGENTQ_ENV_TOKEN must be the token of the server at {server.at}; got another"
        file.rename(home / "elsewhere")
        assert refusal(server.at) == f"AGENTQ_ENV_TOKEN must be the token of the server at {server.at}; got none"
        assert len(started) == 1
        (home / "elsewhere").rename(file)
    assert not file.exists()


@pytest.mark.parametrize("given", [["a"], 5, "", "é" * 16, None, "\ud800"])
def test_a_token_that_is_none_is_refused(home: Path, started: list[object], given: object) -> None:
    with served() as server, dial(server.at) as connected, connected.makefile("rwb") as stream:
        wire.write(stream, {"id": 7, "call": "hello", "args": {"protocol": 1, "token": given}})
        reply = wire.read(stream)
        assert reply is not None and reply["id"] == 7
        assert "must be the token of the server" in reply["error"] and started == []


def test_a_token_may_be_given_to_both_in_the_environment(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(token.VARIABLE, "a token of the user's own")
    with served() as server:
        assert server.token is not None and server.token.file is None and not home.exists()
        Connection(server.at).hang_up()
        monkeypatch.setenv(token.VARIABLE, "a token of the user's odd")
        assert "got another" in refusal(server.at)
    monkeypatch.setenv(token.VARIABLE, "short")
    with pytest.raises(ConfigError, match="AGENTQ_ENV_TOKEN must have 16 to 256 characters; got 5"):
        served()


def test_a_token_left_behind_is_replaced_and_old_ones_are_removed(home: Path) -> None:
    with served() as server:
        at = server.at
    folder = home / ".cache" / "agentq" / "tokens"
    here = socket.gethostname()
    own, old, young, elsewhere = f"{at}@{here}", f"127.0.0.1:1@{here}", f"127.0.0.1:2@{here}", "127.0.0.1:1@elsewhere"
    for name in (own, old, young, elsewhere):
        (folder / name).write_text("left behind")
    for name in (old, elsewhere):
        os.utime(folder / name, (time.time() - 61,) * 2)
    with served(at):
        Connection(at).hang_up()
        assert sorted(each.name for each in folder.iterdir()) == sorted([own, young, elsewhere])


def test_machines_that_share_a_home_have_a_token_each(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served() as server:
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr(socket, "gethostname", lambda: "another-node")
            other = token.Token(server.at)
        Connection(server.at).hang_up()
        other.close()
        Connection(server.at).hang_up()
    assert token.name_of("10.0.0.7:7007") == "10.0.0.7:7007"  # one machine's, which another may read


def test_a_refused_token_ends_what_asked(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served() as server:
        name = f"count@{server.at}"
        task, env = envs.task(name, "train", 0), envs.make(name)
        monkeypatch.setenv(token.VARIABLE, "a token of another server")
        for session in client._idle.pop(name):
            session.hang_up()
        for _ in range(2):
            with pytest.raises(ConfigError, match=r"AGENTQ_ENV_TOKEN must be the token of the server .*; got another"):
                Resets(8).begin(env, task)  # not a task that the world broke


def test_a_server_on_every_address_is_known_from_here(home: Path) -> None:
    with served("0.0.0.0:0") as server:
        Connection(server.at.replace("0.0.0.0", "127.0.0.1")).hang_up()


def test_a_home_that_takes_no_token_is_told(home: Path) -> None:
    home.write_text("no folder")
    with pytest.raises(EnvError, match=r"a token's file must be writable; got .*: Not a directory; or set AGENTQ_ENV"):
        served()


def test_a_unix_socket_is_its_users_and_needs_no_token(home: Path, tmp_path: Path) -> None:
    at = tmp_path / "socket"
    with served(str(at)) as server:
        assert server.token is None and stat.S_IMODE(at.stat().st_mode) == 0o600
        Connection(str(at)).hang_up()
        with pytest.raises(EnvError, match=f"at a free address; got {at}: Address already in use"):
            served(str(at))
        Connection(str(at)).hang_up()
    assert not at.exists()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(at))
    with served(str(at)):
        Connection(str(at)).hang_up()


def test_a_listener_removes_its_own_file_only(tmp_path: Path) -> None:
    at = tmp_path / "socket"
    listener = Listener(str(at))
    at.unlink()
    at.write_text("another file")
    listener.close()
    assert at.read_text() == "another file"


def test_a_listener_takes_the_place_of_no_other_file(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(ConfigError, match=r"an unused path; got .*mine, which is another file"):
        Listener(str(tmp_path / "mine"))
    assert (tmp_path / "mine").read_text() == "mine"


@pytest.mark.parametrize("name", ["count", "count@", "@127.0.0.1:7007", "@"])
def test_a_served_environment_has_a_name_and_an_address(name: str) -> None:
    with pytest.raises(ConfigError, match=f"must be named NAME@HOST:PORT or NAME@/PATH; got '{name}'"):
        split(name)
    assert split("count@/tmp/a@b") == ("count", "/tmp/a@b")


@pytest.mark.parametrize("at", ["127.0.0.1:65536", "127.0.0.1:", "7007", "127.0.0.1:-1"])
def test_a_port_that_is_none_is_refused(at: str) -> None:
    with pytest.raises(ConfigError, match=f"must be HOST:PORT or the path of a Unix socket; got '{at}'"):
        connect(at, 1.0)


def test_a_first_message_must_come_soon(started: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(env_server, "_HELLO_S", 0.5)
    with served() as server:
        with dial(server.at) as silent, silent.makefile("rb") as stream:
            silent.settimeout(20)
            assert wire.read(stream) == {"id": 0, "error": "a first message must come within 0.5 s; got none"}
            assert stream.read() == b""
        with dial(server.at) as dripping:
            begun = time.monotonic()
            while not is_hung_up(dripping):
                dripping.setblocking(True)
                try:
                    dripping.send(b"\0")
                except OSError:
                    break
                time.sleep(0.1)
                assert time.monotonic() - begun < 20
        assert started == []


def test_strangers_beyond_the_bound_are_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(env_server, "_STRANGERS", 2)
    with served() as server:
        held = [dial(server.at) for _ in range(3)]
        begun = time.monotonic()
        while not is_hung_up(held[2]):
            assert time.monotonic() - begun < 20
        assert not is_hung_up(held[0]) and not is_hung_up(held[1])
        for each in held:
            each.close()
        Connection(server.at).hang_up()


def test_an_idle_session_is_ended_and_the_next_is_another() -> None:
    with served(idle_s=1.0, sessions=1) as server:
        idle = Connection(server.at)
        assert idle.call(ResetReply, "reset", 20.0, seed=0).text
        begun = time.monotonic()
        while idle.alive():
            assert time.monotonic() - begun < 20
        with pytest.raises(SessionLost, match="a session must not be idle for 1 s; see --idle"):
            idle.call(Closed, "close", 20.0)
        Connection(server.at).hang_up()
    for wrong in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match=r"idle seconds must be in \(0, 1e\+07\]; got"):
            served(idle_s=wrong)


def test_a_process_that_does_not_start_leaves_no_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with served() as server:
        server.command = [str(tmp_path / "none")]
        assert refusal(server.at) == "a session must start; got No such file or directory"
        assert refusal(server.at) == "a session must start; got No such file or directory"  # not for want of sessions
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_gone_though_something_still_writes_there(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for i in range(300):
        (folder / str(i)).touch()
    write = f"for i in $(seq 300 1000); do : > {folder}/$i || exit; done"
    with subprocess.Popen(["sh", "-c", write], stderr=subprocess.DEVNULL):
        while len(os.listdir(folder)) < 310:
            pass
        processes.discard(folder)
        assert not folder.exists()


def test_a_folder_is_stale_once_nothing_locks_it(tmp_path: Path) -> None:
    assert not processes.is_stale(tmp_path)  # young
    os.utime(tmp_path, (time.time() - 61,) * 2)
    assert processes.is_stale(tmp_path)
    held = processes.lock(tmp_path)
    assert not processes.is_stale(tmp_path)
    with pytest.raises(BlockingIOError):
        processes.lock(tmp_path)
    os.close(held)
    assert processes.is_stale(tmp_path) and not processes.is_stale(tmp_path / "none")
    (tmp_path / "link").symlink_to(tmp_path)
    os.utime(tmp_path / "link", (0, 0), follow_symlinks=False)
    assert not processes.is_stale(tmp_path / "link")


def test_a_process_is_ended_and_its_folder_removed_once_descriptors_are_free_again() -> None:
    worker = processes.WorkerProcess()
    writes = "import os, sys; open(os.environ['TMPDIR'] + '/f', 'w').close(); print(flush=True); sys.stdin.read()"
    worker.start([sys.executable, "-c", writes], dict(os.environ))
    assert worker.process.stdout is not None and worker.process.stdout.readline() == b"\n"
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    taken: list[int] = []
    freeing = threading.Timer(0.5, lambda: [os.close(each) for each in taken])
    try:
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        freeing.start()
        worker.kill()
    finally:
        freeing.join()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert worker.process.returncode is not None and not worker.folder.exists()
