"""Preference pairs against their definition, and how much they may cost."""

from __future__ import annotations

import time
from itertools import combinations

import numpy as np
import pytest

from agentq._core import Forest
from tests.reference.builders import fan

LEVELS = {
    "few": [0.0, 0.25, 0.5, 1.0],
    "rounded": [1e20, -1e20, 1.0, 2.0, 3.0, 0.0],  # 1e20 - 1 == 1e20 - 2: equal gaps of unequal values
    "many": np.linspace(-1, 1, 997).tolist(),
}


def valued(values: np.ndarray) -> Forest:
    forest = Forest()
    forest.add_trees(1)
    tickets = forest.ask([0])[0]
    forest.expand(tickets, [len(values)], values)
    forest.cancel(tickets)
    return forest


def by_definition(forest: Forest, threshold: float, most: int) -> list[tuple[int, int, float]]:
    first = int(forest.children(forest.root(0))[0])
    values = forest.table(0)["critic_value"][1:].astype(float).tolist()
    found = []
    for a, b in combinations(range(len(values)), 2):
        chosen, rejected = (a, b) if values[a] > values[b] else (b, a)
        gap = values[chosen] - values[rejected]
        if gap > 0 and gap >= threshold:
            found.append((first + chosen, first + rejected, gap))
    found.sort(key=lambda pair: (-pair[2], pair[0], pair[1]))
    return found[:most] if most else found


@pytest.mark.parametrize("levels", LEVELS.values(), ids=LEVELS)
@pytest.mark.parametrize("width", [2, 3, 7, 40])
def test_pairs_are_the_first_of_all_pairs_in_order(levels, width):
    rng = np.random.default_rng(width)
    for _ in range(12):
        forest = valued(rng.choice(levels, width))
        for threshold in (0.0, 0.25, 0.5, 1e20):
            every = by_definition(forest, threshold, 0)
            for most in {0, 1, 2, 5, 17, len(every) // 2, max(0, len(every) - 1), len(every), 10**6}:
                node, *columns = forest.pairs(alpha=0.0, threshold=threshold, min_visits=0, max_pairs_per_node=most)
                assert (node == forest.root(0)).all()
                assert list(zip(*(c.tolist() for c in columns), strict=True)) == (every[:most] if most else every)


def test_pairs_of_a_wide_node_take_the_time_of_its_children():
    rng = np.random.default_rng(0)
    forest = valued(rng.random(16_000, np.float32))
    start = time.process_time()
    _, chosen, rejected, gap = forest.pairs(alpha=0.0, threshold=0.0, min_visits=0, max_pairs_per_node=4)
    assert time.process_time() - start < 1  # 128 million pairs took two minutes
    values = forest.table(0)["critic_value"][1:]
    order = np.argsort(values)
    first = int(forest.children(forest.root(0))[0])
    assert (chosen[0] - first, rejected[0] - first) == (order[-1], order[0])
    assert gap.tolist() == sorted(gap.tolist(), reverse=True) and len(gap) == 4


@pytest.mark.parametrize("most", [0, 1, 4])
def test_pairs_of_equal_children_are_none_at_once(most):
    forest = valued(np.full(65_535, 0.5, np.float32))
    start = time.process_time()
    assert len(forest.pairs(alpha=0.0, threshold=0.0, min_visits=0, max_pairs_per_node=most)[0]) == 0
    assert time.process_time() - start < 1


def test_pairs_with_a_quarter_of_a_billion_ties_take_the_lowest_ids():
    values = np.zeros(32_000, np.float32)
    values[1::2] = 1
    forest = valued(values)
    first = int(forest.children(forest.root(0))[0])
    start = time.process_time()
    _, chosen, rejected, gap = forest.pairs(alpha=0.0, threshold=0.5, min_visits=0, max_pairs_per_node=16_002)
    assert time.process_time() - start < 1
    assert (chosen[:16_000] == first + 1).all() and (chosen[16_000:] == first + 3).all()
    assert rejected.tolist() == [*range(first, first + 32_000, 2), first, first + 2]
    assert (gap == 1).all()


def test_pairs_refuses_more_than_a_call_may_return():
    forest = valued(np.linspace(0, 1, 65_535, dtype=np.float32))
    query = {"alpha": 0.0, "min_visits": 0}
    message = (
        r"a call must return at most 67108864 pairs; got more at node \d+, which has \d{10}: give max_pairs_per_node"
    )
    for most in (0, 2**26 + 1):
        with pytest.raises(ValueError, match=message):
            forest.pairs(**query, threshold=0.0, max_pairs_per_node=most)
    assert len(forest.pairs(**query, threshold=1.0)[0]) == 1


def test_pairs_passes_over_values_that_are_no_number():
    forest = fan(3, c_exp=100.0)
    for value in (1.7e308, 1.7e308, 0.0, -1.7e308):
        for ticket in forest.ask([0], 3)[0].tolist():
            forest.tell([ticket], [value])
    _, _, _, gap = forest.pairs(alpha=0.0, threshold=0.0, min_visits=1)  # 0 * inf
    assert not np.isnan(gap).any()
