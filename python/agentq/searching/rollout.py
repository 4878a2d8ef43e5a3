"""Episodes under a policy, one coroutine per episode."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agentq.agent.actions import history_text
from agentq.critics.protocol import Judge
from agentq.envs.calls import call
from agentq.envs.protocol import Env
from agentq.policies.protocol import Policy
from agentq.searching.faults import Broken, Resets, take
from agentq.searching.unreadable import ended_if_unreadable
from agentq.seeds import task_seed
from agentq.types import Proposal, Step, Task, Trajectory


@dataclass(frozen=True, slots=True)
class RolloutSettings:
    """`temperature` 0 is greedy. `seed` is the run's; `attempt` distinguishes rollouts of one task.

    An episode ends after `max_unreadable` unreadable actions in a row; 0: never. With a `repeat_temperature` above 0,
    an action that is the last one, word for word, is sampled again at that temperature (ours).
    """

    temperature: float = 1.0
    seed: int = 0
    attempt: int = 0
    max_unreadable: int = 0
    repeat_temperature: float = 0.0


async def rollout(
    env: Env,
    task: Task,
    policy: Policy,
    settings: RolloutSettings,
    give_up: Callable[[int], bool] = lambda turns: False,
    judge: Judge | None = None,
    resets: Resets | None = None,
    given_up: Counter[str] | None = None,
) -> Trajectory | None:
    """One episode of `task`, from reset to its end (STOP, the site's end, or the step budget).

    `give_up` is called before each turn with the number of turns taken; if it returns true, the result is None, and
    `given_up` counts what it has used. A judge's verdict replaces the environment's reward.

    An attempt that the world broke is retried once with the same seed; `info` has its cost under `retried`. A broken
    episode ends with the broken step, or has no steps and the `error_kind` of its reset in `info`. The tokens of
    actions that were sampled again are there under `repeats`.
    """
    resets, given_up = resets or Resets(), Counter() if given_up is None else given_up
    first = await _attempt(env, task, policy, settings, give_up, judge, resets, given_up)
    if first is None or not first.broken or not first.steps:
        return first
    again = await _attempt(env, task, policy, settings, give_up, judge, resets, given_up)
    if again is None:
        given_up.update(used(first))
        return None
    return replace(again, info={**again.info, "retried": used(first)})


def used(t: Trajectory) -> dict[str, int]:
    """Steps and tokens used by an episode."""
    return _used(t.steps)


def _used(steps: Sequence[Step], repeats: Sequence[Proposal] = ()) -> dict[str, int]:
    return {"env_steps": len(steps), **_tokens([*(step.proposal for step in steps), *repeats])}


def _tokens(proposals: Sequence[Proposal]) -> dict[str, int]:
    return {
        "prompt_tokens": sum(len(p.prompt_ids) for p in proposals),
        "generated_tokens": sum(len(p.token_ids) for p in proposals),
    }


def broken_episode(task: Task, fault: Broken, info: dict[str, Any]) -> Trajectory:
    """The record of an episode that never began."""
    return Trajectory(task, (), 0.0, False, {**info, "error_kind": fault.kind, "error_message": fault.message})


async def _attempt(
    env: Env,
    task: Task,
    policy: Policy,
    settings: RolloutSettings,
    give_up: Callable[[int], bool],
    judge: Judge | None,
    resets: Resets,
    given_up: Counter[str],
) -> Trajectory | None:
    info: dict[str, Any] = {"attempt": settings.attempt}
    try:
        task, history = await resets.first(env, task)
    except Broken as fault:
        return broken_episode(task, fault, info)
    steps, repeats = list[Step](), list[Proposal]()
    while not give_up(len(steps)):
        seed = task_seed(settings.seed, task, settings.attempt, len(steps))
        (proposal,) = await policy.propose(history, 1, seed=seed, temperature=settings.temperature)
        if settings.repeat_temperature and history.actions[-1:] == (history_text(proposal.action),):
            repeats.append(proposal)
            (proposal,) = await policy.propose(history, 1, seed=seed, temperature=settings.repeat_temperature)
        result = await call(env, take, env, proposal.action.env_action, history.observation)
        after = history.then(history_text(proposal.action), result.observation)
        result = ended_if_unreadable(result, after, settings.max_unreadable)
        if judge is not None and result.terminated and not result.broken:
            result = await judge.settle(after, result)
        steps.append(Step(history.observation, proposal, result))
        if result.terminated or result.truncated or result.broken:
            total = sum(step.result.reward for step in steps)
            if repeats:
                info["repeats"] = {"steps": len(repeats), **_tokens(repeats)}
            return Trajectory(task, tuple(steps), total, result.success and not result.broken, info)
        history = after
    given_up.update(_used(steps, repeats))
    return None
