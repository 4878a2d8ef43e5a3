"""Episodes under a policy: one coroutine a task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agentq.agent.actions import history_text
from agentq.critics.protocol import Judge
from agentq.envs.protocol import Env
from agentq.policies.protocol import Policy
from agentq.search.run import call, request_seed
from agentq.types import History, Step, Task, Trajectory


@dataclass(frozen=True, slots=True)
class RolloutSettings:
    """`temperature` 0 is greedy. `seed` is the run's; `attempt` tells several rollouts of one task apart."""

    temperature: float = 1.0
    seed: int = 0
    attempt: int = 0


async def rollout(
    env: Env,
    task: Task,
    policy: Policy,
    settings: RolloutSettings,
    give_up: Callable[[int], bool] = lambda turns: False,
    judge: Judge | None = None,
) -> Trajectory | None:
    """One episode of `task`, from reset to its end (STOP, the site's end, or the step budget).

    Before each turn `give_up` is asked, with the turns taken; where it says so there is no episode. A judge's verdict
    takes the place of the environment's reward.
    """
    history = History.of(task, await call(env, env.reset, task))
    steps: list[Step] = []
    while not give_up(len(steps)):
        seed = request_seed(settings.seed, task.seed, task.seed >> 32, settings.attempt, len(steps))
        (proposal,) = await policy.propose(history, 1, seed=seed, temperature=settings.temperature)
        result = await call(env, env.step, proposal.action.env_action)
        after = history.then(history_text(proposal.action), result.observation)
        if judge is not None and result.terminated:
            result = await judge.settle(after, result)
        steps.append(Step(history.observation, proposal, result))
        if result.terminated or result.truncated:
            total = sum(step.result.reward for step in steps)
            return Trajectory(task, tuple(steps), total, result.success, {"attempt": settings.attempt})
        history = after
    return None
