"""Metrics of a round's data, under the names that other trainers use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import numpy as np

from agentq.agent.actions import same_action
from agentq.credit.advantages import collapsed
from agentq.credit.episodes import whole
from agentq.evaluation.critic import concordance
from agentq.policies.usage import Usage
from agentq.searching.demonstrate import inspected
from agentq.store.records import TreeRecord
from agentq.store.run import RunStore
from agentq.types import Trajectory


def collected(store: RunStore, stage: str) -> dict[str, float]:
    """Metrics of a stage's episodes or search trees; empty if it has none."""
    episodes = list(store.trajectories(stage))
    return of_episodes(episodes) if episodes else of_trees(list(store.trees(stage, nodes=())))


def of_episodes(episodes: Sequence[Trajectory]) -> dict[str, float]:
    """Means over episodes without an environment fault. `broken` is the share of episodes with one.

    `entropy` is the mean of -log pi over sampled tokens, in nats, unbiased if they were sampled at temperature 1;
    it is missing if the engine tells no tokens.
    `group_collapse` is the share of episodes in groups with equal returns, which give no signal.
    """
    found = {"broken": 1 - len(whole(episodes)) / max(1, len(episodes))}
    episodes = whole(episodes)
    if not episodes:
        return found
    returns = [t.return_ for t in episodes]
    proposals = [step.proposal for t in episodes for step in t.steps]
    logps = np.concatenate([p.logps for p in proposals])
    return {
        **found,
        "reward/mean": float(np.mean(returns)),
        "reward/std": float(np.std(returns)),
        "success": float(np.mean([t.success for t in episodes])),
        "group_collapse": float(np.mean(collapsed(returns, [t.task.seed for t in episodes]))),
        **({"entropy": -float(logps.mean())} if len(logps) else {}),
        "turns/mean": float(np.mean([len(t.steps) for t in episodes])),
        "unreadable": float(np.mean([p.action.env_action is None for p in proposals])),
        "mended": float(np.mean([bool(p.action.mended) and p.action.env_action is not None for p in proposals])),
    }


def used(store: RunStore, stage: str) -> dict[str, float]:
    """Usage of the engines in a stage: tokens and queueing by role, seconds of computing, failed attempts."""
    usage = Usage.from_note(store.note(stage) or {})
    found = {f"{role}/{name}": float(n) for role, tally in usage.roles.items() for name, n in asdict(tally).items()}
    return {**found, "engine/seconds": usage.seconds, "engine/faults": float(usage.faults.total())}


def agreement(trees: Sequence[TreeRecord]) -> float:
    """Share of the expert's states in which the agent acts the same; `trees` from `searching.demonstrate.inspect`."""
    both = [proposal for tree in trees for proposal in inspected(tree)]
    pairs = zip(both[::2], both[1::2], strict=True)
    same = [same_action(expert.action.env_action, own.action.env_action) for expert, own in pairs]
    return float(np.mean(same)) if same else 0.0


def of_trees(trees: Sequence[TreeRecord]) -> dict[str, float]:
    """Means over trees with a rollout: the root's mean return, and whether any rollout succeeded.

    `broken` is the share of rollouts with an environment fault. A task whose first page failed counts as one.
    `critic/agreement` is the share of siblings that the critic orders as their mean returns do (chance: 0.5), with a
    95 % interval. It is missing if no critic ranked any that differ.
    """
    faults = sum(sum(tree.info.get("faults", {}).values()) for tree in trees)
    found = {"broken": faults / max(1, faults + sum(int(tree.visit_count[0]) for tree in trees))}
    trees = [tree for tree in trees if tree.fault is None]
    if not trees:
        return found
    if (critic := concordance(trees)) is not None:
        told = {"": critic.accuracy, "/low": critic.low, "/high": critic.high}
        found |= {f"critic/agreement{end}": value for end, value in told.items()}
    return {
        **found,
        "reward/mean": float(np.mean([tree.mean_value[0] for tree in trees])),
        "success": float(np.mean([tree.success.any() for tree in trees])),
    }
