"""The Env contract: what every environment must do, and what it may be able to do."""

from __future__ import annotations

import random
from enum import Flag, auto
from typing import Any, Protocol

from agentq.envs.tab import View
from agentq.types import EnvAction, Observation, StepResult, Task

RESETS = 2  # attempts at a task's first page before the task counts as broken
BROKEN_IN_A_ROW = 8  # tasks without a first page, one after the other, that end a run


class Ability(Flag):
    """Without RESTORE, search replays the path from reset and checks each page's fingerprint.

    The calls of a BLOCKING environment wait for another process: search makes them in threads.
    """

    NONE = 0
    RESTORE = auto()  # snapshot() and restore(token)
    FORK = auto()  # fork(): an independent copy of the live session
    BLOCKING = auto()


class Env(Protocol):
    """One live session of one environment. Not thread-safe; cheap to make."""

    name: str
    abilities: Ability
    max_steps: int

    def reset(self, task: Task) -> Observation:
        """Start `task` afresh and return the first page. What it raises breaks this task alone; ConfigError the run."""
        ...

    def step(self, env_action: EnvAction | None) -> StepResult:
        """Act. None (an unreadable action) costs a step, changes nothing. EnvError before reset or after the end."""
        ...

    def snapshot(self) -> Any:
        """An immutable token for the present state, valid in any Env of the same name in this process."""
        ...

    def restore(self, token: Any) -> Observation:
        """Go back to a snapshot, the step count included; any number of times, in any order."""
        ...

    @property
    def restored(self) -> str:
        """How the last restore went. exact: page and server are as they were; approximate: the page is; failed."""
        ...

    def fork(self) -> Env:
        """An independent session in the same state."""
        ...

    def close(self) -> None:
        """Release everything; the session cannot be used after."""
        ...


class SiteEnv(Env, Protocol):
    """An Env that shows what its tab holds, for experts and random walks."""

    @property
    def view(self) -> View:
        """The page, its url and what its controls hold now."""
        ...

    def random_query(self, rng: random.Random) -> str:
        """Something a visitor of this site may search for."""
        ...
