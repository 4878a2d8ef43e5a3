"""Nodes that are one state, and two trees laid over each other: by hand."""

from __future__ import annotations

import numpy as np
import pytest

from agentq._core import NO_NODE, TERMINAL, Forest
from tests.reference.builders import fan, state


def visit_child(forest: Forest, tree: int, rank: int, value: float, terminal: bool = False) -> int:
    """One rollout at a child of a root that has been expanded; asks until selection comes by."""
    child, cancelled = int(forest.children(forest.root(tree))[rank]), []
    while True:
        ((ticket,), (node,), *_) = forest.ask([tree])
        if node == child:
            break
        cancelled.append(ticket)
    if terminal:
        forest.set_terminal([ticket])
    forest.tell([ticket], [value])
    forest.cancel(cancelled)
    return child


def test_transpositions_select_by_the_state_and_spread_by_the_edge():
    # children 0, 1 and 2; 0 and 2 are one state. Returns: 0 gets 1.0, 1 gets 0.6. c_exp 0, so that only Q counts:
    # without states 0 (Q 1) goes first; with them Q of 0 and of 2 is 1.0 / 1, and the tie goes to 2, less visited.
    for transpositions, want in ((False, 0), (True, 2)):
        forest = fan(3, c_exp=0.0, transpositions=transpositions, exhaust=False)
        children = forest.children(forest.root(0))
        tickets, nodes, *_ = forest.ask([0], 3)
        assert nodes.tolist() == children.tolist()
        forest.tell(tickets[:2], [1.0, 0.6])
        forest.cancel(tickets[2:])
        forest.set_states(children[[0, 2]], [7, 7])
        ticket, node = forest.ask_one(0)
        assert node == children[want]
        key, started, value_sum = forest.states(0)
        assert (key.tolist(), started.tolist(), value_sum.tolist()) == ([7], [2], [1.0])  # one is in flight
        forest.tell([ticket], [0.0])
        assert [column.tolist() for column in forest.states(0)] == [[7], [2], [1.0]]
        assert forest.started[children].tolist() == ([2, 1, 0] if want == 0 else [1, 1, 1])


def test_merge_lays_equal_states_over_each_other():
    # tree 0: states 1, 2 and one unknown; tree 1: states 2, 3. Returns 1 at each, at state 2 also 0.5 in tree 1.
    forest = Forest(c_exp=10.0, squares=True, success_at=0.75, exhaust=False)
    forest.add_trees(2)
    for tree, width in ((0, 3), (1, 2)):
        tickets = forest.ask([tree])[0]
        forest.expand(tickets, [width], [tree + 0.25 * i for i in range(width)], [-1.0 - tree] * width)
        forest.cancel(tickets)
    a, b = (forest.children(forest.root(tree)) for tree in (0, 1))
    forest.set_states([*a[:2], *b], [1, 2, 2, 3])
    for rank in range(3):
        visit_child(forest, 0, rank, 1.0)
    for rank in range(2):
        visit_child(forest, 1, rank, (0.5, 1.0)[rank])
    old, new = forest.merge(0, 1)
    assert forest.trees.tolist() == [0]
    table = forest.table(0)
    assert table["visit_count"].tolist() == [5, 1, 2, 1, 1]
    assert table["value_sum"].tolist() == [4.5, 1.0, 1.5, 1.0, 1.0]
    assert table["square_sum"].tolist() == [4.25, 1.0, 1.25, 1.0, 1.0]
    assert table["successes"].tolist() == [4, 1, 1, 1, 1]
    assert table["critic_value"].tolist() == [0.0, 0.0, 0.25, 0.5, 1.25]
    assert table["logp"].tolist() == [0.0, -1.0, -1.0, -1.0, -2.0]
    assert table["state"].tolist() == [-1, 0, 1, -1, 2]
    assert [column.tolist() for column in forest.states(0)] == [[1, 2, 3], [1, 2, 1], [1.0, 1.5, 1.0]]
    where = dict(zip(old.tolist(), new.tolist(), strict=True))
    assert [where[node] for node in a.tolist()] == table["id"][1:4].tolist()
    assert [where[node] for node in b.tolist()] == table["id"][[2, 4]].tolist()


def test_merge_keeps_ends_and_goes_on():
    forest = Forest(c_exp=1.0)
    forest.add_trees(2)
    tickets = forest.ask([1])[0]
    forest.expand(tickets, [1])
    forest.cancel(tickets)
    visit_child(forest, 1, 0, 1.0, terminal=True)
    forest.merge(0, 1)
    assert forest.ask([0])[4].tolist() == [1]  # exhausted: its only path has been told to the end
    assert forest.table(0)["flags"][1] & TERMINAL
    assert forest.table(0)["own_count"].tolist() == [0, 1]


def test_merge_that_does_not_fit_changes_nothing():
    forest = Forest(max_bytes=8192)
    forest.add_trees(2)
    for tree in (0, 1):
        ticket, _ = forest.ask_one(tree)
        assert forest.expand_one(ticket, 100) != NO_NODE
        forest.cancel([ticket])
        forest.set_states(forest.children(forest.root(tree)), np.arange(100) + 50 * tree)
    before = state(forest), [[c.tolist() for c in forest.states(tree)] for tree in (0, 1)]
    with pytest.raises(MemoryError, match="old and new tree must fit max_bytes"):
        forest.merge(0, 1)
    assert before == (state(forest), [[c.tolist() for c in forest.states(tree)] for tree in (0, 1)])


def test_states_outlive_what_is_cut():
    forest = fan(2, exhaust=False)
    children = forest.children(forest.root(0)).tolist()
    forest.set_states(children, [5, 6])
    visit_child(forest, 0, 0, 1.0)
    forest.reroot(0, children[1])
    assert [column.tolist() for column in forest.states(0)] == [[5, 6], [1, 0], [1.0, 0.0]]
    assert forest.table(0)["state"].tolist() == [1]
    forest.drop([0])
    (tree,) = forest.add_trees(1).tolist()
    assert forest.states(tree)[0].size == 0
    assert forest.table(tree)["state"].tolist() == [-1]


def test_table_tells_what_was_told_at_a_node_itself():
    # a rollout ends at the root (value 1), one at child 0 (0.5), discount 0.5: W(root) = 1 + 0.25
    forest = Forest(discount=0.5, exhaust=False)
    forest.add_trees(1)
    ticket, _ = forest.ask_one(0)
    forest.expand_one(ticket, 2)
    forest.tell_one(ticket, 1.0)
    visit_child(forest, 0, 0, 0.5)
    waiting, _ = forest.ask_one(0)
    table = forest.table(0)
    assert table["own_count"].tolist() == [1, 1, 0]
    assert table["own_sum"].tolist() == [1.0, 0.5, 0.0]
    assert table["value_sum"].tolist() == [1.25, 0.5, 0.0]
    forest.cancel([waiting])


def test_merged_roots_are_the_state_that_one_of_them_is():
    forest = Forest(exhaust=False)
    forest.add_trees(2)
    forest.set_states([forest.root(1)], [9])
    for tree, value in ((0, 1.0), (1, 0.5), (1, 0.25)):
        forest.tell_one(forest.ask_one(tree)[0], value)
    forest.merge(0, 1)
    assert [column.tolist() for column in forest.states(0)] == [[9], [3], [1.75]]


def test_merge_lays_one_node_over_one_and_counts_what_ended_at_leaves():
    forest = Forest(exhaust=False)
    forest.add_trees(2)
    forest.tell_one(forest.ask_one(1)[0], 1.0)  # at the root itself, then two children that are one state
    for tree, width in ((0, 1), (1, 2)):
        tickets = forest.ask([tree])[0]
        forest.expand(tickets, [width])
        forest.set_states(forest.children(forest.root(tree)), [5] * width)
        forest.cancel(tickets)
    (leaf,) = forest.add_trees(1).tolist()
    forest.tell([forest.ask_one(leaf)[0], *forest.ask([1], 2)[0].tolist()], [0.5, 1.0, 1.0])
    forest.merge(0, 1)
    assert forest.table(0)["visit_count"].tolist() == [3, 1, 1]
    assert forest.table(0)["own_count"].tolist() == [1, 1, 1]
    forest.merge(leaf, 0)
    assert forest.table(leaf)["own_count"].tolist() == [2, 1, 1]
    assert forest.table(leaf)["own_sum"].tolist() == [1.5, 1.0, 1.0]


def test_merge_that_fails_half_way_forgets_the_states_it_met():
    forest = Forest(max_bytes=8192)
    forest.add_trees(2)
    for tree in (0, 1):
        tickets = forest.ask([tree])[0]
        forest.expand(tickets, [20])
        forest.set_states(forest.children(forest.root(tree)), np.arange(20) + 20 * tree)
        if tree == 1:
            forest.extend(tickets)
            assert forest.expand(tickets, [120])[0] != NO_NODE
        forest.cancel(tickets)
    before = state(forest), [c.tolist() for c in forest.states(0)]
    with pytest.raises(MemoryError):
        forest.merge(0, 1)
    assert before == (state(forest), [c.tolist() for c in forest.states(0)])


def test_saying_a_state_again_changes_nothing():
    forest = fan(2, exhaust=False)
    children = forest.children(forest.root(0)).tolist()
    visit_child(forest, 0, 0, 1.0)
    for _ in range(2):
        forest.set_states([children[0], children[0]], [5, 5])
    assert [column.tolist() for column in forest.states(0)] == [[5], [1], [1.0]]
    with pytest.raises(ValueError, match=r"a node must be one state; node .* is another already"):
        forest.set_states(children, [6, 5])
