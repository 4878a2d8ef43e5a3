"""Accuracy of a critic, compared with the expert's choice and with values that search found. Pure functions over
records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from agentq.evaluation.stats import wilson
from agentq.store.records import TreeRecord


@dataclass(frozen=True, slots=True)
class CriticAccuracy:
    """`hits` of `n` with a 95 % Wilson interval; `chance` is the expected accuracy of a uniform choice, in [0, 1]."""

    hits: int
    n: int
    low: float
    high: float
    chance: float

    @property
    def accuracy(self) -> float:
        """Share of hits, in [0, 1]."""
        return self.hits / self.n

    @classmethod
    def of(cls, hits: int, n: int, chance: float) -> CriticAccuracy:
        """Raises ValueError if n is 0."""
        return cls(hits, n, *wilson(hits, n), chance)


def choice_accuracy(values: Sequence[Sequence[float]], best: Sequence[int]) -> CriticAccuracy:
    """How often the proposal known to be best has the highest critic_value; of equal ones the first counts.

    Args:
        values: `[n][K_i]` critic values of the proposals of each node, K_i at least 2.
        best: `[n]` index of the best proposal.
    """
    hits = sum(max(range(len(v)), key=lambda i: v[i]) == b for v, b in zip(values, best, strict=True))
    return CriticAccuracy.of(hits, len(best), sum(1 / len(v) for v in values) / max(1, len(values)))


def unranked(trees: Iterable[TreeRecord]) -> float:
    """Share of the nodes with two or more children of which the critic ranked none: all have one value."""
    tied = n = 0
    for tree in trees:
        for node in np.unique(tree.parent[1:]).tolist():
            values = tree.critic_value[tree.children(node)]
            n += len(values) > 1
            tied += len(values) > 1 and bool((values == values[0]).all())
    return tied / max(1, n)


def concordance(trees: Iterable[TreeRecord]) -> CriticAccuracy | None:
    """How often the critic orders sibling pairs as W / N does, over visited pairs with different W / N.

    Pairs with equal critic values (nodes that were not ranked) are left out; chance is 1/2. None without any pair. The
    interval is too narrow: it takes the pairs as independent, which those of one tree are not.
    """
    hits = n = 0
    for tree in trees:
        mean, usable = tree.mean_value, (tree.visit_count > 0) & ~tree.broken
        for node in range(len(tree)):
            visited = [int(c) for c in tree.children(node) if usable[c]]
            for i, a in enumerate(visited):
                for b in visited[i + 1 :]:
                    by_search = mean[a] - mean[b]
                    by_critic = float(tree.critic_value[a]) - float(tree.critic_value[b])
                    if by_search != 0 and by_critic != 0:
                        n += 1
                        hits += (by_search > 0) == (by_critic > 0)
    return CriticAccuracy.of(hits, n, 0.5) if n else None
