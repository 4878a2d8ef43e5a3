"""The forest by hand: golden vectors, backup, collisions, exhaustion, pairs and views."""

from __future__ import annotations

import math
import threading

import numpy as np
import pytest

from agentq._core import ALL_EXHAUSTED, BLOCKED, EXHAUSTED, NO_NODE, TERMINAL, Forest, ucb1_score
from tests.reference.builders import columns, fan, visit


def test_ucb1_score_matches_the_golden_row():
    # c = 1, N(h) = 4: Q + sqrt(ln 4 / (1 + N)); computed with plain Python
    row = [ucb1_score(q, 4, n, 1.0) for q, n in ((0.5, 2), (0.0, 1), (1.0, 1), (0.0, 0))]
    np.testing.assert_allclose(row, [1.179778, 0.832555, 1.832555, 1.177410], atol=1e-6)


@pytest.mark.parametrize("visits", [0, 1, 2, 16383, 16384, 16385, 10**9])
def test_ucb1_score_is_the_formula_also_beyond_its_table(visits):
    want = 0.5 + 1.25 * math.sqrt(math.log(max(1, visits))) * (1 / math.sqrt(1 + visits))
    assert ucb1_score(0.5, visits, visits, 1.25) == want


def test_one_leaf_at_a_time_is_a_batch_of_one():
    one, batch = Forest(c_exp=1.5), Forest(c_exp=1.5)
    one.add_trees(2)
    batch.add_trees(2)
    for i in range(200):
        node = one.ask_one(i % 2)
        assert [node] == batch.ask([i % 2])[1].tolist()
        if one.child_count[node] == 0 and one.depth[node] < 4:
            width = 1 + i % 3
            first = batch.expand([node], [width], [0.0] * width, [0.0] * width)
            assert one.expand_one(node, width) == first[0]
        value = (node * 37 % 11) / 11
        one.tell_one(node, value)
        batch.tell([node], [value])
    assert columns(one) == columns(batch)


def test_one_leaf_at_a_time_says_why_there_is_none():
    forest = fan(1)
    assert forest.ask_one(0) == 1
    assert forest.ask_one(0) == -BLOCKED
    forest.set_terminal([1])
    forest.tell_one(1, 1.0)
    assert forest.ask_one(0) == -ALL_EXHAUSTED
    for call, message in (
        (lambda: forest.ask_one(1), "no tree 1; there are 1"),
        (lambda: forest.ask_one(2**40), "no tree 1099511627776; there are 1"),
        (lambda: forest.tell_one(-1, 0.0), "no node -1; there are 2"),
        (lambda: forest.expand_one(9, 2), "no node 9; there are 2"),
    ):
        with pytest.raises(IndexError, match=message):
            call()
    with pytest.raises(ValueError, match="widths must be at least 1; got 0"):
        fan(2).expand_one(1, 0)
    with pytest.raises(ValueError, match="a rollout must be pending at node 1"):
        forest.tell_one(1, 0.5)


def test_ucb1_score_has_no_bonus_before_the_second_visit():
    assert ucb1_score(0.25, 0, 0, 9.0) == ucb1_score(0.25, 1, 0, 9.0) == 0.25


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((float("nan"), 1, 1, 1.0), "mean_value must be finite; got nan"),
        ((0.0, -1, 1, 1.0), "node_visits must be at least 0; got -1"),
        ((0.0, 1, -1, 1.0), "edge_visits must be at least 0; got -1"),
        ((0.0, 1, 1, -1.0), "c_exp must be finite and at least 0; got -1"),
    ],
)
def test_ucb1_score_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        ucb1_score(*arguments)


def test_tell_backs_up_along_the_path():
    forest = Forest()
    forest.add_trees(2)
    forest.ask([1])
    (first,) = forest.expand([1], [2], [1, 0], [-0.5, -1.5])
    forest.extend([first + 1])
    assert forest.in_flight.tolist() == [0, 1, 0, 1]
    forest.tell([first + 1], [0.75])
    assert forest.visit_count.tolist() == [0, 1, 0, 1]
    assert forest.value_sum.tolist() == forest.mean_value.tolist() == [0, 0.75, 0, 0.75]
    assert forest.in_flight.tolist() == [0, 0, 0, 0]
    assert forest.parent.tolist() == [NO_NODE, NO_NODE, 1, 1]
    assert forest.tree.tolist() == [0, 1, 1, 1]
    assert forest.first_child.tolist() == [NO_NODE, 2, NO_NODE, NO_NODE]
    assert forest.logp.tolist() == [0, 0, -0.5, -1.5]
    assert forest.path(3).tolist() == [1, 3]
    assert forest.root(1) == 1


def test_expand_spreads_the_values_node_after_node():
    forest = Forest()
    forest.add_trees(2)
    first = forest.expand([1, 0], [1, 2], [0.5, 1.0, 0.0], [-1, -2, -3])
    assert first.tolist() == [2, 3]
    assert forest.parent.tolist()[2:] == [1, 0, 0]
    assert forest.critic_value.tolist()[2:] == [0.5, 1.0, 0.0]
    assert forest.logp.tolist()[2:] == [-1, -2, -3]
    assert forest.depth.tolist() == [0, 0, 1, 1, 1]


def test_ask_counts_a_rollout_in_flight_as_a_visit_worth_nothing():
    # Two children, c_exp 0.1, child 1 told 1 once: Q = 1 against 0. With one rollout in flight its Q is 1/2, still
    # ahead, so the second ask meets it again: a collision, and the batch ends.
    forest = fan(2, c_exp=0.1)
    visit(forest, 1, 1.0)
    _, leaves, depths, status = forest.ask([0], 2)
    assert leaves.tolist() == [1]
    assert depths.tolist() == [1]
    assert status.tolist() == [BLOCKED]
    assert forest.in_flight.tolist() == [1, 1, 0]
    # c_exp 2: 1/2 + 2 sqrt(ln 2 / 3) = 1.461 is behind 2 sqrt(ln 2) = 1.665 of the fresh child
    forest = fan(2, c_exp=2.0)
    visit(forest, 1, 1.0)
    assert forest.ask([0], 2)[1].tolist() == [1, 2]


def test_cancel_restores_every_number():
    forest = fan(3)
    visit(forest, 1, 0.1)
    before = columns(forest)
    _, leaves, _, _ = forest.ask([0], 3)
    assert columns(forest) != before
    forest.cancel(leaves)
    assert columns(forest) == before


def test_exhaustion_climbs_to_the_root():
    forest = fan(2)
    seen = []
    for _ in range(2):
        _, (leaf,), _, _ = forest.ask([0])
        forest.set_terminal([leaf])
        assert not forest.flags[leaf] & EXHAUSTED
        forest.tell([leaf], [1.0])
        assert forest.flags[leaf] == TERMINAL | EXHAUSTED
        seen.append(leaf)
    assert seen == [1, 2]  # a success does not draw selection back to a node with nothing left to learn
    assert forest.flags[0] == EXHAUSTED
    tree, leaf, _, status = forest.ask([0, 0], 5)
    assert len(tree) == len(leaf) == 0
    assert status.tolist() == [ALL_EXHAUSTED, ALL_EXHAUSTED]
    assert forest.in_flight.tolist() == [0, 0, 0]


def test_terminal_leaf_is_asked_again_without_exhaust():
    forest = fan(2, exhaust=False)
    forest.set_terminal([1])
    for _ in range(3):
        assert forest.ask([0])[1].tolist() == [1]
        forest.tell([1], [1.0])
    assert forest.visit_count.tolist() == [3, 3, 0]
    assert forest.flags.tolist() == [0, TERMINAL, 0]


def test_unvisited_first_tries_every_child_once():
    forest = fan(3, unvisited="first", c_exp=0.0)
    order = []
    for _ in range(4):
        _, (leaf,), _, _ = forest.ask([0])
        forest.tell([leaf], [1.0 if leaf == 2 else 0.0])
        order.append(int(leaf))
    assert order == [1, 2, 3, 2]


def test_extend_moves_a_chain_in_one_call():
    forest = Forest()
    forest.add_trees(1)
    forest.ask([0])
    forest.expand([0], [1], [1], [0])
    forest.expand([1], [1], [1], [0])
    forest.extend([1, 2])
    assert forest.in_flight.tolist() == [1, 1, 1]
    with pytest.raises(ValueError, match="a rollout must be pending at node 1 to tell it"):
        forest.tell([1], [0.0])
    forest.tell([2], [1.0])
    assert forest.visit_count.tolist() == [1, 1, 1]


def test_extend_that_runs_out_of_rollouts_takes_back_the_first():
    forest = Forest()
    forest.add_trees(1)
    forest.ask([0])
    forest.expand([0], [2], [1, 0], [0, 0])
    with pytest.raises(ValueError, match="a rollout must be pending at node 0, the parent of each node to extend to"):
        forest.extend([1, 2])
    assert forest.in_flight.tolist() == [1, 0, 0]
    forest.extend([2])  # the rollout is back where it was
    forest.tell([2], [1.0])
    assert forest.visit_count.tolist() == [1, 0, 1]


def mixed_fan() -> Forest:
    """Mean values 1, 0, 0.5 and critic values 0.5, 1, 0 in nodes 1, 2, 3: blended .75, .5, .25 at alpha 0.5."""
    forest = Forest(unvisited="first")
    forest.add_trees(1)
    forest.expand([0], [3], [0.5, 1.0, 0.0], [0.0] * 3)
    for value in (1.0, 0.0, 0.5):
        _, leaf, _, _ = forest.ask([0])
        forest.tell(leaf, [value])
    return forest


def rows(found) -> list[tuple[float, ...]]:
    return list(zip(*(column.tolist() for column in found), strict=True))


def test_pairs_matches_the_golden_mix():
    assert rows(mixed_fan().pairs(alpha=0.5, threshold=0.3)) == [(0, 1, 3, 0.5)]


def test_pairs_sorts_by_gap_then_index_and_caps():
    forest = mixed_fan()
    every = [(0, 1, 3, 0.5), (0, 1, 2, 0.25), (0, 2, 3, 0.25)]
    assert rows(forest.pairs(alpha=0.5, threshold=0.25)) == every  # a gap equal to the threshold counts
    assert rows(forest.pairs(alpha=0.5, threshold=0.25, max_pairs_per_node=2)) == every[:2]
    assert rows(forest.pairs(alpha=1.0, threshold=0.6)) == [(0, 1, 2, 1.0)]
    assert rows(forest.pairs(alpha=0.0, threshold=0.6)) == [(0, 2, 3, 1.0)]


def test_pairs_leaves_out_ties_the_unvisited_and_other_trees():
    forest = fan(3)
    assert rows(forest.pairs(alpha=1.0, threshold=0.0, min_visits=0)) == []  # all means 0: no gap, no pair
    assert rows(forest.pairs(alpha=0.0, threshold=1.0)) == []  # nothing visited
    assert rows(forest.pairs(alpha=0.0, threshold=1.0, min_visits=0)) == [(0, 1, 3, 1.0)]
    forest.add_trees(1)
    assert rows(forest.pairs(alpha=0.0, threshold=1.0, min_visits=0, trees=[1])) == []
    assert rows(forest.pairs(alpha=0.0, threshold=1.0, min_visits=0, trees=[1, 0, 0])) == [(0, 1, 3, 1.0)]


def test_columns_are_read_only_views_that_survive_growth_and_the_forest():
    forest = fan(3)
    visits = forest.visit_count
    with pytest.raises(ValueError, match="read-only"):
        visits[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        visits.flags.writeable = True
    forest.ask([0])
    forest.tell([1], [1.0])
    assert visits.tolist() == [1, 1, 0, 0]  # no copy: the view sees the tell
    forest.add_trees(100_000)
    assert len(visits) == 4
    assert visits.tolist() == [1, 1, 0, 0]
    assert forest.visit_count.tolist()[:4] == [1, 1, 0, 0]
    del forest
    assert visits.tolist() == [1, 1, 0, 0]


def test_arrays_of_any_whole_number_type_are_ids():
    for dtype in (np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64):
        forest = Forest()
        forest.add_trees(2)
        assert forest.ask(np.array([1], dtype=dtype))[1].tolist() == [1]
        forest.tell(np.array([9, 1, 9], dtype=dtype)[1:2], np.array([0.5], dtype=np.float32))
        assert forest.value_sum.tolist() == [0, 0.5]


def test_two_threads_on_one_forest_take_turns():
    forest = Forest()
    forest.add_trees(64)

    def work(trees: list[int]) -> None:
        for _ in range(60):
            _, leaves, _, _ = forest.ask(trees)
            forest.expand(leaves, [2] * len(leaves), [1, 0] * len(leaves), [0, 0] * len(leaves))
            forest.tell(leaves, [0.5] * len(leaves))
            forest.visit_count.sum()

    threads = [threading.Thread(target=work, args=(list(range(k, 64, 4)),)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert forest.num_nodes == 64 + 64 * 60 * 2
    assert forest.visit_count[:64].tolist() == [60] * 64
    assert not forest.in_flight.any()
