"""One call on several threads gives what it gives on one; a child process and several Python threads may use it."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from agentq._core import Forest

TREES, LEAVES = 50, 12  # together more than what a call wakes its threads for
RULES = [
    {"selection": "ucb1"},
    {"selection": "ucb1", "backup": "max", "alpha": 0.5, "squares": True, "success_at": 0.5},
    {"selection": "uct", "transpositions": True},
    {"selection": "puct", "discount": 0.5},
    {"selection": "best_first"},
    {"selection": "gumbel", "num_simulations": 20, "seed": 3},
    {"selection": "thompson_gaussian", "seed": 4},
]


def hashed(nodes: np.ndarray, salt: int) -> np.ndarray:
    return (nodes.astype(np.uint64) * 0x9E3779B97F4A7C15 + np.uint64(salt * 77)) >> np.uint64(40)


def work(forest: Forest, rounds: int = 8) -> list[np.ndarray]:
    """Batches over all trees: some leaves end, some are cancelled, the rest get children. Returns what came back."""
    seen = []
    trees = forest.add_trees(TREES)
    for round_ in range(rounds):
        tickets, nodes, *rest = forest.ask(trees, LEAVES)
        np.testing.assert_array_equal(forest.nodes_of(tickets), nodes)
        fate = hashed(nodes, round_) % 8
        seen += [nodes, *rest]
        if forest.selection.startswith("thompson"):
            new = forest.widen(tickets)
            seen.append(new)
            if round_ == 0:
                forest.set_states(new, hashed(new, 1) % 20)
        else:
            forest.set_terminal(tickets[fate == 0])
            grown = fate > 1
            widths = (1 + hashed(nodes[grown], 9) % 6).astype(np.uint32)
            values = (hashed(np.arange(widths.sum()), round_) % 5 / 4).astype(np.float32)
            first = forest.expand(tickets[grown], widths, values, values, values)
            seen.append(first)
            if round_ == 1:
                forest.set_states(first, hashed(first, 1) % 20)
        forest.cancel(tickets[fate == 1])
        told = fate != 1
        forest.tell(tickets[told][::-1], (hashed(nodes[told], 5) % 3 / 2)[::-1])
    return seen


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: "-".join(map(str, rule.values())))
def test_threads_change_nothing(rule):
    one = Forest(c_exp=1.0, **rule)
    want = work(one)
    for threads in (2, 3, 8):
        many = Forest(c_exp=1.0, threads=threads, **rule)
        for a, b in zip(want, work(many), strict=True):
            np.testing.assert_array_equal(a, b)
        assert many.to_bytes() == one.to_bytes()


def test_threads_may_be_set_and_a_loaded_forest_has_one():
    forest = Forest(threads=3)
    work(forest)
    loaded = Forest.from_bytes(forest.to_bytes())
    assert (forest.threads, loaded.threads) == (3, 1)
    loaded.threads = 2
    assert loaded.threads == 2
    for bad in (0, 1025):
        with pytest.raises(ValueError, match=r"threads must be in \[1, 1024\]; got"):
            loaded.threads = bad
        with pytest.raises(ValueError, match=r"threads must be in \[1, 1024\]; got"):
            Forest(threads=bad)


@pytest.mark.filterwarnings("ignore:This process")  # forking a process that has threads is what this is about
def test_a_child_process_starts_threads_of_its_own():
    forest = Forest(threads=2)
    work(forest, 2)
    want = Forest.from_bytes(forest.to_bytes())
    child = os.fork()
    if child == 0:
        try:
            work(forest, 2)
            work(want, 2)
            os._exit(0 if forest.to_bytes() == want.to_bytes() else 1)
        except BaseException:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    work(forest, 2)


def test_python_threads_take_turns_on_one_forest():
    forest = Forest(threads=2, c_exp=1.0)

    def search(_: int) -> None:
        trees = forest.add_trees(TREES)
        for _ in range(6):
            tickets, *_ = forest.ask(trees, LEAVES)
            forest.expand(tickets, np.full(len(tickets), 3, np.uint32))
            forest.tell(tickets, np.ones(len(tickets)))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(search, range(8)))
    assert forest.num_in_flight == 0
    assert forest.num_trees == 8 * TREES
    tables = [forest.table(tree) for tree in forest.trees.tolist()]
    assert {t["value_sum"][0] == t["visit_count"][0] > 0 for t in tables} == {True}
