"""Gumbel search and Thompson sampling: against mctx, against the distributions they draw from, by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from agentq._core import ALL_EXHAUSTED, EXHAUSTED, TERMINAL, Forest
from tests.reference.builders import Twins
from tests.reference.sampled import Draws, considered_visits, draw_mean

GOLDEN = 0x9E3779B9
WIDTH = 5


def mix(h: int) -> int:
    """The finaliser of MurmurHash3."""
    h = (h ^ h >> 16) * 0x85EBCA6B % 2**32
    h = (h ^ h >> 13) * 0xC2B2AE35 % 2**32
    return h ^ h >> 16


def child_hash(h: int, i: int) -> int:
    return mix((h + (i + 1) * GOLDEN) % 2**32)


def priors(h: int) -> np.ndarray:
    weights = np.array([1 + mix((h + (i + 1) * GOLDEN) % 2**32 ^ 0x55555555) % 7 for i in range(WIDTH)])
    return weights / weights.sum()


@pytest.mark.parametrize("case", json.loads((Path(__file__).parent / "golden" / "gumbel_mctx.json").read_text()))
def test_gumbel_visits_the_root_as_mctx_does(case):
    # mctx 0.0.71, gumbel_muzero_policy with gumbel_scale 0, three trees of width 5: a node's value is its hash / 2**24
    forest = Forest(
        selection="gumbel",
        num_simulations=case["num_simulations"],
        max_considered=case["max_considered"],
        gumbel_scale=0.0,
        exhaust=False,
    )
    trees = forest.add_trees(3)
    hashes = {forest.root(tree): mix((1 + tree * GOLDEN) % 2**32) for tree in trees.tolist()}
    for _ in range(1 + case["num_simulations"]):
        tickets, nodes, *_ = forest.ask(trees)
        known = [hashes[node] for node in nodes.tolist()]
        first = forest.expand(tickets, [WIDTH] * 3, priors=np.concatenate([priors(h) for h in known]))
        for h, block in zip(known, first.tolist(), strict=True):
            hashes |= {block + i: child_hash(h, i) for i in range(WIDTH)}
        forest.tell(tickets, [(h >> 8) / 2**24 for h in known])
    children = [forest.children(forest.root(tree)) for tree in trees]
    assert [forest.visits_started[ids].tolist() for ids in children] == case["visits"]
    chosen = forest.recommend(trees)
    assert [ids.tolist().index(node) for ids, node in zip(children, chosen, strict=True)] == case["action"]


def test_sequential_halving_worked_by_hand():
    # m 4, budget 16: 2 phases; 16 / (2 * 4) = 2 visits each to 4 children, then 16 / (2 * 2) = 4 each to 2, and so on
    assert considered_visits(4, 16, 20)[:20] == [0] * 4 + [1] * 4 + [2, 2, 3, 3, 4, 4, 5, 5] + [6, 6, 7, 7]


def test_gumbel_noise_is_of_the_seed_the_tree_and_its_root():
    def first_visits(seed: int, reroot: bool = False) -> list[int]:
        forest = Forest(selection="gumbel", num_simulations=4, max_considered=4, seed=seed)
        trees = forest.add_trees(8)
        for _ in range(2 if reroot else 1):
            tickets = forest.ask(trees)[0]
            forest.expand(tickets, [50] * 8)
            forest.cancel(tickets)
            if reroot:
                for tree in trees.tolist():
                    forest.reroot(tree, int(forest.children(forest.root(tree))[0]))
        if reroot:
            tickets = forest.ask(trees)[0]
            forest.expand(tickets, [50] * 8)
            forest.cancel(tickets)
        tickets, nodes, *_ = forest.ask(trees)
        return [int(n - forest.children(forest.root(t))[0]) for n, t in zip(nodes, trees.tolist(), strict=True)]

    assert first_visits(1) == first_visits(1) != first_visits(2)
    assert len(set(first_visits(1))) > 4  # the trees differ
    assert first_visits(1) != first_visits(1, reroot=True)


def test_draws_have_the_moments_of_their_distributions():
    draws, n = Draws(1, 2, 3), 20_000
    for sample, mean, variance in (
        ([draws.normal() for _ in range(n)], 0.0, 1.0),
        ([draws.gumbel() for _ in range(n)], 0.57721566, math.pi**2 / 6),
        ([draws.gamma(0.5) for _ in range(n)], 0.5, 0.5),
        ([draws.gamma(3.0) for _ in range(n)], 3.0, 3.0),
        ([draws.beta(0.5, 1.5) for _ in range(n)], 0.25, 0.0625),
    ):
        assert np.mean(sample) == pytest.approx(mean, abs=5 * math.sqrt(variance / n))
        assert np.var(sample) == pytest.approx(variance, rel=0.1)


def test_posterior_of_the_mean_worked_by_hand():
    # returns 1, 0, 1, 1: n 4, mean .75, spread 4 * .1875 = .75; kappa = nu = 5, m = 3/5,
    # nu tau^2 = .1 + .75 + 4 * .5625 / 5 = 1.3. mu - m is sqrt(tau^2 / kappa) times a t of 5 degrees, variance 5/3.
    draws, n = Draws(4, 5, 6), 20_000
    sample = [draw_mean(draws, [1.0, 0.0, 1.0, 1.0], beta=False) for _ in range(n)]
    variance = 1.3 / 5 / 5 * 5 / 3
    assert np.mean(sample) == pytest.approx(0.6, abs=5 * math.sqrt(variance / n))
    assert np.var(sample) == pytest.approx(variance, rel=0.15)
    sample = [draw_mean(draws, [1.0, 0.0, 1.0, 1.0], beta=True) for _ in range(n)]
    assert np.mean(sample) == pytest.approx(3.5 / 5, abs=0.01)


def grow(forest: Forest, rollouts: int, value) -> list[int]:
    """AB-MCTS: each rollout makes one new node, told by its depth; returns the depths."""
    depths = []
    for _ in range(rollouts):
        (ticket,), _, _, (depth,), _ = forest.ask([0])
        forest.widen([ticket])
        depths.append(int(depth) + 1)
        forest.tell_one(ticket, value(depths[-1]))
    return depths


@pytest.mark.parametrize("selection", ("thompson_gaussian", "thompson_beta"))
def test_thompson_goes_deeper_where_that_pays_and_wider_where_it_does_not(selection):
    deep, wide = [], []
    for seed in range(20):
        for value, means in ((lambda d: 1 - 0.8**d, deep), (lambda d: 0.9**d, wide)):
            forest = Forest(selection=selection, seed=seed)
            forest.add_trees(1)
            means.append(np.mean(grow(forest, 40, value)))
    assert np.mean(deep) > 1.5 * np.mean(wide)


def test_thompson_hands_out_one_node_to_several_and_passes_over_the_untold():
    forest = Forest(selection="thompson_gaussian")
    forest.add_trees(1)
    tickets, nodes, _, depth, status = forest.ask([0], 4)
    assert nodes.tolist() == [forest.root(0)] * 4
    assert depth.tolist() == [0] * 4
    assert status.tolist() == [0]
    children = forest.widen(tickets)
    assert forest.children(forest.root(0)).tolist() == children.tolist()
    more, nodes, *_ = forest.ask([0], 50)
    assert set(nodes.tolist()) == {forest.root(0)}
    forest.cancel(more)
    forest.tell(tickets, [0.0, 0.0, 1.0, 0.0])
    more, nodes, *_ = forest.ask([0], 50)
    assert set(nodes.tolist()) & set(children.tolist())
    forest.cancel([*more])
    assert forest.num_in_flight == 0
    assert forest.recommend([0]).tolist() == [children[2]]  # all have one rollout; the largest mean


def test_further_children_keep_ids_and_order():
    forest = Forest(selection="thompson_beta")
    forest.add_trees(2)
    tickets = forest.ask([0], 300)[0]
    root, ids = forest.root(0), []
    forest.expand(tickets[:1], [4], critic_values=[4.0, 3.0, 2.0, 1.0])
    ids += forest.children(root).tolist()
    for ticket in tickets:
        (child,) = forest.widen([ticket], [0.5], [0.25]).tolist()
        ids.append(child)
        assert forest.children(root).tolist() == ids
        forest.expand(forest.ask([1])[0], [1]) if len(ids) == 100 else None  # another tree's chunk in between
    table = forest.table(0)
    assert table["id"].tolist() == [root, *ids]
    assert table["critic_value"].tolist() == [0.0, 4.0, 3.0, 2.0, 1.0, *[0.5] * 300]
    assert table["prior"][5:].tolist() == [0.25] * 300
    assert forest.bytes_in_use < 3 * 16 * 305 + 2**10  # room doubles
    forest.tell(tickets, [1.0] * 300)
    tickets, nodes, *_ = forest.ask([0], 50)
    waiting = tickets[nodes == root][:5]
    assert forest.extend(waiting, [0, 4, 5, 9, 303]).tolist() == [ids[rank] for rank in (0, 4, 5, 9, 303)]
    forest.cancel(tickets)
    assert forest.visits_started[ids].tolist() == [0] * 4 + [1] * 300


def test_thompson_passes_over_what_has_ended():
    forest = Forest(selection="thompson_gaussian")
    forest.add_trees(1)
    tickets = forest.ask([0], 2)[0]
    children = forest.widen(tickets)
    forest.set_terminal(tickets[:1])
    forest.tell(tickets, [1.0, 0.9])
    grandchild = [ticket for ticket, node in zip(*forest.ask([0], 200)[:2], strict=True) if node == children[1]]
    assert grandchild  # deeper pays, and the second child alone is left
    assert forest.visits_started[children].tolist() == [1, 1 + len(grandchild)]


def test_gumbel_counts_from_the_new_root_on():
    twins = Twins(selection="gumbel", num_simulations=16, max_considered=4, seed=2)
    twins.add_trees(1)

    def search(rollouts: int) -> None:
        for i in range(rollouts):
            (ticket,) = twins.ask([0])
            if not twins.node(ticket).children:
                twins.expand([ticket], [[(0.0, 0.25)] * 4])
            twins.tell([ticket], [(i * 7 % 5) / 4])

    search(40)
    root = twins.roots[0]
    new = max(root.children, key=lambda child: len(child.returns))
    assert sum(child.visits_started() for child in new.children) > 4
    twins.reroot(0, new)
    search(24)  # past the new budget
    twins.check()


def test_thompson_can_always_go_wider():
    forest = Forest(selection="thompson_beta")
    forest.add_trees(1)
    tickets = forest.ask([0])[0]
    forest.widen(tickets)
    forest.set_terminal(tickets)
    forest.tell(tickets, [1.0])
    assert forest.table(0)["flags"].tolist() == [0, TERMINAL | EXHAUSTED]
    assert forest.ask_one(0)[1] == forest.root(0)


def test_what_is_still_pending_does_not_count_in_the_end_of_a_child():
    forest = Forest(selection="thompson_beta")
    forest.add_trees(1)
    waiting, root = forest.ask_one(0)
    forest.expand_one(waiting, 2)
    forest.tell_one(waiting, 0.5)
    (first, _), (pending, _), (second, node) = (forest.ask_one(0) for _ in range(3))
    assert node == root, "nothing is known of the children, so it goes wider"
    forest.extend([first, pending, second], [0, 0, 1])
    for ticket, value in ((first, 1.0), (second, 0.75)):
        forest.set_terminal([ticket])
        forest.tell_one(ticket, value)
    assert forest.recommend([0]).tolist() == [forest.children(root)[0]]
    forest.cancel([pending])


def test_widening_reopens_what_was_exhausted():
    forest = Forest()
    forest.add_trees(1)
    waiting, root = forest.ask_one(0)
    forest.expand_one(waiting, 1)
    ticket, _ = forest.ask_one(0)
    forest.set_terminal([ticket])
    forest.tell_one(ticket, 1.0)
    assert forest.ask([0])[4].tolist() == [ALL_EXHAUSTED]
    (child,) = forest.widen([waiting]).tolist()
    forest.tell_one(waiting, 0.0)
    assert forest.table(0)["flags"].tolist() == [0, TERMINAL | EXHAUSTED, 0]
    assert forest.ask_one(0)[1] == child
    assert forest.children(root).tolist()[1:] == [child]
