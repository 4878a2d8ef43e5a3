"""Advantages from trees: by hand, against walks of every path, and on the forest's own columns."""

from __future__ import annotations

import random
from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentq._core import Forest
from agentq.credit.advantages import leave_one_out
from agentq.credit.trees import node_means, rollout_sums, tree_grpo, tree_po, tree_rl

#     0                 8
#   1   2   7         9
#  3 4   5            (one rollout)
#         6 6
PARENT = [-1, 0, 0, 1, 1, 2, 5, 0, -1, 8]
ENDS = [3, 4, 6, 6, 9]
RETURNS = [1.0, 0.0, 1.0, 0.5, 7.0]


def near(*values: float) -> object:
    return pytest.approx(values, abs=1e-6)


@st.composite
def forests(draw: st.DrawFn) -> tuple[list[int], list[int], list[float]]:
    n = draw(st.integers(1, 10))
    parent = [-1] + [draw(st.integers(-1, i - 1)) for i in range(1, n)]
    ends = draw(st.lists(st.integers(0, n - 1), max_size=8))
    return parent, ends, [draw(st.sampled_from((0.0, 0.5, 1.0))) for _ in ends]


def path(parent: list[int], node: int) -> list[int]:
    """`node` .. root."""
    return [node, *path(parent, parent[node])] if node >= 0 else []


def test_rollout_sums_by_hand() -> None:
    count, total = rollout_sums(PARENT, ENDS, RETURNS)
    assert count.tolist() == [4, 2, 2, 1, 1, 2, 2, 0, 1, 1]
    assert total.tolist() == [2.5, 1, 1.5, 1, 0, 1.5, 1.5, 0, 7, 7]
    assert node_means(count, total).tolist() == [0.625, 0.5, 0.75, 1, 0, 0.75, 0.75, 0, 7, 7]


def test_rollout_sums_are_the_forests() -> None:
    rng = random.Random(5)
    forest = Forest(exhaust=False)
    forest.add_trees(1)
    ends, returns = [], []
    for _ in range(60):
        ticket, node = forest.ask_one(0)
        if rng.random() < 0.6:
            forest.expand_one(ticket, rng.randint(1, 3))
        ends.append(node)
        returns.append(rng.choice([0.0, 0.5, 1.0]))
        forest.tell_one(ticket, returns[-1])
    table = forest.table(0)
    place = {node: i for i, node in enumerate(table["id"].tolist())}
    count, total = rollout_sums(table["parent"], [place[node] for node in ends], returns)
    assert len(place) > 50
    assert count.tolist() == table["visit_count"].tolist()
    assert total.tolist() == table["value_sum"].tolist()


def test_tree_grpo_golden() -> None:
    # inter: mean .75, std .5: .5, -1.5, .5, .5. intra: +-.5 / sqrt(.5); the second tree has no spread
    found = tree_grpo([1, 0, 1, 1], [0, 0, 1, 1], [0] * 4)
    assert found.tolist() == pytest.approx([1.2071, -2.2071, 0.5, 0.5], abs=1e-4)


def test_tree_grpo_without_std_by_hand() -> None:
    # tree 0 occurs in both groups; the third has one rollout and gets 0, not 7
    found = tree_grpo([1, 0, 1, 0.5, 7], [0, 0, 1, 0, 0], [0, 0, 0, 1, 2], ddof=None)
    assert found.tolist() == near(1 / 3 + 1 / 2, -2 / 3 - 1 / 2, 1 / 3, 0, 0)
    # 1 / (1 + 1) of both
    assert tree_grpo([1, 3], [0, 0], [0, 0], ddof=0, epsilon=1.0).tolist() == [-1, 1]


def test_tree_rl_by_hand() -> None:
    # V: .625 | .5, .75, unvisited | 1, 0, .75 | .75;  node 3: (1 - .625) + (1 - .5); node 4: -.625 - .5
    # nodes 1 and 2: twice -+.125 over sqrt(2); nodes 5 and 6: .125 + 0 over sqrt(2). The second tree: one rollout, 0
    found = tree_rl(PARENT, *rollout_sums(PARENT, ENDS, RETURNS))
    shared = 0.125 / sqrt(2)
    assert found.tolist() == near(0, -2 * shared, 2 * shared, 0.875, -1.125, shared, shared, 0, 0, 0)


def test_tree_rl_of_equal_returns_is_zero_though_their_means_are_rounded() -> None:
    parent = [-1, 0, 0, 0]
    count, total = rollout_sums(parent, [1, 2, 3], [0.7] * 3)
    assert node_means(count, total)[0] < 0.7  # 2.0999999999999996 / 3
    assert not tree_rl(parent, count, total).any()


def test_tree_rl_of_leave_one_out_advantages_is_k_over_k_minus_1_of_it() -> None:
    parent, ends, returns = PARENT[:8], ENDS[:4], RETURNS[:4]
    centred = leave_one_out(returns, [0] * 4)
    plain = tree_rl(parent, *rollout_sums(parent, ends, returns))
    np.testing.assert_allclose(tree_rl(parent, *rollout_sums(parent, ends, centred)), 4 / 3 * plain, atol=1e-12)


def test_tree_po_golden() -> None:
    # root: .25, -.75, .25, .25 by 4; subtrees: .5, -.5, 0, 0 by 2; (4 * .25 + 2 * .5) / 6 = 1/3
    parent, ends, returns = [-1, 0, 0, 1, 1, 2, 2], [3, 4, 5, 6], [1, 0, 1, 1]
    sums = rollout_sums(parent, ends, returns)
    assert tree_po(parent, *sums, ends, returns).tolist() == near(1 / 3, -2 / 3, 1 / 6, 1 / 6)
    # (.25 + .5) / 2
    assert tree_po(parent, *sums, ends, returns, weighting="equal").tolist() == near(0.375, -0.625, 0.125, 0.125)


def test_tree_po_of_a_lone_rollout_is_zero() -> None:
    # two rollouts that share nodes 2, 5, 6: less .625 by 4 and .75 by 2, three times; the second tree has one rollout
    found = tree_po(PARENT, *rollout_sums(PARENT, ENDS, RETURNS), ENDS, RETURNS)
    assert found[2:].tolist() == near(1 - 7 / 10, 0.5 - 7 / 10, 0)


@given(forests())
def test_tree_columns_equal_a_walk_of_every_path(case: tuple[list[int], list[int], list[float]]) -> None:
    parent, ends, returns = case
    count, total = rollout_sums(parent, ends, returns)
    below: list[list[float]] = [[] for _ in parent]
    for end, value in zip(ends, returns, strict=True):
        for node in path(parent, end):
            below[node].append(value)
    assert count.tolist() == [len(x) for x in below]
    assert total.tolist() == [sum(x) for x in below]
    mean = [np.mean(x) if x else 0.0 for x in below]
    for weighting in ("size", "equal"):
        want = []
        for end, value in zip(ends, returns, strict=True):
            groups = [node for node in path(parent, end) if count[node] > 1]
            weights = [count[node] if weighting == "size" else 1 for node in groups]
            terms = [w * (value - mean[node]) for w, node in zip(weights, groups, strict=True)]
            want.append(sum(terms) / sum(weights) if groups else 0.0)
        found = tree_po(parent, count, total, ends, returns, weighting=weighting)  # type: ignore[arg-type]
        np.testing.assert_allclose(found, want, atol=1e-9)
    found = tree_rl(parent, count, total)
    for node, above in enumerate(parent):
        root = path(parent, node)[-1]
        n = max(count[node], 1)
        want_rl = (2 * mean[node] - mean[root] - mean[above]) / sqrt(n) if above >= 0 and count[node] else 0.0
        assert found[node] == pytest.approx(want_rl, abs=1e-9)


def test_node_means_of_advantages_are_what_a_shared_segment_gets() -> None:
    count, total = rollout_sums(PARENT, ENDS, [0.3, -0.3, 0.6, -0.2, 0])
    assert node_means(count, total).tolist() == near(0.1, 0, 0.2, 0.3, -0.3, 0.2, 0.2, 0, 0, 0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rollout_sums([-1, 1], [], []), "a parent must come before its children; got 1 as that of node 1"),
        (lambda: rollout_sums([-2], [], []), "a parent must come before its children; got -2 as that of node 0"),
        (lambda: rollout_sums([-1], [1], [0]), r"nodes must be in \[0, 1\); got 1 .. 1"),
        (lambda: rollout_sums([-1], [-1], [0]), r"nodes must be in \[0, 1\); got -1 .. -1"),
        (lambda: rollout_sums([-1], [0], [np.nan]), "returns must be finite; got nan"),
        (lambda: rollout_sums([-1], [0], [1, 2]), r"nodes and returns must both be \[R\]; got \[1\] and \[2\]"),
        (lambda: node_means([1], [1, 2]), r"num_returns and sum_returns must both be \[n\]; got \[1\] and \[2\]"),
        (lambda: tree_rl([-1, 0], [1, 2], [1, 2]), r"num_returns of a node must be at most its parent's \(1\); got 2"),
        (lambda: tree_rl([-1, 0], [1], [1]), r"num_returns must have one entry per node \(2\); got 1"),
        (lambda: tree_po([-1, 0], [1], [1], [0], [1]), r"num_returns must have one entry per node \(2\); got 1"),
        (
            lambda: tree_po([-1], [1], [1], [0], [1], weighting="sum"),  # type: ignore[arg-type]
            "weighting must be 'size' or 'equal'; got 'sum'",
        ),
    ],
)
def test_tree_credit_refuses_wrong_arguments(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]
