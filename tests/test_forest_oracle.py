"""The compiled forest visits the leaves of its slow Python twin, in the same order, over a grid with tied values."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from agentq._core import Forest
from tests.reference.mcts import ReferenceForest

CRITIC = (1.0, 0.5, 0.25, 0.75, 0.0)
GRID = list(
    product((0.0, 0.5, 1.0, 3.0), (1, 2, 5), (1, 3), (1, 2, 4), ("formula", "first"), (True, False))
)  # c_exp, width, depth cap, leaves a call, unvisited, exhaust


def mixed(*numbers: int) -> int:
    """A fixed, well mixed hash below 2**32 of small whole numbers (the finaliser of MurmurHash3)."""
    h = 1
    for number in numbers:
        h = (h + (number + 1) * 0x9E3779B9) % 2**32
        for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
            h = (h ^ h >> shift) * factor % 2**32
        h ^= h >> 16
    return h


def coarse_return(node: int) -> float:
    """0, 0.5 or 1: few values, many ties."""
    return mixed(node, 7) % 3 / 2


def assert_same_columns(forest: Forest, reference: ReferenceForest) -> None:
    for name, expected in reference.columns().items():
        np.testing.assert_array_equal(getattr(forest, name), expected, err_msg=name)


@pytest.mark.parametrize(("c_exp", "width", "depth_cap", "n", "unvisited", "exhaust"), GRID)
def test_forest_visits_the_leaves_of_the_reference(c_exp, width, depth_cap, n, unvisited, exhaust):
    pair = (
        Forest(c_exp=c_exp, unvisited=unvisited, exhaust=exhaust),
        ReferenceForest(c_exp=c_exp, unvisited=unvisited, exhaust=exhaust),
    )
    trees = [0, 1]
    for forest in pair:
        forest.add_trees(2)
    for round_ in range(14):
        asked = [forest.ask(trees, n) for forest in pair]
        for ours, theirs in zip(*asked, strict=True):
            np.testing.assert_array_equal(ours, theirs)
        _, leaves, depths, _ = asked[0]
        told, dropped = answer(pair, leaves, depths, width, depth_cap, round_)
        for forest in pair:
            forest.tell(told, [coarse_return(node) for node in told])
            forest.cancel(dropped)
        assert_same_columns(*pair)
    found = pair[0].pairs(alpha=0.5, threshold=0.25, max_pairs_per_node=4)
    expected = pair[1].pairs(alpha=0.5, threshold=0.25, max_pairs_per_node=4)
    assert list(zip(*(column.tolist() for column in found), strict=True)) == expected


def answer(pair, leaves, depths, width, depth_cap, round_) -> tuple[list[int], list[int]]:
    """What a caller does with leaves: cancels some, ends episodes at the depth cap, expands and goes deeper elsewhere.

    Returns the nodes to tell, last asked first, and those to cancel.
    """
    told, dropped = [], []
    for leaf, depth in zip(leaves.tolist(), depths.tolist(), strict=True):
        if mixed(round_, leaf) % 5 == 0:
            dropped.append(leaf)
            continue
        if depth == depth_cap:
            for forest in pair:
                forest.set_terminal([leaf])
            told.append(leaf)
            continue
        critic = list(CRITIC[:width])
        first = {int(forest.expand([leaf], [width], critic, [-0.5] * width)[0]) for forest in pair}
        (child,) = first
        if mixed(leaf, round_) % 2:
            for forest in pair:
                forest.extend([child])
            told.append(child)
        else:
            told.append(leaf)
    return told[::-1], dropped


def test_forest_takes_the_path_worked_by_hand():
    # One node, three children, c_exp 1, returns by child: 0 for the first, 1 for the second, 0.5 for the third.
    # started (0,0,0): N(h) 0, no bonus, all tie at 0             -> child 0 (lowest index)
    # started (1,0,0): N(h) 1, ln 1 = 0, all tie at 0             -> child 1 (fewer visits beat index)
    # started (1,1,0): child 1 scores 1 + sqrt(ln2/2) = 1.589, child 2 only sqrt(ln2) = 0.833
    # child 1 keeps succeeding: 1 + sqrt(ln n/(1 + n - 1)) against sqrt(ln n) of child 2, until ln n outgrows it:
    # n = 8: 1 + sqrt(2.0794/8) = 1.5098 > sqrt(2.0794) = 1.4420; n = 9: 1 + .4941 = 1.4941 > 1.4823;
    # n = 10: 1 + sqrt(2.3026/10) = 1.4799 < 1.5174            -> child 2, the eleventh
    forest = Forest(c_exp=1.0)
    forest.add_trees(1)
    forest.expand([0], [3], [1.0, 0.5, 0.0], [0.0] * 3)
    visited = []
    for _ in range(11):
        _, (leaf,), _, _ = forest.ask([0])
        visited.append(int(leaf) - 1)
        forest.tell([leaf], [(0.0, 1.0, 0.5)[leaf - 1]])
    assert visited == [0, *[1] * 9, 2]
