"""Preference pairs: of siblings in a tree (Agent Q), of whole episodes, of an expert and an agent. Pure functions.

Source: Putta et al. 2024, arXiv:2408.07199, eq. 10 (node pairs), eq. 6 (trajectory pairs). The paper gives no value for
alpha, threshold or the number of pairs, and no map from rank to value: those here are ours.

No broken node and no step of a broken episode is in any pair.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from heapq import nsmallest
from itertools import combinations
from typing import NamedTuple

import numpy as np

from agentq.agent.actions import same_action
from agentq.credit.samples import at_least, proposal_at, sample_at, sample_of, task_key
from agentq.store.records import TreeRecord
from agentq.types import PreferencePair, Sample, Trajectory


def blended_values(tree: TreeRecord, alpha: float) -> list[float]:
    """`[n]`: Q = alpha * W/N + (1 - alpha) * critic_value of each node, in reward units; alpha 1 ignores the critic.

    Where the critic gave all children of a node the same value, alpha is 1 (ours).

    Raises:
        ValueError: if alpha is outside [0, 1].

    Source: Putta et al. 2024, eq. 10.
    """
    if not 0.0 <= alpha <= 1.0:
        raise ValueError(f"alpha must be in [0, 1]; got {alpha}")
    low, high = np.full(len(tree), np.inf), np.full(len(tree), -np.inf)
    np.minimum.at(low, tree.parent[1:], tree.critic_value[1:])
    np.maximum.at(high, tree.parent[1:], tree.critic_value[1:])
    weight = np.where((low < high)[tree.parent], alpha, 1.0)
    found: list[float] = (weight * tree.mean_value + (1.0 - weight) * tree.critic_value).tolist()
    return found


class WeighedPair(NamedTuple):
    """Two siblings, the one with the larger blended value first. `dropped`: why they are no pair; empty if they are."""

    chosen: int
    rejected: int
    gap: float
    dropped: str


def node_pairs(
    tree: TreeRecord, *, alpha: float, threshold: float, min_visits: int = 1, max_pairs_per_node: int = 0
) -> list[PreferencePair]:
    """Every pair of siblings whose blended values differ by at least `threshold`.

    Args:
        alpha: weight of the search relative to the critic, in [0, 1].
        threshold: smallest gap, rounded to six decimals, at least 0, in reward units; a gap of 0 never makes a pair.
        min_visits: both actions must have been executed at least this often; at least 1.
        max_pairs_per_node: number of pairs kept per node, largest gaps first; 0 keeps all.

    Returns:
        Pairs node by node; within a node the largest gap first, ties by the lower index of chosen, then of rejected.
        Two unreadable actions make no pair, since both left the page unchanged.

    Raises:
        ValueError: if an argument is out of range, or two siblings that would be a pair are the same env_action.

    Source: Putta et al. 2024, eq. 10 and Algorithm 1; the text has >= threshold (used here), the algorithm >.
    """
    found = paired_nodes(
        tree, alpha=alpha, threshold=threshold, min_visits=min_visits, max_pairs_per_node=max_pairs_per_node
    )
    return [PreferencePair((sample_at(tree, c),), (sample_at(tree, r),), gap) for c, r, gap in found]


def paired_nodes(
    tree: TreeRecord, *, alpha: float, threshold: float, min_visits: int = 1, max_pairs_per_node: int = 0
) -> list[tuple[int, int, float]]:
    """Chosen, rejected and gap of each pair of `node_pairs`. Same arguments, order and errors."""
    at_least("threshold", threshold, 0)
    at_least("min_visits", min_visits, 1)
    at_least("max_pairs_per_node", max_pairs_per_node, 0)
    found: list[tuple[float, int, int]] = []
    for ranked in _ranked(tree, alpha, (tree.visit_count >= min_visits) & ~tree.broken):
        fit = (two for two in ranked if _reaches(two[0], threshold) and _comparable(tree, *two[1:]))
        found += nsmallest(max_pairs_per_node, fit) if max_pairs_per_node else sorted(fit)
    return [(chosen, rejected, -less) for less, chosen, rejected in found]


def weighed_pairs(
    tree: TreeRecord, *, alpha: float, threshold: float, min_visits: int = 1, max_pairs_per_node: int = 0
) -> list[WeighedPair]:
    """The pairs of `node_pairs`, and with them every other two siblings that were tried. Same arguments and order."""
    kept = {
        (chosen, rejected)
        for chosen, rejected, _ in paired_nodes(
            tree, alpha=alpha, threshold=threshold, min_visits=min_visits, max_pairs_per_node=max_pairs_per_node
        )
    }
    visits, broken = tree.visit_count, tree.broken

    def why_not(less: float, chosen: int, rejected: int) -> str:
        if (chosen, rejected) in kept:
            return ""
        if broken[chosen] or broken[rejected]:
            return "broken by the world"
        if min(visits[chosen], visits[rejected]) < min_visits:
            return f"fewer than {min_visits} visits"
        if not _reaches(less, threshold):
            return f"gap below {threshold:g}" if less else "no gap"
        return (
            f"{max_pairs_per_node} larger gaps at this node"
            if _comparable(tree, chosen, rejected)
            else "both unreadable"
        )

    return [
        WeighedPair(chosen, rejected, abs(less), why_not(less, chosen, rejected))
        for ranked in _ranked(tree, alpha, (visits > 0) | broken)
        for less, chosen, rejected in sorted(ranked)
    ]


def _reaches(less: float, threshold: float) -> bool:
    """Whether a gap, given as minus it, is at least the threshold to six decimals, and not 0."""
    return less < 0 <= round(-less - threshold, 6)


def _ranked(tree: TreeRecord, alpha: float, usable: np.ndarray) -> Iterator[Iterator[tuple[float, int, int]]]:
    """Per node with children, every two that are `usable`: minus their gap to six decimals, chosen, rejected."""
    value = blended_values(tree, alpha)
    for node in np.unique(tree.parent[1:]).tolist():
        some = [c for c in tree.children(node).tolist() if usable[c]]
        ranked = (sorted(two, key=lambda c: -value[c]) for two in combinations(some, 2))
        yield ((round(value[rejected] - value[chosen], 6), chosen, rejected) for chosen, rejected in ranked)


def inspection_pairs(tree: TreeRecord) -> list[PreferencePair]:
    """The expert's action over the agent's at each state of a demonstration: StepAgent's implicit reward.

    Equal actions make no pair (ours), since it would push the same action up and down.

    Args:
        tree: made by `searching.demonstrate.inspect`: nodes 1, 3, .. are the expert's, each followed by the agent's.
            The expert's log-probabilities are unknown (NaN), so a learner must recompute the reference.

    Returns:
        Pairs in the order of the demonstration, each with gap 1.

    Source: Deng et al. 2024, arXiv:2411.03817 (StepAgent).
    """
    found = []
    for expert in range(1, len(tree), 2):
        first, second = (proposal_at(tree, node).action.env_action for node in (expert, expert + 1))
        if not same_action(first, second):
            found.append(PreferencePair((sample_at(tree, expert),), (sample_at(tree, expert + 1),), 1.0))
    return found


def trajectory_pairs(
    trajectories: Sequence[Trajectory], *, threshold: float = 0.0, max_pairs: int = 0, seed: int = 0
) -> list[PreferencePair]:
    """Each success of one task against each of its failures: outcome-supervised DPO.

    Every step of an episode counts, including unreadable actions: the sum over steps is the episode's log-probability.

    Args:
        trajectories: episodes of one task.
        threshold: smallest difference of returns, at least 0; a difference of 0 never makes a pair.
        max_pairs: number of pairs kept, largest differences first, ties drawn by `seed`; 0 keeps all.

    Raises:
        ValueError: if an argument is out of range or the episodes are of several tasks.

    Source: Putta et al. 2024, eq. 6.
    """
    at_least("threshold", threshold, 0)
    at_least("max_pairs", max_pairs, 0)
    tasks = {task_key(t.task) for t in trajectories}
    if len(tasks) > 1:
        raise ValueError(f"trajectories must be of one task; got {sorted(tasks)}")
    stepped = [t for t in trajectories if t.steps and not t.broken]
    pairs = []
    for chosen in (t for t in stepped if t.success):
        for rejected in (t for t in stepped if not t.success):
            gap = chosen.return_ - rejected.return_
            if gap > 0 and gap >= threshold:
                pairs.append(PreferencePair(_samples(chosen), _samples(rejected), gap))
    random.Random(seed).shuffle(pairs)
    pairs.sort(key=lambda pair: -pair.gap)  # stable: equal gaps stay in drawn order
    return pairs[: max_pairs or None]


def _samples(trajectory: Trajectory) -> tuple[Sample, ...]:
    return tuple(sample_of(step.proposal) for step in trajectory.steps)


def _comparable(tree: TreeRecord, chosen: int, rejected: int) -> bool:
    first, second = (proposal_at(tree, node).action.env_action for node in (chosen, rejected))
    if first == second and first is not None:
        raise ValueError(f"siblings must be different env_actions; got '{first}' at nodes {chosen} and {rejected}")
    return first != second
