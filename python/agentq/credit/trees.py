"""Advantages from search trees: plain columns in, one number per node or rollout out. Pure NumPy; knows no tokens.

A forest is `parent` `[n]`, -1 at each root, every parent before its children: the order of `Forest.table` and
`TreeRecord`. A rollout ends at a node, leaf or not, and counts at every node from there to its root. As in
`credit/advantages.py`, a row with nothing to compare it with has advantage exactly 0 (ours).
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from agentq.credit.advantages import group_relative, joint_labels, unrounded


def rollout_sums(parent: ArrayLike, nodes: ArrayLike, returns: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """(number of rollouts through each node `[n]` int64, sum of their returns `[n]` float64).

    Args:
        parent: `[n]`.
        nodes: `[R]` the node where each rollout ended.
        returns: `[R]` in reward units.

    Raises:
        ValueError: if the parents are no forest in that order, a node does not exist or a return is not finite.
    """
    above = _parents(parent)
    end, value = _rollouts(nodes, returns, len(above))
    count = np.bincount(end, minlength=len(above))
    total = np.bincount(end, value, minlength=len(above))
    for node in range(len(above) - 1, -1, -1):
        if above[node] >= 0:
            count[above[node]] += count[node]
            total[above[node]] += total[node]
    return count, total


def node_means(num_returns: ArrayLike, sum_returns: ArrayLike) -> np.ndarray:
    """`[n]`: V, the mean return of the rollouts through each node, 0 if there are none.

    Applied to advantages instead of returns, it is the advantage of a shared segment ("hard" estimation; Dong et al.
    2025, arXiv:2507.19849, ARPO).
    """
    count, total = _sums(num_returns, sum_returns)
    means: np.ndarray = np.divide(total, count, out=np.zeros_like(total), where=count > 0)
    return means


def tree_grpo(
    returns: ArrayLike, trees: ArrayLike, groups: ArrayLike, *, ddof: int | None = 1, epsilon: float = 1e-6
) -> np.ndarray:
    """`[R]`: each rollout's advantage within its task plus its advantage within its tree.

        A = group_relative(returns; group) + group_relative(returns; group, tree)

    Args:
        returns: `[R]` in reward units, one per rollout.
        trees: `[R]` labels, such as the tree's index; two groups may use the same.
        groups: `[R]` labels; all trees of one task are one group.
        ddof: as in `group_relative`; 1 is the released code's value.
        epsilon: at least 0.

    Source: Ji et al. 2025, arXiv:2509.21240 (Tree-GRPO). A tree of one rollout gets only its inter-tree part (ours).
    """
    inter = group_relative(returns, groups, ddof=ddof, epsilon=epsilon)
    intra = group_relative(returns, joint_labels(groups, trees), ddof=ddof, epsilon=epsilon)
    advantages: np.ndarray = inter + intra
    return advantages


def tree_rl(parent: ArrayLike, num_returns: ArrayLike, sum_returns: ArrayLike) -> np.ndarray:
    """`[n]`: TreeRL's process reward of the action that leads to each node.

        A = [(V - V_root) + (V - V_parent)] / sqrt(num_returns),    V = sum_returns / num_returns

    Args:
        parent: `[n]`.
        num_returns: `[n]` rollouts through each node.
        sum_returns: `[n]` sum of their returns, in reward units. Using leave-one-out advantages instead scales A by
            K/(K-1), for a root of K rollouts.

    Returns:
        The reward; 0 at roots and at nodes without rollouts.

    Raises:
        ValueError: if the parents are no forest in that order, or a node has more rollouts than its parent.

    Source: Hou et al. 2025, arXiv:2506.11902 (TreeRL). Copies of its released code divide each V by its own sqrt before
    taking the differences, and subtract a mean over tokens from V; this is the formula of the paper.
    """
    above = _parents(parent)
    count, total = _sums(num_returns, sum_returns)
    if len(count) != len(above):
        raise ValueError(f"num_returns must have one entry per node ({len(above)}); got {len(count)}")
    root = np.arange(len(above))
    for node in range(len(above)):
        if above[node] >= 0:
            root[node] = root[above[node]]
    before = np.where(above < 0, root, above)
    if (count > count[before]).any():
        node = int(np.flatnonzero(count > count[before])[0])
        raise ValueError(
            f"num_returns of a node must be at most its parent's ({count[before[node]]:g}); got {count[node]:g}"
        )
    mean = node_means(count, total)
    gain = unrounded(mean - mean[root], mean) + unrounded(mean - mean[before], mean)
    return np.where(count > 0, gain / np.sqrt(np.maximum(count, 1)), 0.0)


def tree_po(
    parent: ArrayLike,
    num_returns: ArrayLike,
    sum_returns: ArrayLike,
    nodes: ArrayLike,
    returns: ArrayLike,
    *,
    weighting: Literal["size", "equal"] = "size",
) -> np.ndarray:
    """`[R]`: each rollout minus the mean of each subgroup it belongs to: the rollouts through one node of its path.

        A = sum_u w_u * (R - V_u) / sum_u w_u,    u on the path from the root, w_u = num_returns of u, or 1

    A subgroup of one is left out. The paper then whitens the batch: `group_relative` with one label and ddof=1.

    Args:
        parent: `[n]`.
        num_returns: `[n]` rollouts through each node; with sum_returns, what `rollout_sums` gives.
        sum_returns: `[n]` sum of their returns, in reward units.
        nodes: `[R]` the node where each rollout ended.
        returns: `[R]` in reward units.
        weighting: "size", or "equal" for a plain mean over depths.

    Raises:
        ValueError: if weighting is unknown, or as `rollout_sums`.

    Source: Li et al. 2025, arXiv:2508.17445, as released. A root of one rollout gives 0 (ours; theirs: raw return).
    """
    if weighting not in ("size", "equal"):
        raise ValueError(f"weighting must be 'size' or 'equal'; got {weighting!r}")
    above = _parents(parent)
    count, total = _sums(num_returns, sum_returns)
    if len(count) != len(above):
        raise ValueError(f"num_returns must have one entry per node ({len(above)}); got {len(count)}")
    end, value = _rollouts(nodes, returns, len(above))
    weight = np.where(count > 1, count if weighting == "size" else 1.0, 0.0)
    weights, weighted = weight.copy(), weight * node_means(count, total)  # summed from the root down
    for node in range(len(above)):
        if above[node] >= 0:
            weights[node] += weights[above[node]]
            weighted[node] += weighted[above[node]]
    baseline = np.divide(weighted[end], weights[end], out=value.copy(), where=weights[end] > 0)
    advantages: np.ndarray = value - baseline
    return advantages


def _parents(parent: ArrayLike) -> np.ndarray:
    above = np.asarray(parent).astype(np.int64)
    wrong = np.flatnonzero((above < -1) | (above >= np.arange(len(above))))
    if len(wrong):
        node = int(wrong[0])
        raise ValueError(f"a parent must come before its children; got {above[node]} as that of node {node}")
    return above


def _rollouts(nodes: ArrayLike, returns: ArrayLike, n: int) -> tuple[np.ndarray, np.ndarray]:
    end, value = np.asarray(nodes, dtype=np.int64), np.asarray(returns, dtype=np.float64)
    if end.shape != value.shape or end.ndim != 1:
        raise ValueError(f"nodes and returns must both be [R]; got {list(end.shape)} and {list(value.shape)}")
    if len(end) and not (end.min() >= 0 and end.max() < n):
        raise ValueError(f"nodes must be in [0, {n}); got {end.min()} .. {end.max()}")
    if not np.isfinite(value).all():
        raise ValueError(f"returns must be finite; got {value[~np.isfinite(value)][0]}")
    return end, value


def _sums(num_returns: ArrayLike, sum_returns: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    count, total = np.asarray(num_returns, dtype=np.float64), np.asarray(sum_returns, dtype=np.float64)
    if count.shape != total.shape or count.ndim != 1:
        raise ValueError(
            f"num_returns and sum_returns must both be [n]; got {list(count.shape)} and {list(total.shape)}"
        )
    return count, total
