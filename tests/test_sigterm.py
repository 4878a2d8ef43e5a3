"""SIGTERM ends a command of the command line as Ctrl-C does; the library leaves the signal alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agentq.cli import main
from agentq.cli.terminating import Termination
from agentq.errors import StoreError
from agentq.recipes import find
from agentq.store.run import PARTIAL, TRAJECTORY, RunStore

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows sends no SIGTERM")

QUIET = "import sys; from agentq.cli import main; sys.exit(main())"
KEEPING = f"from agentq.searching import partial; partial.EVERY_S = 0.0; {QUIET}"
DEAF = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); {QUIET}"  # as a shell's job in the background
ENV = """
import os, time
from pathlib import Path
def note(what):
    with Path(__file__).with_name(what).open("a") as file:
        file.write(f"{os.getpid()}\\n")
def wait():
    for _ in range(6000):  # a signal just before a sleep is handled after it
        time.sleep(0.1)
class Slow:
    max_steps = 4
    def __init__(self):
        note("made")
    def reset(self, seed):
        return {"instruction": f"Press {seed}", "text": "button Go [1]"}
    def step(self, command, element, text):
        return {"text": "button Go [1]"}
    def close(self):
        note("closed")
class Stuck(Slow):
    def reset(self, seed):
        try:
            note("asked")
            wait()
        finally:
            note("ending")
            wait()
"""


@contextmanager
def started(*words: object, code: str = QUIET) -> Iterator[subprocess.Popen[str]]:
    """The command as a process."""
    command = [sys.executable, "-c", code, *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_until(holds: Callable[[], object], process: subprocess.Popen[str] | None = None, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.02)


def kept(run: Path, stage: str, kind: str) -> int:
    """Number of records in a run that may not have begun."""
    try:
        with RunStore.read(run) as store:
            return store.count(stage, kind)
    except StoreError:
        return 0


def noted(folder: Path, what: str) -> list[int]:
    """The processes that noted this."""
    file = folder / what
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def env(tmp_path: Path) -> str:
    file = tmp_path / "slow.py"
    file.write_text(ENV)
    return f"{file}:Slow"


@pytest.mark.parametrize("code", [QUIET, DEAF], ids=["ctrl_c", "ctrl_c_ignored"])
def test_sigterm_ends_an_eval_in_order(code: str, env: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ["eval", "embedded", "--env", env, "--out", str(run), "--run.executor=inline", "--json"]
    with started(*words, "--eval.num_tasks=2000", code=code) as process:
        wait_until(lambda: kept(run, "eval", TRAJECTORY) > 3, process)
        process.send_signal(signal.SIGTERM)
        out, said = process.communicate(timeout=60)
    assert process.returncode == 143, said
    error = json.loads(out)["error"]
    assert (error["kind"], error["exit_code"]) == ("Interrupted", 143)
    assert error["message"].startswith("terminated; go on with: agentq eval embedded --env ")
    assert said.splitlines()[-1] == f"agentq: {error['message']}" and "Traceback" not in said
    assert len(noted(tmp_path, "made")) == len(noted(tmp_path, "closed")) > 0
    before = kept(run, "eval", TRAJECTORY)
    assert before > 3 and json.loads((run / "config.json").read_text())["command"] == "eval"


@pytest.mark.rest
def test_sigterm_keeps_half_grown_trees_and_the_command_goes_on(tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ["eval", "embedded", "--search", "--out", run, "--run.executor=inline", "--eval.num_tasks=2"]
    many = [*words, "--eval.num_iterations=100000", "--search.selection=ucb1"]
    with started(*many, code=KEEPING) as process:
        wait_until(lambda: kept(run, "eval", PARTIAL), process)
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=60)[1]
    assert process.returncode == 143 and kept(run, "eval", PARTIAL) > 0, said
    assert "agentq: terminated; go on with: agentq eval embedded --search " in said.splitlines()[-1]


@pytest.mark.rest
def test_sigterm_ends_worker_processes(env: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ["eval", "embedded", "--env", env, "--out", run, "--run.executor=processes", "--run.workers=2"]
    with started(*words, "--eval.num_tasks=2000") as process:
        wait_until(lambda: kept(run, "eval", TRAJECTORY) > 3, process)
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=60)[1]
    assert process.returncode == 143 and "Traceback" not in said, said
    workers = {*noted(tmp_path, "made")} - {process.pid}
    assert workers
    wait_until(lambda: not any(map(alive, workers)), seconds=30)


def test_a_second_sigterm_ends_at_once(env: str, tmp_path: Path) -> None:
    with started("env", "check", env.replace(":Slow", ":Stuck"), "--tasks", 1000) as process:
        wait_until(lambda: noted(tmp_path, "asked"), process)
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: noted(tmp_path, "ending"), process)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)
    assert process.returncode == -signal.SIGTERM


def test_a_server_ends_with_0(env: str) -> None:
    with started("env", "serve", env, "--at", "127.0.0.1:0", "--sessions", 1, "--json") as process:
        assert process.stdout is not None
        assert "env" in json.loads(process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=60)[1]
    assert process.returncode == 0, said


def test_a_signal_that_does_not_wake_the_wait_ends_it_too() -> None:
    late = """
import signal, threading, time
from agentq.progress import until_interrupted
def interrupt():
    time.sleep(0.3)
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)  # to this thread: the main one sleeps on
threading.Thread(target=interrupt, daemon=True).start()
with until_interrupted():
    pass
"""
    subprocess.run([sys.executable, "-c", late], timeout=60, check=True)


def test_only_the_command_line_has_a_handler_and_gives_it_back(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[Any]()
    monkeypatch.setattr(find, "listing", lambda *_: seen.append(signal.getsignal(signal.SIGTERM)) or [])

    def theirs(*_: object) -> None:
        raise AssertionError

    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL  # after all that was imported here
    assert main(["settings"]) == 0
    assert callable(seen[0]) and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    thread = threading.Thread(target=main, args=(["settings"],))
    thread.start()
    thread.join()
    monkeypatch.setenv("RANK", "0")
    assert main(["settings"]) == 0
    monkeypatch.delenv("RANK")
    assert seen[1:] == [signal.SIG_DFL, signal.SIG_DFL]
    signal.signal(signal.SIGTERM, theirs)
    try:
        assert main(["settings"]) == 0
        assert seen[-1] is theirs and signal.getsignal(signal.SIGTERM) is theirs
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def test_a_forked_process_ends_at_once() -> None:
    code = (
        "import os, signal, time\n"
        "from agentq.cli.terminating import Termination\n"
        "with Termination() as termination:\n"
        "    ready, tell = os.pipe()\n"
        "    pid = os.fork()\n"
        "    if not pid:\n"
        "        os.write(tell, b'.')  # Python drops a signal that comes while a process forks\n"
        "        time.sleep(60)\n"
        "        os._exit(0)\n"
        "    os.read(ready, 1)\n"
        "    os.kill(pid, signal.SIGTERM)\n"
        "    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGTERM and not termination.came\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_an_interrupt_is_known_by_its_signal() -> None:
    with pytest.raises(KeyboardInterrupt), Termination() as termination:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)
    assert termination.came and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.raises(KeyboardInterrupt), Termination() as termination:
        signal.raise_signal(signal.SIGINT)
    assert not termination.came
