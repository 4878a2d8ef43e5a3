"""Asks an environment for tasks. One behind a server gives an instruction at reset, which may take seconds."""

from __future__ import annotations

import time
from itertools import takewhile

from agentq import envs
from agentq.envs import sites
from agentq.status import StageDisplay
from agentq.store.run import RunStore
from agentq.store.stages import known_tasks
from agentq.types import Split, Task

_AT_ONCE = 16
_SILENT_S = 5.0  # after which the progress is shown


def ask_for_tasks(env: str, split: Split, n: int, start: int, status: StageDisplay, store: RunStore) -> list[Task]:
    """`n` tasks of a split from index `start` on; see `agentq.envs.tasks`.

    Those that the run has records of are not asked for again. Built-in sites make them faster than they are read.
    """
    found: list[Task] = []
    begun, show = time.monotonic(), None
    seeds = envs.seeds_of(split, n, start)
    known = {} if sites.knows(env) else known_tasks(store, seeds)
    while len(found) < n:
        missing = list(takewhile(lambda seed: seed not in known, seeds[len(found) : len(found) + _AT_ONCE]))
        if missing:
            found += envs.tasks(env, split, len(missing), start + len(found))
        else:
            found.append(known[seeds[len(found)]])
        if show is None and time.monotonic() - begun > _SILENT_S:
            show = status.stage(f"{split} tasks", n, "tasks")
        if show is not None:
            show(len(found), "")
    return found
