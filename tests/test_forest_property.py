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
        alpha=st.sampled_from((1.0, 1.0, 0.75, 0.5, 0.0)),
        exhaust=st.booleans(),
    )
    def start(self, **settings):
        if settings["selection"] not in ("ucb1", "uct", "puct"):
            settings["alpha"] = 1.0
        if settings["selection"] in ("gumbel", "thompson_gaussian", "thompson_beta"):
            settings |= {"num_simulations": 12, "max_considered": 3}
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
    @rule(seed=st.integers(0, 99))
    def ask_one(self, seed):
        twins, tree = self.twins, self.pick_tree(seed)
        found, why = twins.reference.ask(twins.roots[tree], 1)
        leaf = self.forest.ask_one(tree)
        assert (leaf is None) == (why != 0)
        if leaf is not None:
            assert leaf[1] == twins.ids[found[0][0]]
            twins.tickets[leaf[0]] = found[0]

    @precondition(lambda self: self.twins.tickets)
    @rule(seed=st.integers(0, 99), row=st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=4))
    def grow(self, seed, row):
        ticket = self.pick(seed)
        node = self.twins.node(ticket)
        if not node.children and not node.terminal:
            self.twins.expand([ticket], [row])
        elif node.children:
            self.twins.extend(ticket, seed % len(node.children))

    @precondition(lambda self: self.twins.tickets)
    @rule(seed=st.integers(0, 99), values=st.tuples(VALUES, VALUES))
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
    @rule(seed=st.integers(0, 99))
    def reroot(self, seed):
        tree = self.pick_tree(seed)
        nodes = self.twins.roots[tree].below()
        if not self.twins.roots[tree].in_flight():
            self.twins.reroot(tree, nodes[seed % len(nodes)])

    @rule(seed=st.integers(0, 99), call=st.sampled_from(("tell", "cancel", "extend", "expand", "set_terminal")))
    def refuse(self, seed, call):
        bad = [0, 1, 2**64 - 1, *self.stale[-3:], *list(self.twins.tickets)[:1] * (call in ("tell", "cancel"))]
        before = state(self.forest)
        tickets = [*list(self.twins.tickets)[:1], bad[seed % len(bad)]]  # a legal one first: it must not be acted on
        arguments = {
            "tell": [[1.0] * len(tickets)],
            "expand": [[2] * len(tickets)],
            "extend": [[0] * len(tickets)],
        }.get(call, [])
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
            self.twins.loaded().check()

    def teardown(self):
        if hasattr(self, "forest"):
            self.twins.cancel(list(self.twins.tickets))
            self.twins.check()
            assert self.forest.num_in_flight == 0
        gc.collect()


class LongForestMachine(ForestMachine):
    """The same machine for `make test-rest`, with more examples."""


steps = settings(stateful_step_count=30, derandomize=True)
ForestMachine.TestCase.settings = settings(steps, max_examples=15)
LongForestMachine.TestCase.settings = settings(steps, max_examples=60)
test_forest_keeps_its_invariants = ForestMachine.TestCase
test_forest_keeps_its_invariants_for_long = pytest.mark.rest(LongForestMachine.TestCase)


@settings(max_examples=200, derandomize=True)
@given(data=st.binary(max_size=300))
def test_from_bytes_refuses_any_noise(data):
    for noise in (data, b"AGQFORST" + data):
        try:
            Forest.from_bytes(noise)
        except ValueError as error:
            assert "forest snapshot" in str(error)
        else:
            raise AssertionError("noise must not load")
