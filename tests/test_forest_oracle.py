"""The compiled forest visits the leaves of its slow Python twin, in the same order, over a grid with tied values."""

from __future__ import annotations

from itertools import product

import pytest

from agentq._core import Forest
from tests.reference.builders import Twins, child, fan

GRID = list(product((0.0, 0.5, 1.0, 3.0), (1, 2, 5), (1, 3), (1, 2, 4), (True, False)))
# c_exp, width, depth cap, leaves per call, exhaust
RULES = ("ucb1", "uct", "puct", "best_first")


def mixed(*numbers: int) -> int:
    """A fixed, well mixed hash below 2**32 of small whole numbers (the finaliser of MurmurHash3)."""
    h = 1
    for number in numbers:
        h = (h + (number + 1) * 0x9E3779B9) % 2**32
        for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
            h = (h ^ h >> shift) * factor % 2**32
        h ^= h >> 16
    return h


def coarse(*numbers: int) -> float:
    """0, 0.5 or 1: few values, many ties."""
    return mixed(*numbers) % 3 / 2


@pytest.mark.parametrize("alpha", (0.75, 0.5, 0.0))
@pytest.mark.parametrize("exhaust", (True, False))
@pytest.mark.parametrize("rule", ("ucb1", "uct", "puct"))
def test_a_critic_has_its_share_in_the_leaves_of_the_reference(rule, exhaust, alpha):
    twins = Twins(selection=rule, exhaust=exhaust, alpha=alpha, c_exp=0.5)
    twins.add_trees(20)
    drive(twins, 20, 6, 3, 4, 3)


def drive(twins: Twins, trees: int, rounds: int, n: int, width: int, depth_cap: int) -> None:
    """Cancels some leaves, ends episodes at the depth cap, expands or widens elsewhere; goes a step deeper in half."""
    widens = twins.forest.selection.startswith("thompson")
    for round_ in range(rounds):
        told = []
        for i, ticket in enumerate(twins.ask(range(trees), n)):
            key = (round_, i, twins.ids[twins.node(ticket)])
            depth = len(twins.node(ticket).path()) - 1
            if mixed(*key) % 5 == 0:
                twins.cancel([ticket])
                continue
            told.append(ticket)
            if depth == depth_cap:
                twins.set_terminal(ticket)
                continue
            if widens or twins.node(ticket).children or mixed(*key, 4) % 8 == 0:
                twins.widen(ticket, (coarse(*key), coarse(*key, 5) + 0.125))
                continue
            k = 1 + mixed(*key, 1) % width
            twins.expand([ticket], [[(coarse(*key, j), (j + 1) / 8) for j in range(k)]])
            if mixed(*key, 2) % 2:
                twins.extend(ticket, mixed(*key, 3) % k)
        twins.tell(told[::-1], [coarse(round_, ticket % 2**16) for ticket in told])
        twins.check()


@pytest.mark.parametrize(("c_exp", "width", "depth_cap", "n", "exhaust"), GRID)
def test_forest_visits_the_leaves_of_the_reference(c_exp, width, depth_cap, n, exhaust):
    twins = Twins(c_exp=c_exp, exhaust=exhaust)
    twins.add_trees(2)
    drive(twins, 2, 14, n, width, depth_cap)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("exhaust", (True, False))
@pytest.mark.parametrize("c_exp", (0.0, 0.5, 2.0))
def test_every_rule_visits_the_leaves_of_the_reference(rule, exhaust, c_exp):
    twins = Twins(selection=rule, exhaust=exhaust, c_exp=c_exp)
    twins.add_trees(20)  # more than descend side by side
    drive(twins, 20, 6, 3, 4, 3)


@pytest.mark.parametrize("exhaust", (True, False))
@pytest.mark.parametrize(
    "rule",
    [
        {"selection": "thompson_gaussian"},
        {"selection": "thompson_beta", "seed": 2**64 - 1},
        {"selection": "gumbel", "num_simulations": 16},
        {"selection": "gumbel", "num_simulations": 7, "max_considered": 3, "seed": 5},
        {"selection": "gumbel", "num_simulations": 30, "gumbel_scale": 0.0},
    ],
    ids=lambda rule: "-".join(map(str, rule.values())),
)
def test_rules_that_draw_visit_the_leaves_of_the_reference(rule, exhaust):
    twins = Twins(exhaust=exhaust, **rule)
    twins.add_trees(3)
    drive(twins, 3, 14, 2, 5, 4)


def test_forest_takes_the_path_worked_by_hand():
    # One node, three children, c_exp 1, returns by child: 0 for the first, 1 for the second, 0.5 for the third.
    # started (0,0,0): N(h) 0, no bonus, all tie at 0             -> child 0 (lowest index)
    # started (1,0,0): N(h) 1, ln 1 = 0, all tie at 0             -> child 1 (fewer visits beat index)
    # started (1,1,0): child 1 scores 1 + sqrt(ln2/2) = 1.589, child 2 only sqrt(ln2) = 0.833
    # child 1 keeps succeeding: 1 + sqrt(ln n/(1 + n - 1)) against sqrt(ln n) of child 2, until ln n outgrows it:
    # n = 8: 1 + sqrt(2.0794/8) = 1.5098 > sqrt(2.0794) = 1.4420; n = 9: 1 + .4941 = 1.4941 > 1.4823;
    # n = 10: 1 + sqrt(2.3026/10) = 1.4799 < 1.5174            -> child 2, the eleventh
    forest = fan(3, c_exp=1.0)
    visited = []
    for _ in range(11):
        ticket, node = forest.ask_one(0)
        visited.append(node - child(forest, 0))
        forest.tell([ticket], [(0.0, 1.0, 0.5)[visited[-1]]])
    assert visited == [0, *[1] * 9, 2]


def test_a_critic_in_selection_takes_the_path_worked_by_hand():
    # alpha 1/2, c_exp 1/2, critic values 1, 0.5, 0 and returns 0, 1, 0.5. Q is half the critic's value before a visit.
    # N 0: no bonus, Q .5 .25 0 -> 0; N 1: ln 1 = 0, Q .5 .25 0 -> 0 again, though its return was 0
    # N 2: sqrt(ln 2) / 2 = .416: .5 + .416 / sqrt 3 = .740, .25 + .416 = .666, .416 -> 0
    # N 3: .524: .5 + .524 / 2 = .762, .774 -> 1, whose Q is now 0.5 * 1 + 0.5 * 0.5 = .75
    # N 4: .589: .5 + .589 / 2 = .794, .75 + .589 / sqrt 2 = 1.166, .589 -> 1
    forest = fan(3, c_exp=0.5, alpha=0.5)
    visited = []
    for _ in range(5):
        ticket, node = forest.ask_one(0)
        visited.append(node - child(forest, 0))
        forest.tell([ticket], [(0.0, 1.0, 0.5)[visited[-1]]])
    assert visited == [0, 0, 0, 1, 1]


@pytest.mark.parametrize("width", (3, 40))
def test_a_critic_chooses_the_first_child_of_all(width):
    forest = Forest(alpha=0.5)
    forest.add_trees(1)
    ticket, root = forest.ask_one(0)
    forest.expand([ticket], [width], critic_values=[i / width for i in range(width)])
    forest.cancel([ticket])
    assert forest.ask_one(0)[1] == forest.children(root)[-1]


def test_puct_takes_the_path_worked_by_hand():
    # c 1, priors .1, .7, .2, all returns 0: U = P sqrt(max(1, N)) / (1 + n).
    # N 0: .1 .7 .2 -> 1; N 1: .1 .35 .2 -> 1; N 2 (x 1.414): .141 .330 .283 -> 1; N 3 (x 1.732): .173 .303 .346 -> 2
    forest = fan(1, selection="puct", c_exp=1.0)
    forest.add_trees(1)
    ticket, root = forest.ask_one(1)
    forest.expand([ticket], [3], priors=[0.1, 0.7, 0.2])
    forest.cancel([ticket])
    visited = []
    for _ in range(4):
        ticket, node = forest.ask_one(1)
        visited.append(node - forest.children(root)[0])
        forest.tell([ticket], [0.0])
    assert visited == [1, 1, 1, 2]
