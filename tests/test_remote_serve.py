"""`agentq env serve` as a program, the runs that use it, and the files that the other Python runs."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentq import envs
from agentq.cli import main
from agentq.envs.browser import wire
from agentq.envs.remote.env_server import EnvServer
from agentq.errors import ConfigError
from agentq.recipes.pipeline import Pipeline
from agentq.recipes.settings import EvalCommand
from agentq.store.run import RunStore
from agentq.types import Command, EnvAction
from tests.browser_lab import living
from tests.reads import made
from tests.recipes_factory import Quiet
from tests.remote_lab import FRAIL, OWN, begun, gone, process


@contextmanager
def serving(*words: object) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command, and the name that it prints."""
    command = [sys.executable, "-m", "agentq", "env", "serve", *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        line = server.stdout.readline()
        try:
            yield server, line.removeprefix("--env ").strip()
        finally:
            server.kill()


def test_the_command_serves_until_it_is_interrupted(tmp_path: Path) -> None:
    at = tmp_path / "socket"
    with serving(f"{OWN}:make", "--at", at) as (server, name):
        assert name == f"count@{at}"
        env = envs.make(name)
        assert env.reset(envs.task(name, "test", 0)).text == "heading 0\nbutton Up [1]"
        server.send_signal(signal.SIGINT)
        assert server.wait(20) == 0 and not at.exists()
        assert env.step(EnvAction(Command.STOP)).error_kind == "session_lost"
        env.close()


def test_what_the_command_prints_is_enough_for_its_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("AGENTQ_ENV_TOKEN", raising=False)
    with serving(f"{OWN}:make", "--at", "127.0.0.1:0", "--json") as (server, line):
        told = json.loads(line)
        file = Path(told["token_file"])
        assert file.name == f"{told['env'].partition('@')[2]}@{socket.gethostname()}" and file.read_text() not in line
        envs.make(told["env"]).close()
        server.send_signal(signal.SIGINT)
        assert server.wait(20) == 0 and not file.exists()
    with serving(f"{OWN}:make", "--at", "127.0.0.1:0") as (server, name):
        assert server.stdout is not None
        more = server.stdout.readline()
        file = file.with_name(f"{name.strip().partition('@')[2]}@{socket.gethostname()}")
        assert more == f"another user: set AGENTQ_ENV_TOKEN to the word in {file}\n"
        monkeypatch.setenv("AGENTQ_ENV_TOKEN", "the token of another server")
        with pytest.raises(ConfigError, match=r"AGENTQ_ENV_TOKEN must be the token of the server at .*; got another"):
            envs.make(name)


def test_a_server_at_every_address_says_how_other_machines_name_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("AGENTQ_ENV_TOKEN", raising=False)
    with serving(f"{OWN}:make", "--at", "0.0.0.0:0") as (server, name):
        assert server.stdout is not None
        server.stdout.readline()
        port = name.strip().rpartition(":")[2]
        there = f"count@{socket.gethostname()}:{port}"
        assert server.stdout.readline() == f"another machine: the same, and --env {there}\n"


@pytest.mark.parametrize("busy", ["", "hang", "linger"])
def test_a_killed_server_leaves_no_process(busy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAIL_FOLDER", str(tmp_path))
    with serving(f"{FRAIL}:make", "--at", tmp_path / "socket") as (server, name):
        env = begun(name)
        was = process(env)
        if busy:  # a call is sent, and its answer is never read
            action = {"command": "TYPE", "element": 1, "text": busy}
            assert env._session is not None
            with env._session._socket.makefile("wb") as stream:
                wire.write(stream, {"id": 9, "call": "step", "args": action})
        while sum("lingers" in line for line in living(was.mark)) < (busy == "linger"):
            assert server.poll() is None
        assert was.folder.exists()
        server.kill()
        server.wait()
        assert gone(was)
    with serving(f"{FRAIL}:make", "--at", tmp_path / "socket") as (_, name):  # its socket's file was left behind
        begun(name).close()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["browsergym/miniwob.click-test"],
            f"browsergym environments need browsergym-core: {sys.executable} -m pip install browsergym-core==0.13.3",
        ),
        (
            ["bookin"],
            "what is served must be FILE.py:FUNCTION, browsergym/TASK, textworld/SIZE or alfworld/SPLIT; got bookin",
        ),
        (["/nowhere/env.py:make"], "an environment's file must exist; got /nowhere/env.py"),
        ([f"{OWN}:mkae"], f"{OWN} must define the function mkae; got NoneType"),
        ([f"{OWN}:make", "--python", "/nowhere/python"], "python must be a program; got /nowhere/python"),
        ([f"{OWN}:make", "--python", "/bin/false"], "the session's process ended with exit code 1"),
        ([f"{OWN}:make", "--sessions", 0], "sessions must be at least 1; got 0"),
        ([f"{OWN}:make", "--idle", 0], "idle seconds must be in (0, 1e+07]; got 0"),
        ([f"{OWN}:make", "--at", "7007"], "an address must be HOST:PORT or the path of a Unix socket; got '7007'"),
        ([f"{OWN}:make", "--at", "/nowhere/at"], "at a free address; got /nowhere/at: No such file or directory"),
        ([f"{OWN}:make", "--at", f"/{'x' * 200}"], ": AF_UNIX path too long"),
        (
            [f"{OWN}:make", "--at", "TAKEN"],
            "must be served at a free address; got TAKEN: Address already",
        ),
        (
            [f"{OWN}:make", "--at", "127.0.0.1:0", "--run.seed", 1],
            "agentq env serve takes no settings; got '--run.seed'",
        ),
    ],
)
def test_what_cannot_be_served_is_told_in_one_line(
    words: list[object], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        at = f"127.0.0.1:{taken.getsockname()[1]}"
        assert main(["env", "serve", "--at=127.0.0.1:0", *(str(w).replace("TAKEN", at) for w in words)]) == 2
    printed = capsys.readouterr()
    assert message.replace("TAKEN", at) in printed.err and printed.err.count("\n") == 1 and not printed.out


def test_a_run_uses_as_many_sessions_as_there_are(base: Path, tmp_path: Path) -> None:
    with EnvServer(f"{OWN}:make", sys.executable, "127.0.0.1:0", 2) as server:
        settings = made(EvalCommand, [f"--run.env=count@{server.at}", "--search.num_trees_in_flight=5"])
        with RunStore.open(tmp_path / "run", settings.to_dict()) as store:
            assert Pipeline(store, settings, base, Quiet()).in_flight == 2


def test_agentq_measures_and_trains_on_it_and_goes_on(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at = str(tmp_path / "socket")
    words = ["--env", f"count@{at}", "--eval.num_tasks=3", "--base", base]
    small = [
        "--run.num_tasks=2",
        "--search.num_iterations=2",
        "--search.num_proposals=2",
        "--search.num_trees_in_flight=8",
    ]
    commands = [
        ["eval", base, *words, "--out", tmp_path / "eval"],
        ["train", "agent_q", *words, *small, "--out", tmp_path / "train"],
    ]
    for command in commands:
        first = []
        for _ in range(2):  # once more: nothing is left to do
            with EnvServer(f"{OWN}:make", sys.executable, at, 2):
                assert main([*map(str, command), "--json"]) == 0
            first.append(json.loads(capsys.readouterr().out)["rungs"])
        assert first[0] == first[1] and first[0][-1]["n"] == 3
    (without := tmp_path / "without.py").write_text(Path(OWN).read_text() + "\ndel Count.expert\n")
    other = str(tmp_path / "other")
    with EnvServer(f"{without}:make", sys.executable, other, 2):
        refused = [
            "train",
            "sft",
            *words,
            "--env",
            f"count@{other}",
            "--run.num_tasks=2",
            "--eval.measure_base=false",
            "--out",
            tmp_path / "sft",
        ]
        assert main([*map(str, refused)]) == 2
    said = capsys.readouterr().err
    assert f"a scripted expert must be known for this, as for the built-in sites; got count@{other}" in said
    assert main(["eval", str(base), "--env", f"own@{at}", "--out", str(tmp_path / "own")]) == 2
    assert f"agentq: a server must listen at {at}: agentq env serve; got No such file" in capsys.readouterr().err
    assert not (tmp_path / "own").exists()


def test_a_run_keeps_no_token_and_goes_on_with_another(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("AGENTQ_ENV_TOKEN", raising=False)
    at, tokens, out = "127.0.0.1:0", [], tmp_path / "eval"
    for _ in range(2):
        with EnvServer(f"{OWN}:make", sys.executable, at, 2) as server:
            at = server.at
            assert server.token is not None
            tokens.append(server.token.value)
            words = ["eval", base, "--env", f"count@{at}", "--eval.num_tasks=2", "--out", out]
            assert main([*map(str, words)]) == 0
    said = "".join(capsys.readouterr()).encode()
    kept = [said, *(each.read_bytes() for each in out.rglob("*") if each.is_file())]
    assert len(set(tokens)) == 2 and len(kept) > 3
    assert not any(token.encode() in each for token in tokens for each in kept)
