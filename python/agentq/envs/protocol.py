"""What search needs from an environment. An optional ability is a method that exists."""

from __future__ import annotations

import random
from typing import Any, Protocol, TypeGuard

from agentq.envs.tab import View
from agentq.types import EnvAction, Observation, StepResult, Task

RESETS = 2  # attempts at a task's first page before the task counts as broken
BROKEN_IN_A_ROW = 8  # consecutive tasks without a first page that end a run
ROUNDING = 1e-6  # of a return in [0, 1]: twenty rewards of 0.05 add up to more than 1


class Env(Protocol):
    """One live session of one environment. Not thread-safe; cheap to make.

    Search replays the path from reset, and checks each page's fingerprint, unless the environment is `Restorable`.
    With a true attribute `blocking`, calls wait for another process, and search makes them in threads.
    """

    name: str
    max_steps: int

    def reset(self, task: Task) -> Observation:
        """Start `task` and return its first page. An exception breaks this task only; ConfigError ends the run."""
        ...

    def step(self, env_action: EnvAction | None) -> StepResult:
        """Act. None (an unreadable action) costs a step and changes nothing. EnvError before reset or after the end."""
        ...

    def close(self) -> None:
        """Release everything. The session cannot be used afterwards."""
        ...


class Restorable(Env, Protocol):
    """An Env that can go back to its snapshots."""

    def snapshot(self) -> Any:
        """An immutable token for the present state, valid in any Env of the same name in this process."""
        ...

    def restore(self, token: Any) -> Observation:
        """Go back to a snapshot and its step count, any number of times and in any order."""
        ...

    @property
    def restored(self) -> str:
        """Outcome of the last restore: exact (page and server are as before), approximate (the page is), failed."""
        ...


class Forkable(Restorable, Protocol):
    """A Restorable that can be copied."""

    def fork(self) -> Forkable:
        """An independent session in the same state."""
        ...


def can_restore(env: Env) -> TypeGuard[Restorable]:
    """Whether `env` has the methods of a Restorable."""
    return all(callable(getattr(env, method, None)) for method in ("snapshot", "restore"))


def can_fork(env: Env) -> TypeGuard[Forkable]:
    """Whether `env` has the methods of a Forkable."""
    return can_restore(env) and callable(getattr(env, "fork", None))


def is_blocking(env: Env) -> bool:
    """Whether calls of `env` wait for another process."""
    return bool(getattr(env, "blocking", False))


class SiteEnv(Env, Protocol):
    """An Env that shows what its tab holds, for experts and random walks."""

    @property
    def view(self) -> View:
        """The page, its url and what its controls hold now."""
        ...

    def random_query(self, rng: random.Random) -> str:
        """Something a visitor of this site may search for."""
        ...
