"""Demonstrations, and StepAgent's inspection of them: the agent's own action at each state of the expert."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import numpy as np

from agentq.agent.actions import format_action, history_text
from agentq.envs.calls import call
from agentq.envs.protocol import SiteEnv
from agentq.envs.web_env import Advice, Expert
from agentq.errors import AgentqError, EnvError
from agentq.policies.protocol import Policy
from agentq.searching.faults import Broken, Resets, broken_tree, of_the_world, take
from agentq.searching.rollout import RolloutSettings, broken_episode, used
from agentq.seeds import Stream, task_seed
from agentq.store.records import TERMINAL, TreeRecord
from agentq.types import History, Observation, Proposal, Step, Task, Trajectory


class Writer(Protocol):
    """Encodes an action given as text in a policy's tokens, such as `ModelPolicy`."""

    def write(self, history: History, text: str) -> Proposal: ...


async def demonstrate(
    env: SiteEnv,
    expert: Expert,
    task: Task,
    write: Callable[[History, str], Proposal],
    resets: Resets | None = None,
) -> Trajectory:
    """The expert's episode of `task`, with actions in the policy's tokens and unknown (NaN) log-probabilities.

    An attempt that the world broke is retried once, as in `searching.rollout.rollout`.

    Raises:
        EnvError: if the expert raises.
    """
    resets = resets or Resets()
    first = await _attempt(env, expert, task, write, resets)
    return await _attempt(env, expert, task, write, resets) if first.broken and first.steps else first


async def _attempt(
    env: SiteEnv, expert: Expert, task: Task, write: Callable[[History, str], Proposal], resets: Resets
) -> Trajectory:
    try:
        task, history = await resets.first(env, task)
    except Broken as fault:
        return broken_episode(task, fault, {})
    steps: list[Step] = []
    while not steps or not (steps[-1].result.terminated or steps[-1].result.truncated or steps[-1].result.broken):
        advice = await call(env, _ask, expert, task, env, len(steps) + 1)
        text = format_action(
            advice.env_action,
            plan="" if steps else expert.plan,
            thought=advice.thought,
            explanation=advice.explanation,
            status=advice.status,
        )
        proposal = write(history, text)
        result = await call(env, take, env, advice.env_action, history.observation)
        steps.append(Step(history.observation, proposal, result))
        history = history.then(text, result.observation)
    last = steps[-1].result
    return Trajectory(task, tuple(steps), sum(s.result.reward for s in steps), last.success and not last.broken, {})


def _ask(expert: Expert, task: Task, env: SiteEnv, step: int) -> Advice:
    """What the expert advises. Raises EnvError, with the line, if it raises: a plug-in's expert is the user's code."""
    try:
        return expert(task, env)
    except (AgentqError, MemoryError):
        raise
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(frame.filename).name}:{frame.lineno}"
        raise EnvError(
            f"the expert of {task.env} must advise on every page; on step {step} of task {task.seed} it raised "
            f"{of_the_world(error)} ({where})"
        ) from error


async def inspect(demonstration: Trajectory, policy: Policy, settings: RolloutSettings) -> TreeRecord:
    """The demonstration as a path from the root. Each of its actions has the agent's own action as a sibling.

    The agent acts once at every state of the expert (teacher forcing); its actions are never executed. Nodes 1, 3, 5,
    .. are the expert's, each followed by the agent's at the same parent; only the expert's have a page and visits.

    A demonstration that the world broke has a record with only a root.

    Source: Deng et al. 2024, arXiv:2411.03817 (StepAgent), the inspection stage.
    """
    task, steps = demonstration.task, demonstration.steps
    if demonstration.fault is not None:
        said = demonstration.info.get("error_message") or steps[-1].result.error_message
        return broken_tree(task, Broken(demonstration.fault, said))
    histories = [History.of(task, steps[0].observation)]
    for step in steps[:-1]:
        histories.append(histories[-1].then(history_text(step.proposal.action), step.result.observation))

    async def act(t: int) -> Proposal:
        seed = task_seed(settings.seed, task, settings.attempt, Stream.INSPECTION, t)
        (proposal,) = await policy.propose(histories[t], 1, seed=seed, temperature=settings.temperature)
        return proposal

    own = await asyncio.gather(*(act(t) for t in range(len(steps))))
    parent, depth = [-1], [0]
    proposals: list[Proposal | None] = [None]
    pages: list[Observation | None] = [steps[0].observation]
    for t, step in enumerate(steps):
        parent += [max(0, 2 * t - 1)] * 2
        depth += [t + 1] * 2
        proposals += [step.proposal, own[t]]
        pages += [step.result.observation, None]
    n = len(parent)
    visits = np.array([1] + [1, 0] * len(steps))
    reward = np.array([0.0] + [x for step in steps for x in (step.result.reward, 0.0)])
    flags, success = np.zeros(n), np.zeros(n, bool)
    flags[n - 2], success[n - 2] = TERMINAL, demonstration.success
    return TreeRecord(
        task=task,
        parent=np.array(parent),
        depth=np.array(depth),
        visit_count=visits,
        value_sum=visits * demonstration.return_,
        critic_value=np.full(n, 0.5),
        flags=flags,
        proposal=proposals,
        observation=pages,
        reward=reward,
        success=success,
        error_kind=[None] * n,
        info={
            "env_steps": len(steps),
            "prompt_tokens": sum(len(p.prompt_ids) for p in own),
            "generated_tokens": sum(len(p.token_ids) for p in own),
            "succeeded": demonstration.success,
        },
    )


def with_rollout(tree: TreeRecord, episode: Trajectory) -> TreeRecord:
    """An inspection with an episode of the agent as a further path from the root; `info["rollout"]` is its first node.

    An episode that the world broke, or a tree without a page, leaves the tree as it is, but for the cost.
    """
    cost = used(episode)
    info = tree.info | {key: tree.info.get(key, 0) + cost[key] for key in ("prompt_tokens", "generated_tokens")}
    info["env_steps"] = tree.info.get("env_steps", 0) + cost["env_steps"]
    if episode.broken or tree.fault is not None:
        return replace(tree, info=info)
    steps, n = episode.steps, len(tree)
    path, results = np.arange(n, n + len(steps)), [step.result for step in steps]
    flags, success = np.zeros(len(steps), tree.flags.dtype), np.zeros(len(steps), bool)
    flags[-1], success[-1] = TERMINAL, episode.success
    visits = np.concatenate([tree.visit_count, np.ones(len(steps), tree.visit_count.dtype)])
    visits[0] += 1
    values = np.concatenate([tree.value_sum, np.full(len(steps), episode.return_)])
    values[0] += episode.return_
    return replace(
        tree,
        parent=np.concatenate([tree.parent, [0], path[:-1]]),
        depth=np.concatenate([tree.depth, np.arange(1, len(steps) + 1)]),
        visit_count=visits,
        value_sum=values,
        critic_value=np.concatenate([tree.critic_value, np.full(len(steps), 0.5)]),
        flags=np.concatenate([tree.flags, flags]),
        proposal=[*tree.proposal, *(step.proposal for step in steps)],
        observation=[*tree.observation, *(result.observation for result in results)],
        reward=np.concatenate([tree.reward, [result.reward for result in results]]),
        success=np.concatenate([tree.success, success]),
        error_kind=[*tree.error_kind, *(result.error_kind for result in results)],
        restored=[*tree.restored, *[None] * len(steps)],
        info=info | {"rollout": n},
    )


def inspected(tree: TreeRecord) -> list[Proposal]:
    """The expert's actions, each followed by the agent's in the same state."""
    return [p for p in tree.proposal[1 : tree.info.get("rollout")] if p is not None]


def rolled_out(tree: TreeRecord) -> list[Proposal]:
    """The actions of the agent's own episode; empty without one."""
    return [p for p in tree.proposal[tree.info.get("rollout", len(tree)) :] if p is not None]
