"""Any sequence of calls keeps forest and twin alike; an illegal call raises and changes nothing."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agentq._core import EXHAUSTED, TERMINAL, Forest
from tests.reference.builders import Twins, state

VALUES = st.sampled_from((0.0, 0.5, 1.0))


class ForestMachine(RuleBasedStateMachine):
    """Drives both by legal calls."""

    @initialize(
        selection=st.sampled_from(
            ("ucb1", "uct", "puct", "best_first", "gumbel", "thompson_gaussian", "thompson_beta")
        ),
        c_exp=st.sampled_from((0.0, 0.5, 1.5)),
        unvisited=st.sampled_from(("formula", "first")),
        exhaust=st.booleans(),
        backup=st.sampled_from(("mean", "max")),
        discount=st.sampled_from((1.0, 0.5)),
        alpha=st.sampled_from((1.0, 0.5)),
        squares=st.booleans(),
        success_at=st.sampled_from((None, 0.5)),
        transpositions=st.booleans(),
    )
    def start(self, **settings):
        if settings["selection"] in ("gumbel", "thompson_gaussian", "thompson_beta"):
            settings |= {"backup": "mean", "alpha": 1.0, "num_simulations": 12, "max_considered": 3}
        settings["transpositions"] &= settings["selection"] in ("ucb1", "uct", "puct")
        self.twins = Twins(**settings)
        self.forest = self.twins.forest
        self.stale: list[int] = []
        self.plant(2)

    def pick(self, seed: int) -> int:
        waiting = sorted(self.twins.tickets)
        return waiting[seed % len(waiting)]

    def pick_tree(self, seed: int) -> int:
        trees = sorted(self.twins.roots)
        return trees[seed % len(trees)]

    @rule(n=st.integers(0, 2))
    def plant(self, n):
        self.twins.add_trees(n)

    @precondition(lambda self: self.twins.roots)
    @rule(seed=st.integers(0, 99), n=st.integers(1, 4))
    def ask(self, seed, n):
        self.twins.ask(sorted({self.pick_tree(seed), self.pick_tree(seed + 1)}), n)

    @precondition(lambda self: self.twins.roots)
    @rule(quotas=st.lists(st.integers(0, 4), min_size=8, max_size=8))
    def ask_by_quota(self, quotas):
        trees = sorted(self.twins.roots)[:8]
        self.twins.ask(trees, quotas[: len(trees)])

    @precondition(lambda self: self.twins.roots)
    @rule(seed=st.integers(0, 99))
    def ask_one(self, seed):
        twins, tree = self.twins, self.pick_tree(seed)
        found, why = twins.reference.ask(twins.roots[tree], 1)
        ticket, node = self.forest.ask_one(tree)
        assert node == (twins.ids[found[0][0]] if found else -why)
        assert bool(ticket) == bool(found)
        if found:
            twins.tickets[ticket] = found[0]

    @precondition(lambda self: self.twins.tickets)
    @rule(seed=st.integers(0, 99), row=st.lists(st.tuples(VALUES, VALUES, VALUES), min_size=1, max_size=4))
    def grow(self, seed, row):
        ticket = self.pick(seed)
        node = self.twins.node(ticket)
        if not node.children and not node.terminal:
            self.twins.expand([ticket], [row])
        elif node.children:
            self.twins.extend(ticket, seed % len(node.children))

    @precondition(lambda self: self.twins.tickets)
    @rule(seed=st.integers(0, 99), values=st.tuples(VALUES, VALUES, VALUES))
    def widen(self, seed, values):
        if not self.twins.node(self.pick(seed)).terminal:
            self.twins.widen(self.pick(seed), values)

    @precondition(lambda self: self.twins.tickets)
    @rule(seed=st.integers(0, 99))
    def end(self, seed):
        if not self.twins.node(self.pick(seed)).children:
            self.twins.set_terminal(self.pick(seed))

    @precondition(lambda self: self.twins.tickets)
    @rule(seeds=st.lists(st.integers(0, 99), min_size=1, max_size=4), values=st.lists(VALUES, min_size=4, max_size=4))
    def tell(self, seeds, values):
        tickets = list(dict.fromkeys(self.pick(seed) for seed in seeds))
        self.twins.tell(tickets, values[: len(tickets)])
        self.stale += tickets

    @precondition(lambda self: self.twins.tickets)
    @rule(seed=st.integers(0, 99))
    def cancel(self, seed):
        self.stale.append(self.pick(seed))
        self.twins.cancel([self.pick(seed)])

    @precondition(lambda self: self.twins.roots)
    @rule(seed=st.integers(0, 99))
    def drop(self, seed):
        if seed < 20:
            self.stale += self.twins.drop(self.pick_tree(seed))

    @precondition(lambda self: self.twins.roots)
    @rule(seed=st.integers(0, 99), keep=st.booleans())
    def cut(self, seed, keep):
        tree = self.pick_tree(seed)
        nodes = self.twins.roots[tree].below()
        node = nodes[seed % len(nodes)]
        if keep and not self.twins.roots[tree].in_flight():
            self.twins.reroot(tree, node)
        elif not node.in_flight():
            self.twins.prune(node)

    @precondition(lambda self: self.twins.roots)
    @rule(seed=st.integers(0, 99), keys=st.lists(st.integers(0, 4), max_size=6))
    def know_states(self, seed, keys):
        nodes = self.twins.roots[self.pick_tree(seed)].below()
        chosen = dict.fromkeys(nodes[(seed * i) % len(nodes)] for i in range(len(keys)))
        fresh = [node for node in chosen if node.state is None]
        self.twins.set_states(fresh, keys[: len(fresh)])

    @precondition(lambda self: len(self.twins.roots) > 1)
    @rule(seed=st.integers(0, 99))
    def merge(self, seed):
        tree, other = self.pick_tree(seed), self.pick_tree(seed + 1)
        if not (self.twins.roots[tree].in_flight() or self.twins.roots[other].in_flight()):
            self.twins.merge(tree, other)

    @rule(seed=st.integers(0, 99), call=st.sampled_from(("tell", "cancel", "extend", "expand", "set_terminal")))
    def refuse(self, seed, call):
        bad = [0, 1, 2**64 - 1, *self.stale[-3:], *list(self.twins.tickets)[:1] * (call in ("tell", "cancel"))]
        before = state(self.forest)
        tickets = [*list(self.twins.tickets)[:1], bad[seed % len(bad)]]  # a legal one first: it must not be acted on
        arguments = {"tell": [[1.0] * len(tickets)], "expand": [[2] * len(tickets)]}.get(call, [])
        with pytest.raises(ValueError):
            getattr(self.forest, call)(np.array(tickets if len(tickets) > 1 else [0], np.uint64), *arguments)
        assert state(self.forest) == before

    @invariant()
    def agrees_with_the_twin(self):
        self.twins.check()

    @invariant()
    def counts_add_up(self):
        forest = self.forest
        assert forest.num_in_flight == len(self.twins.tickets)
        for tree in forest.trees.tolist():
            t = forest.table(tree)
            inner = t["parent"] >= 0
            below = np.bincount(t["parent"][inner], t["visit_count"][inner], len(inner))
            assert (below <= t["visit_count"]).all()
            assert not (t["flags"][np.unique(t["parent"][inner])] & TERMINAL).any()
            if not forest.exhaust:
                assert not (t["flags"] & EXHAUSTED).any()

    @invariant()
    def survives_saving(self):
        loaded = Forest.from_bytes(self.forest.to_bytes())
        assert loaded.to_bytes() == self.forest.to_bytes()
        if not self.twins.tickets:
            self.twins.check(loaded)

    def teardown(self):
        if hasattr(self, "forest"):
            self.twins.cancel(list(self.twins.tickets))
            self.twins.check()
            assert self.forest.num_in_flight == 0
        gc.collect()


ForestMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None, derandomize=True)
test_forest_keeps_its_invariants = ForestMachine.TestCase


@settings(max_examples=200, deadline=None, derandomize=True)
@given(data=st.binary(max_size=300))
def test_from_bytes_refuses_any_noise(data):
    for noise in (data, b"AGQFORST" + data):
        try:
            Forest.from_bytes(noise)
        except ValueError as error:
            assert "forest snapshot" in str(error)
        else:
            raise AssertionError("noise must not load")
