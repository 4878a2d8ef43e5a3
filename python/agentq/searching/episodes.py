"""Independent episodes of one task, of which a rule chooses one: majority vote and best of n."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from itertools import accumulate

import numpy as np

from agentq.agent.actions import history_text
from agentq.envs.protocol import Env
from agentq.policies.protocol import Policy
from agentq.searching.faults import Broken, Resets, broken_tree
from agentq.searching.rollout import RolloutSettings, rollout, used
from agentq.searching.selection import SearchSettings
from agentq.store.records import TERMINAL, TreeRecord
from agentq.types import History, Observation, Proposal, Task, Trajectory

Score = Callable[[History], Awaitable[float]]
Choice = Callable[[TreeRecord], int]
COUNTS = ("env_steps", "prompt_tokens", "generated_tokens", "iterations")


async def chosen_of(
    env: Env,
    task: Task,
    policy: Policy,
    settings: SearchSettings,
    choice: Choice,
    score: Score | None,
    resets: Resets,
) -> TreeRecord:
    """Episodes of `task` as a tree that branches at the root, with the checker's verdict on the chosen one in `info`.

    At most `settings.num_iterations` episodes and `settings.max_calls` sampled actions. The episode in which the calls
    run out is left out, but for its cost. `score` rates the answers, the episodes that the agent or the site ended.
    """
    found, counts, faults = list[Trajectory](), Counter(dict.fromkeys(COUNTS, 0)), Counter[str]()

    def spent(turns: int) -> bool:
        return 0 < settings.max_calls <= counts["env_steps"] + turns

    while counts["iterations"] < settings.num_iterations and not spent(0):
        sampling = RolloutSettings(settings.temperature, settings.seed, counts["iterations"], settings.max_unreadable)
        t = await rollout(env, task, policy, sampling, spent, resets=resets, given_up=counts)
        if t is None:
            break
        if not t.steps:
            fault = Broken(t.info["error_kind"], t.info["error_message"])
            if not found:
                return broken_tree(task, fault)
            faults[fault.kind] += 1
            break
        counts["iterations"] += 1
        counts.update(used(t))
        counts.update(t.info.get("retried", {}))
        share = settings.share(counts["iterations"], counts["env_steps"])
        resets.grew(task.seed, counts["iterations"], share)
        if t.fault is not None:
            faults[t.fault] += 1
        else:
            found.append(t)
    answers = [t.steps[-1].result.terminated for t in found]
    scores = [await score(_last(t)) for t, answered in zip(found, answers, strict=True) if answered and score]
    tree = _tree(found[0].task if found else task, found)
    ends: list[int] = tree.info["ends"]
    tree.info |= {**counts, "calls": counts["env_steps"], "faults": dict(faults), "scores": scores}
    tree.info["answers"] = [end for end, answered in zip(ends, answers, strict=True) if answered]
    if found:
        end = choice(tree)
        one = found[ends.index(end)]
        verdict = {"success": one.success, "return": one.return_, "steps": len(one.steps), "broken": False, "end": end}
    else:
        verdict = {"success": False, "return": 0.0, "steps": 0, "broken": bool(faults), "end": 0}
    tree.info |= {"checked": verdict, "succeeded": verdict["success"]}
    return tree


def _last(t: Trajectory) -> History:
    """The history at the end of an episode."""
    history = History.of(t.task, t.steps[0].observation)
    for step in t.steps:
        history = history.then(history_text(step.proposal.action), step.result.observation)
    return history


def _tree(task: Task, episodes: Sequence[Trajectory]) -> TreeRecord:
    """A root with a chain of nodes for each episode; `info["ends"]` are the last nodes."""
    steps = [step for t in episodes for step in t.steps]
    lengths = [len(t.steps) for t in episodes]
    ends = list(accumulate(lengths))
    first = [end - length + 1 for end, length in zip(ends, lengths, strict=True)]
    n = 1 + len(steps)
    parent, depth, value = np.arange(n) - 1, np.zeros(n, int), np.zeros(n)
    parent[first] = 0
    for start, end, t in zip(first, ends, episodes, strict=True):
        depth[start : end + 1], value[start : end + 1] = np.arange(1, len(t.steps) + 1), t.return_
    parent[0], value[0] = -1, sum(t.return_ for t in episodes)
    visits, flags, success = np.ones(n), np.zeros(n), np.zeros(n, bool)
    visits[0], flags[ends], success[ends] = len(episodes), TERMINAL, [t.success for t in episodes]
    proposals: list[Proposal | None] = [None, *(step.proposal for step in steps)]
    pages: list[Observation | None] = [steps[0].observation if steps else None]
    return TreeRecord(
        task=task,
        parent=parent,
        depth=depth,
        visit_count=visits,
        value_sum=value,
        critic_value=np.full(n, 0.5),
        flags=flags,
        proposal=proposals,
        observation=[*pages, *(step.result.observation for step in steps)],
        reward=np.array([0.0, *(step.result.reward for step in steps)]),
        success=success,
        error_kind=[None, *(step.result.error_kind for step in steps)],
        info={"ends": ends},
    )
