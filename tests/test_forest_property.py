"""Any sequence of calls keeps the forest's invariants; an illegal call raises and changes nothing."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agentq._core import EXHAUSTED, NO_NODE, TERMINAL, Forest
from tests.reference.mcts import ReferenceForest

VALUES = st.sampled_from((0.0, 0.5, 1.0))


def column(forest: Forest, name: str) -> np.ndarray:
    return getattr(forest, name).astype(np.float64 if name == "value_sum" else np.int64)


def children_sum(forest: Forest, name: str) -> np.ndarray:
    """`[nodes]` the column summed over each node's children."""
    parent = column(forest, "parent")
    inner = parent != NO_NODE
    return np.bincount(parent[inner], column(forest, name)[inner], minlength=forest.num_nodes)


class ForestMachine(RuleBasedStateMachine):
    """Drives the forest and its twin by legal calls, and knows which rollouts are pending where."""

    @initialize(
        c_exp=st.sampled_from((0.0, 0.5, 1.5)), unvisited=st.sampled_from(("formula", "first")), exhaust=st.booleans()
    )
    def start(self, c_exp, unvisited, exhaust):
        self.forest = Forest(c_exp=c_exp, unvisited=unvisited, exhaust=exhaust)
        self.twin = ReferenceForest(c_exp=c_exp, unvisited=unvisited, exhaust=exhaust)
        self.pending: Counter[int] = Counter()
        self.told = 0
        self.plant(2)

    def both(self, call: str, *args):
        getattr(self.twin, call)(*args)
        return getattr(self.forest, call)(*args)

    def pick(self, seed: int) -> int:
        waiting = sorted(self.pending.elements())
        return waiting[seed % len(waiting)]

    @rule(n=st.integers(0, 2))
    def plant(self, n):
        before = self.forest.num_nodes
        assert self.both("add_trees", n).tolist() == list(range(before, before + n))

    @rule(seed=st.integers(0, 99), n=st.integers(1, 4))
    def ask(self, seed, n):
        trees = [seed % self.forest.num_trees, (seed + 1) % self.forest.num_trees]
        ours, theirs = self.forest.ask(trees, n), self.twin.ask(trees, n)
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(a, b)
        _, leaves, depth, _ = ours
        assert [len(self.forest.path(leaf)) - 1 for leaf in leaves] == depth.tolist()
        self.pending.update(leaves.tolist())

    @rule(seed=st.integers(0, 99))
    def ask_one(self, seed):
        tree = seed % self.forest.num_trees
        _, leaves, _, (status,) = self.twin.ask([tree], 1)
        assert self.forest.ask_one(tree) == (leaves[0] if len(leaves) else -int(status))
        self.pending.update(leaves.tolist())

    @precondition(lambda self: self.pending)
    @rule(seed=st.integers(0, 99), critic=st.lists(VALUES, min_size=1, max_size=3))
    def grow(self, seed, critic):
        node = self.pick(seed)
        if self.forest.child_count[node] == 0 and not self.forest.flags[node] & TERMINAL:
            (child,) = self.both("expand", [node], [len(critic)], critic, [-1.0] * len(critic)).tolist()
            self.both("extend", [child])
            self.pending += Counter({child: 1})
            self.pending -= Counter({node: 1})

    @precondition(lambda self: self.pending)
    @rule(seed=st.integers(0, 99))
    def end(self, seed):
        node = self.pick(seed)
        if self.forest.child_count[node] == 0:
            self.both("set_terminal", [node])

    @precondition(lambda self: self.pending)
    @rule(seeds=st.lists(st.integers(0, 99), min_size=1, max_size=4), values=st.lists(VALUES, min_size=4, max_size=4))
    def tell(self, seeds, values):
        nodes = [self.pick(seed) for seed in seeds]
        waiting = Counter(nodes)
        nodes = [node for node in nodes if waiting[node] <= self.pending[node]]
        self.both("tell", nodes, values[: len(nodes)])
        self.pending -= Counter(nodes)
        self.told += len(nodes)

    @precondition(lambda self: self.pending)
    @rule(seed=st.integers(0, 99))
    def cancel(self, seed):
        node = self.pick(seed)
        self.both("cancel", [node])
        self.pending -= Counter({node: 1})

    @rule(node=st.integers(-2, 60), call=st.sampled_from(("tell", "cancel")))
    def refuse(self, node, call):
        if self.pending[node]:
            return
        before = self.forest.to_bytes(), self.forest.in_flight.tolist()
        # a legal entry first: it must not have been acted on
        nodes = [*self.pending, node]
        try:
            if call == "tell":
                self.forest.tell(nodes, [1.0] * len(nodes))
            else:
                self.forest.cancel(nodes)
        except (ValueError, IndexError):
            assert (self.forest.to_bytes(), self.forest.in_flight.tolist()) == before
        else:
            raise AssertionError(f"{call} of {nodes} must raise")

    @invariant()
    def agrees_with_the_twin(self):
        for name, expected in self.twin.columns().items():
            np.testing.assert_array_equal(getattr(self.forest, name), expected, err_msg=name)

    @invariant()
    def counts_add_up(self):
        forest = self.forest
        visits, in_flight = column(forest, "visit_count"), column(forest, "in_flight")
        assert (children_sum(forest, "visit_count") <= visits).all()
        here = in_flight - children_sum(forest, "in_flight")
        assert {node: n for node, n in enumerate(here.tolist()) if n} == {n: k for n, k in self.pending.items() if k}
        roots = column(forest, "parent") == NO_NODE
        assert visits[roots].sum() == self.told
        assert ((forest.mean_value >= 0) & (forest.mean_value <= 1)).all()
        assert (forest.value_sum <= visits).all()
        if not forest.exhaust:
            assert not (forest.flags & EXHAUSTED).any()

    @invariant()
    def survives_saving(self):
        loaded = Forest.from_bytes(self.forest.to_bytes())
        for name in self.twin.columns():
            expected = getattr(self.forest, name)
            np.testing.assert_array_equal(getattr(loaded, name), 0 * expected if name == "in_flight" else expected)

    @invariant()
    def pairs_are_sorted_and_true(self):
        found = list(zip(*(c.tolist() for c in self.forest.pairs(alpha=0.75, threshold=0.25)), strict=True))
        assert found == self.twin.pairs(alpha=0.75, threshold=0.25)
        for node, chosen, rejected, gap in found:
            assert self.forest.parent[chosen] == self.forest.parent[rejected] == node
            assert gap >= 0.25
            assert min(self.forest.visit_count[[chosen, rejected]]) >= 1

    def teardown(self):
        if hasattr(self, "forest"):
            self.forest.cancel(list(self.pending.elements()))
            assert not self.forest.in_flight.any()


ForestMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None, derandomize=True)
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
