"""What tests of environments behind servers share: where theirs are, and the process that a page comes from."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

from agentq.envs.remote.client import RemoteEnv
from agentq.types import Command, EnvAction, Split, StepResult, Task
from tests.browser_lab import living

ROOT = Path(__file__).parents[1]
OWN, FRAIL = ROOT / "examples" / "own_env.py", ROOT / "tests" / "frail_env.py"


def begun(name: str, seed: int = 0) -> RemoteEnv:
    """A session of tests/frail_env.py on its first page."""
    env = RemoteEnv(name)
    env.reset(Task(name, seed, Split.TRAIN, f"Seed {seed}"))
    return env


class Process(NamedTuple):
    """What an environment's page comes from."""

    pid: int
    mark: str
    folder: Path


def process(env: RemoteEnv) -> Process:
    """Where the present page comes from."""
    pid, mark, folder = env._shown.text.partition("\n")[0].removeprefix("heading ").split()
    return Process(int(pid), mark, Path(folder))


def mishap(env: RemoteEnv, which: str) -> StepResult:
    """A step that goes wrong."""
    return env.step(EnvAction(Command.TYPE, 1, which))


def gone(was: Process) -> bool:
    """Whether nothing of a process is left, within ten seconds."""
    deadline = time.monotonic() + 10
    while (left := bool(living(was.mark)) or was.folder.exists()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not left
