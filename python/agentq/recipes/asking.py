"""Asks an environment for tasks. One behind a server gives an instruction at reset, which may take seconds."""

from __future__ import annotations

import time

from agentq import envs
from agentq.status import StageDisplay
from agentq.types import Split, Task

_AT_ONCE = 16
_SILENT_S = 5.0  # after which the progress is shown


def ask_for_tasks(env: str, split: Split, n: int, start: int, status: StageDisplay) -> list[Task]:
    """`n` tasks of a split from index `start` on; see `agentq.envs.tasks`."""
    found: list[Task] = []
    begun, show = time.monotonic(), None
    while len(found) < n:
        found += envs.tasks(env, split, min(_AT_ONCE, n - len(found)), start + len(found))
        if show is None and time.monotonic() - begun > _SILENT_S:
            show = status.stage(f"{split} tasks", n, "tasks")
        if show is not None:
            show(len(found), "")
    return found
