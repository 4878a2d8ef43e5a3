"""What the tests of faults share: booking sessions that fail when they are told to, policies, searches."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import numpy as np

from agentq import envs
from agentq.envs.protocol import Env
from agentq.errors import EnvError
from agentq.policies.scripted import ScriptedPolicy
from agentq.searching.rollout import RolloutSettings, rollout
from agentq.searching.selection import SearchSettings
from agentq.searching.tree import TreeSearch
from agentq.store.records import TreeRecord
from agentq.types import (
    EnvAction,
    History,
    Observation,
    Split,
    StepResult,
    Task,
    Trajectory,
)
from tests.frail_env import Flaky
from tests.recipes_factory import expert_texts

TASKS = envs.tasks("booking", Split.TRAIN, 24)
SCRIPTS = {task.instruction: expert_texts(task) for task in TASKS}
TASK = TASKS[0]


def mostly_right(history: History, rng: np.random.Generator) -> tuple[str, float]:
    """The expert's next action, or (1 in 4) something else."""
    script, turn = SCRIPTS[history.instruction], len(history.actions)
    right = rng.random() < 0.75 and turn < len(script)
    return (script[turn] if right else f"COMMANDS: {rng.choice(['STOP', 'SCROLL DOWN', 'GOTO /', 'CLICK [99]'])}"), -0.5


def right(history: History, rng: np.random.Generator) -> tuple[str, float]:
    return SCRIPTS[history.instruction][len(history.actions)], -0.5


class Fails:
    """A booking session; `when(resets, steps)` says how a step fails, `starts(resets)` whether a reset succeeds."""

    def __init__(
        self,
        when: Callable[[int, int], str | None] = lambda resets, steps: None,
        starts: Callable[[int], bool] = lambda resets: True,
        restores: bool = False,
    ) -> None:
        self.env, self.when, self.starts = envs.make("booking"), when, starts
        if not restores:
            self.snapshot = None
        self.name, self.max_steps, self.restored = self.env.name, self.env.max_steps, "exact"
        self.resets = self.steps = 0
        self.lost = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)

    def reset(self, task: Task) -> Observation:
        self.resets, self.steps, self.lost = self.resets + 1, 0, False
        if not self.starts(self.resets):
            raise ValueError(f"reset {self.resets} failed\nand more")
        self.shown = self.env.reset(task)
        return self.shown

    def restore(self, token: Any) -> Observation:
        self.lost, self.shown = False, self.env.restore(token)
        return self.shown

    def step(self, env_action: EnvAction | None) -> StepResult:
        if self.lost:
            raise EnvError("step needs a session; this one is lost")
        self.steps += 1
        if kind := self.when(self.resets, self.steps):
            self.lost = True
            return StepResult(self.shown, truncated=kind != "browser_lost", error_kind=kind, error_message="gone")
        result = self.env.step(env_action)
        self.shown = result.observation
        return result


def episode(env: Any, policy: Any = None, seed: int = 0) -> Trajectory:
    found = asyncio.run(rollout(env, TASK, policy or ScriptedPolicy(right), RolloutSettings(seed=seed)))
    assert found is not None
    return found


def search(env: Any, iterations: int = 12, seed: int = 0, width: int = 4) -> TreeRecord:
    settings = SearchSettings(num_iterations=iterations, num_proposals=width, seed=seed)
    return asyncio.run(TreeSearch(env, TASK, ScriptedPolicy(mostly_right), settings).run())


def ignore(done: int, total: int, success: bool | None, message: str) -> None:
    pass


def flaky(seed: int, **rates: Any) -> Callable[[], Env]:
    """A factory of flaky booking sessions. The n-th one fails the same way on every run."""
    numbers = iter(range(10**6))
    return lambda: Flaky(envs.make("booking"), random.Random(f"{seed}/{next(numbers)}"), **rates)  # type: ignore[return-value]
