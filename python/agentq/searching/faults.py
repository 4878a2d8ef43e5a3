"""Handling of world faults in search: a first page is tried twice, and a run whose world is gone ends.

Every other fault is data. A broken item is recorded with its kind, one of `error_kinds.WORLD_FAULTS`, and counts as
done.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from agentq.envs.calls import Args, Result, call
from agentq.envs.protocol import RESETS, Env
from agentq.error_kinds import RESET_FAILED, SESSION_LOST
from agentq.errors import AgentqError, EnvError
from agentq.store.records import TreeRecord
from agentq.types import EnvAction, History, Observation, StepResult, Task, Trajectory


class Broken(Exception):
    """The world failed. Holds the error kind and a one-line message."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind, self.message = kind, message

    def result(self, page: Observation) -> StepResult:
        """The result of the broken step, with the page before it."""
        return StepResult(page, truncated=True, error_kind=self.kind, error_message=self.message)


@dataclass(slots=True)
class Resets:
    """First pages of a stage's tasks, and how far its searches are.

    `most_in_a_row`: end the run when this many different tasks in a row had no first page; 0 disables. A task counts
    once, however often its reset fails, as in the replays of a search.
    `grew`: told that a search of a task, by its seed, has made so many rollouts, and that share of its work; 0 if no
    one knows.
    """

    most_in_a_row: int = 0
    grew: Callable[[int, int, float], None] = lambda seed, rollouts, share: None
    without: set[int] = field(default_factory=set)  # seeds of the tasks that failed since the latest first page
    latest: tuple[str, str] = ("", "")  # environment and message of the latest failure
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def in_a_row(self) -> int:
        """Number of different tasks that had no first page since the latest one was shown."""
        return len(self.without)

    def begin(self, env: Env, task: Task) -> Observation:
        """The first page of `task`.

        Raises:
            Broken: if the environment raised at every attempt.
            EnvError: if that happened for too many tasks in a row.
        """
        for _ in range(RESETS):
            try:
                page = env.reset(task)
            except Exception as error:
                said = of_the_world(error)
            else:
                self.shown()
                return page
        self.failed(task.env, task.seed, said)
        raise Broken(RESET_FAILED, said)

    def shown(self) -> None:
        """Count a first page."""
        with self._lock:
            self.without.clear()

    def failed(self, env: str, seed: int, said: str) -> None:
        """Count a task without a first page. Raises EnvError after too many different ones in a row."""
        with self._lock:
            self.without.add(seed)
            self.latest = env, said
            if 0 < self.most_in_a_row <= self.in_a_row:
                raise self.gone()

    async def first_page(self, env: Env, task: Task) -> Observation:
        """`begin`, in a thread if the environment waits for another process."""
        return await call(env, self.begin, env, task)

    async def first(self, env: Env, task: Task) -> tuple[Task, History]:
        """The task, see `told`, and the history at its first page. Raises as `begin` does."""
        page = await self.first_page(env, task)
        task = told(env, task)
        return task, History.of(task, page)

    def gone(self) -> EnvError:
        """The error that ends a run whose environment cannot be driven at all."""
        name, said = self.latest
        tasks = f"{self.in_a_row} tasks in a row" if self.in_a_row > 1 else "the task"
        return EnvError(f"{name} must show a first page; {tasks} had none, the last: {said}")


def told(env: Env, task: Task) -> Task:
    """The task with the instruction that its reset gave, if it did not start when it was asked for one before."""
    return task if task.instruction else replace(task, instruction=getattr(env, "instruction", ""))


async def ask(env: Env, method: Callable[Args, Result], *args: Args.args, **kwargs: Args.kwargs) -> Result:
    """The result of a method of the environment. Raises Broken if the environment cannot continue."""
    try:
        return await call(env, method, *args, **kwargs)
    except EnvError as error:
        raise Broken(SESSION_LOST, of_the_world(error)) from None


def of_the_world(error: Exception) -> str:
    """The first line of an environment's error. Re-raises an error that is the caller's fault, and MemoryError."""
    if isinstance(error, MemoryError) or (isinstance(error, AgentqError) and not isinstance(error, EnvError)):
        raise error
    text = str(error).strip().partition("\n")[0]
    return text if isinstance(error, EnvError) and text else f"{type(error).__name__}: {text}".removesuffix(": ")


def fault_message(record: Trajectory | TreeRecord) -> str:
    """The world's message about a record that it broke; empty if it did not, or only part of a tree."""
    if record.fault is None:
        return ""
    last = record.steps[-1].result.error_message if isinstance(record, Trajectory) and record.steps else ""
    return str(record.info.get("error_message") or last)


def take(env: Env, env_action: EnvAction | None, page: Observation) -> StepResult:
    """The step's result. An environment that cannot continue from `page` has lost its session."""
    try:
        return env.step(env_action)
    except EnvError as error:
        return Broken(SESSION_LOST, of_the_world(error)).result(page)


def broken_tree(task: Task, fault: Broken) -> TreeRecord:
    """The record of a task without a tree: a root with the error kind and no page."""
    counts = {"env_steps": 0, "prompt_tokens": 0, "generated_tokens": 0, "succeeded": False}
    zero = np.zeros(1)
    return TreeRecord(
        task=task,
        parent=np.array([-1]),
        depth=zero,
        visit_count=zero,
        value_sum=zero,
        critic_value=np.full(1, 0.5),
        flags=zero,
        proposal=[None],
        observation=[None],
        reward=zero,
        success=zero,
        error_kind=[fault.kind],
        info={**counts, "faults": {fault.kind: 1}, "error_message": fault.message},
    )
