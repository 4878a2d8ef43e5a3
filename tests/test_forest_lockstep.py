"""A lockstep visits the leaves that ask, expand and tell would, and its rollouts are in flight like any others."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from agentq._core import NO_NODE, TERMINAL, Forest, Lockstep
from tests.test_forest_oracle import coarse, mixed

RULES = ("ucb1", "uct", "puct")
GRID = list(product(RULES, (True, False), (0.0, 1.4), (1, 3, 5, 8, 9, 20), (1, 4)))


def answer(tree: int, visits: int, depth: int, width: int) -> tuple[float, int]:
    """A tied value and a number of children, 0 at depth 4 and in some other places."""
    key = (tree, visits, depth)
    return coarse(*key), 0 if depth == 4 or mixed(*key) % 7 == 0 else 1 + mixed(*key, 1) % width


def deep(tree: int, visits: int, depth: int, width: int) -> tuple[float, int]:
    """A value whose sums depend on their order, and so few children that trees grow deep."""
    key = (tree, visits, depth)
    return mixed(*key, 2) / 7 * 10.0 ** (mixed(*key, 3) % 9), 1 + mixed(*key, 1) % width


def by_tickets(
    forest: Forest, trees: list[int], simulations: int, n: int, width: int, answer=answer
) -> list[list[int]]:
    left, steps = dict.fromkeys(trees, simulations), []
    while True:
        rows = []
        for tree in trees:
            if left[tree]:
                ticket, node, _, depth, _ = forest.ask([tree], min(n, left[tree]))
                left[tree] -= len(node)
                rows += zip([tree] * len(node), ticket.tolist(), node.tolist(), depth.tolist(), strict=True)
        if not rows:
            return steps
        steps.append([node for _, _, node, _ in rows])
        ended = forest.table()
        ended = set(ended["id"][ended["flags"] & TERMINAL > 0].tolist())
        answers = [answer(tree, int(forest.visits_started[node]), depth, width) for tree, _, node, depth in rows]
        for (_, ticket, node, _), (value, width_) in zip(rows, answers, strict=True):
            if width_ == 0 or node in ended:
                forest.set_terminal([ticket])
            else:
                forest.expand_one(ticket, width_)
            forest.tell_one(ticket, value)


def by_lockstep(
    forest: Forest, trees: list[int], simulations: int, n: int, width: int, answer=answer
) -> list[list[int]]:
    rows, steps = Lockstep(forest, trees, simulations, n), []
    while size := len(rows):
        steps.append(rows.node[:size].tolist())
        ended = forest.table()
        ended = set(ended["id"][ended["flags"] & TERMINAL > 0].tolist())
        for row, node in enumerate(steps[-1]):
            visits = int(forest.visits_started[node])
            rows.values[row], children = answer(int(rows.tree[row]), visits, int(rows.depth[row]), width)
            rows.widths[row] = 0 if node in ended else children
        assert rows.step() == len(rows)
    return steps


@pytest.mark.parametrize(("rule", "exhaust", "c_exp", "width", "n"), GRID)
def test_lockstep_visits_the_leaves_of_ask(rule, exhaust, c_exp, width, n):
    forests = [Forest(selection=rule, exhaust=exhaust, c_exp=c_exp) for _ in range(2)]
    trees = [0, 2, 4]
    for forest in forests:
        forest.add_trees(5)
    want = by_tickets(forests[0], trees, 31, n, width)
    assert by_lockstep(forests[1], trees, 31, n, width) == want
    assert len(want) >= 5
    assert forests[1].num_in_flight == 0
    assert forests[1].to_bytes() == forests[0].to_bytes()
    forests[1].reroot(0, forests[1].root(0))  # nothing is in flight, tree by tree


@pytest.mark.parametrize(("alpha", "width"), ((1.0, 3), (1.0, 20), (0.5, 20)))
def test_lockstep_takes_more_trees_than_descend_side_by_side(alpha, width):
    forests = [Forest(alpha=alpha) for _ in range(2)]
    trees = list(range(150))
    for forest in forests:
        forest.add_trees(150)
    assert by_lockstep(forests[1], trees, 8, 2, width) == by_tickets(forests[0], trees, 8, 2, width)
    assert forests[1].to_bytes() == forests[0].to_bytes()


@pytest.mark.parametrize("trees", (1, 2, 40))
@pytest.mark.parametrize("n", (1, 3))
def test_returns_reach_every_ancestor_of_deep_leaves_in_the_same_order(trees, n):
    forests = [Forest(exhaust=False, c_exp=0.1) for _ in range(2)]
    every = list(range(trees))
    for forest in forests:
        forest.add_trees(trees)
    want = by_tickets(forests[0], every, 60, n, 2, deep)
    assert max(forests[0].table()["depth"]) > 20
    assert by_lockstep(forests[1], every, 60, n, 2, deep) == want
    assert forests[1].to_bytes() == forests[0].to_bytes()


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("exhaust", (True, False))
@pytest.mark.parametrize("huge", (1e308, -1e308))
def test_trees_side_by_side_choose_as_each_alone_when_sums_overflow(rule, exhaust, huge):
    together, alone = (Forest(selection=rule, exhaust=exhaust) for _ in range(2))
    for forest in (together, alone):
        forest.add_trees(2)
    for round_ in range(60):
        leaves = [column.tolist() for column in together.ask([0, 1])[:4]]
        for ticket, node, tree, depth in zip(*leaves, strict=True):
            found = alone.ask_one(tree)
            assert found is not None and found[1] == node
            width = (2, 3, 5, 8)[(round_ + tree) % 4]
            for forest, each in ((together, ticket), (alone, found[0])):
                if depth < 2:
                    forest.expand_one(each, width)
                elif mixed(round_, tree) % 3 == 0:
                    forest.set_terminal([each])
                forest.tell_one(each, (huge, -huge, 0.5, huge)[mixed(round_, tree, 1) % 4])


def test_rows_name_parent_and_rank():
    forest = Forest(exhaust=False)
    root = forest.root(int(forest.add_trees(1)[0]))
    rows = Lockstep(forest, [0], 100, 8)
    assert (len(rows), rows.node[0], rows.parent[0], rows.rank[0], rows.depth[0]) == (1, root, NO_NODE, 0, 0)
    rows.widths[0] = 3
    while size := rows.step():
        for row in range(size):
            node, parent, rank = int(rows.node[row]), int(rows.parent[row]), int(rows.rank[row])
            assert forest.children(parent)[rank] == node
        rows.widths[:size] = 2


def test_rank_counts_the_children_of_earlier_blocks():
    forest = Forest(exhaust=False)
    root = forest.root(int(forest.add_trees(1)[0]))
    ticket, _ = forest.ask_one(0)
    forest.expand_one(ticket, 3)  # fills its block
    added = int(forest.widen([ticket])[0])
    forest.tell_one(ticket, -1.0)
    rows = Lockstep(forest, [0], 8, 8)
    want = [(int(node), rank) for rank, node in enumerate(forest.children(root))]
    assert want[3][0] == added
    found = list(zip(rows.node.tolist(), rows.rank.tolist(), strict=True))[: len(rows)]
    assert sorted(found) == sorted(want[: len(rows)])
    assert rows.parent[: len(rows)].tolist() == [root] * len(rows)
    for row in range(len(rows)):
        rows.values[row], rows.widths[row] = -9.0, 0
    while len(rows) and added not in rows.node[: len(rows)]:
        rows.step()
    row = rows.node.tolist().index(added)
    assert (rows.parent[row], rows.rank[row]) == (root, 3)


def test_rollouts_are_in_flight_until_the_lockstep_is_gone():
    forest = Forest(exhaust=False)
    forest.add_trees(3)
    rows = Lockstep(forest, [0, 2], 10)
    rows.widths[:] = 4
    rows.values[:] = 0.5
    rows.step()
    before = forest.table()
    assert forest.num_in_flight == 2
    assert before["visit_count"][before["parent"] == -1].tolist() == [1, 0, 1]
    assert before["in_flight"][before["parent"] == -1].tolist() == [1, 0, 1]
    assert forest.ask([0, 1, 2])[4].tolist() == [0, 0, 0]  # other leaves of the same trees
    saved = Forest.from_bytes(forest.to_bytes()).table()
    assert np.array_equal(saved["visit_count"], before["visit_count"])
    with pytest.raises(ValueError, match="a tree must have left its lockstep to be dropped; got tree 2"):
        forest.drop([1, 2])
    with pytest.raises(ValueError, match="nothing must be in flight in tree 0"):
        forest.reroot(0, forest.root(0))
    del rows
    assert forest.num_in_flight == 3  # the tickets
    forest.drop([0, 1, 2])
    assert forest.num_in_flight == 0


def test_an_array_keeps_the_lockstep():
    forest = Forest()
    forest.add_trees(1)
    values = Lockstep(forest, [0], 10).values
    values[0] = 1.0
    assert forest.num_in_flight == 1
    del values
    assert forest.num_in_flight == 0


@pytest.mark.parametrize(
    ("value", "width", "message"),
    [
        (float("nan"), 1, "values must be finite; got nan"),
        (float("-inf"), 1, "values must be finite; got -inf"),
        (0.0, 65536, r"widths must be in \[0, 65535\]; got 65536"),
    ],
)
def test_a_wrong_answer_changes_nothing(value, width, message):
    forest = Forest()
    forest.add_trees(2)
    rows = Lockstep(forest, [0, 1], 10)
    rows.widths[:], rows.values[:] = (2, width), (0.5, value)
    before = forest.to_bytes()
    with pytest.raises(ValueError, match=message):
        rows.step()
    assert forest.to_bytes() == before
    assert forest.num_in_flight == len(rows) == 2
    rows.widths[:], rows.values[:] = 2, 1.0
    assert rows.step() == 2


def test_a_terminal_leaf_gets_no_children():
    forest = Forest(exhaust=False)
    forest.add_trees(1)
    rows = Lockstep(forest, [0], 10)
    assert rows.step_one(1.0, 0) == (forest.root(0), NO_NODE, 0, 0)
    with pytest.raises(ValueError, match="must be a leaf to be expanded; got a terminal node"):
        rows.step_one(1.0, 2)
    assert rows.step_one(1.0, 0) is not None


def test_a_leaf_that_a_ticket_expanded_meanwhile_is_refused():
    forest = Forest(exhaust=False)
    root = forest.root(int(forest.add_trees(1)[0]))
    ticket, _ = forest.ask_one(0)
    forest.expand_one(ticket, 1)
    rows = Lockstep(forest, [0], 10)  # at the only child
    forest.extend([ticket], [0])
    forest.expand_one(ticket, 2)
    with pytest.raises(ValueError, match="must be a leaf to be expanded; got 2 children"):
        rows.step_one(1.0, 2)
    del rows
    forest.tell_one(ticket, 1.0)
    assert forest.num_in_flight == 0
    assert forest.table()["visit_count"].tolist() == [1, 1, 0, 0]
    assert root == forest.root(0)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([0, 0], 1), ValueError, "a tree must be listed once a call; got tree 0 twice"),
        (([0], 0), ValueError, "simulations and n must be at least 1; got 0 and 1"),
        (([0], 1, 0), ValueError, "n must be at least 1; got 0"),
        (([0], 2**32), ValueError, r"simulations must be below 2\*\*32"),
        (([7], 1), IndexError, "no tree 7; there are 2"),
        (([1], 1), ValueError, "a tree must be in one lockstep at a time; tree 1 is in another"),
        (([0], 2**32 - 1, 2**40), ValueError, "rollouts must be in flight at once"),
    ],
)
def test_a_wrong_lockstep_is_refused(arguments, error, message):
    forest = Forest()
    forest.add_trees(2)
    other = Lockstep(forest, [1], 5)
    with pytest.raises(error, match=message):
        Lockstep(forest, *arguments)
    assert forest.num_in_flight == len(other) == 1


@pytest.mark.parametrize("rule", ("best_first", "gumbel", "thompson_beta", "thompson_gaussian"))
def test_other_rules_have_no_lockstep(rule):
    forest = Forest(selection=rule, num_simulations=4)
    forest.add_trees(1)
    with pytest.raises(ValueError, match="selection must be ucb1, uct or puct to search in lockstep"):
        Lockstep(forest, [0], 1)


def test_a_lockstep_reserves_its_rollouts():
    forest = Forest(exhaust=False)
    forest.add_trees(1)
    rows = Lockstep(forest, [0], 2**32 - 1)
    with pytest.raises(ValueError, match="a tree must have at most 4294967295 rollouts"):
        forest.ask([0])
    with pytest.raises(ValueError, match="a tree must have at most 4294967295 rollouts"):
        forest.ask_one(0)
    del rows
    assert forest.ask_one(0) is not None


def test_leaves_without_room_stay_leaves():
    forest = Forest(exhaust=False, max_bytes=4096)
    forest.add_trees(1)
    rows = Lockstep(forest, [0], 50)
    while len(rows):
        rows.step_one(0.5, 20)
    assert forest.table()["visit_count"][0] == 50
    assert forest.bytes_in_use <= 4096


def test_step_one_needs_one_row():
    forest = Forest()
    forest.add_trees(2)
    rows = Lockstep(forest, [0, 1], 3)
    with pytest.raises(ValueError, match="a lockstep must have one row for step_one; got 2"):
        rows.step_one(1.0, 2)
    with pytest.raises(ValueError, match=r"width must be in \[0, 65535\]; got -1"):
        rows.step_one(1.0, -1)


def test_trees_of_varied_widths_side_by_side_also_choose_children_that_were_added_later():
    together, alone = Forest(exhaust=False), Forest(exhaust=False)
    trees = list(range(40))
    for forest in (together, alone):
        forest.add_trees(len(trees))
    for round_ in range(30):
        for ticket, node, tree, depth in zip(*(c.tolist() for c in together.ask(trees)[:4]), strict=True):
            found = alone.ask_one(tree)
            assert found is not None and found[1] == node
            for forest, each in ((together, ticket), (alone, found[0])):
                if depth < 2:
                    forest.expand_one(each, 1 + (tree + depth) % 6)
                    forest.widen([each])
                forest.tell_one(each, mixed(round_, tree) % 100 / 100)
    assert together.to_bytes() == alone.to_bytes()
