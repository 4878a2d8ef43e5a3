"""A dry run: random steps on a live site, which show what the site would send. Nothing unsafe is sent."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from agentq.envs.browser.env import BrowserEnv
from agentq.envs.explore import random_action
from agentq.policies.budget import Budget
from agentq.types import EnvAction, Split, StepResult, Task


def walk(
    env: BrowserEnv, goal: str, budget: Budget, seed: int, on_step: Callable[[EnvAction, StepResult], None]
) -> int:
    """Take random steps until the budget is spent. A step counts as a call. Returns the number of steps.

    A finished episode starts again. Words of `goal` are typed into fields. `env.guard` records the requests that the
    steps tried to send. Raises EnvError if the first page cannot be opened.
    """
    task, rng = Task(env.name, 0, Split.TEST, goal.strip() or "one"), random.Random(seed)
    env.reset(task)
    steps, over = 0, False
    while not budget.ended and steps < budget.calls and time.monotonic() - budget.begun < budget.seconds:
        if over:
            env.reset(task)
        action = random_action(env, task, rng)
        result = env.step(action)
        on_step(action, result)
        steps, over = steps + 1, result.terminated or result.truncated
    return steps
