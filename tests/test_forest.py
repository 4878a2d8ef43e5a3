"""The forest by hand: golden vectors, backup, collisions, exhaustion, structure, memory, recommendations and views."""

from __future__ import annotations

import math
import subprocess
import sys
import threading

import numpy as np
import pytest

from agentq._core import ALL_EXHAUSTED, BLOCKED, EXHAUSTED, NO_NODE, TERMINAL, Forest, ucb1_score
from tests.reference.builders import Twins, child, fan, state, visit


def test_ucb1_score_matches_the_golden_row():
    # c = 1, N(h) = 4: Q + sqrt(ln 4 / (1 + N)); computed with plain Python
    row = [ucb1_score(q, 4, n, 1.0) for q, n in ((0.5, 2), (0.0, 1), (1.0, 1), (0.0, 0))]
    np.testing.assert_allclose(row, [1.179778, 0.832555, 1.832555, 1.177410], atol=1e-6)


@pytest.mark.parametrize("visits", [0, 1, 2, 16383, 16384, 16385, 10**9])
def test_ucb1_score_is_the_formula_also_beyond_its_table(visits):
    want = 0.5 + 1.25 * math.sqrt(math.log(max(1, visits))) * (1 / math.sqrt(1 + visits))
    assert ucb1_score(0.5, visits, visits, 1.25) == want


def test_ucb1_score_has_no_bonus_before_the_second_visit():
    assert ucb1_score(0.25, 0, 0, 9.0) == ucb1_score(0.25, 1, 0, 9.0) == 0.25


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((float("nan"), 1, 1, 1.0), "mean_value must be finite; got nan"),
        ((0.0, -1, 1, 1.0), "parent_visit_count must be at least 0; got -1"),
        ((0.0, 1, -1, 1.0), "visit_count must be at least 0; got -1"),
        ((0.0, 1, 1, -1.0), "c_exp must be finite and at least 0; got -1"),
    ],
)
def test_ucb1_score_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        ucb1_score(*arguments)


# Rollouts -------------------------------------------------------------------------------------------------------------


def test_one_leaf_at_a_time_is_a_batch_of_one():
    one, batch = Forest(c_exp=1.5), Forest(c_exp=1.5)
    one.add_trees(2)
    batch.add_trees(2)
    for i in range(200):
        ticket, node = one.ask_one(i % 2)
        tickets, nodes, trees, (depth,), _ = batch.ask([i % 2])
        assert ([node], [i % 2]) == (nodes.tolist(), trees.tolist())
        if depth < 4:
            width = 1 + i % 3
            assert one.expand_one(ticket, width) == batch.expand(tickets, [width])[0]
        value = (node * 37 % 11) / 11
        one.tell_one(ticket, value)
        batch.tell(tickets, [value])
    assert state(one) == state(batch)


def test_one_leaf_at_a_time_is_none_where_there_is_none():
    forest = fan(1)
    ticket, node = forest.ask_one(0)
    assert node == child(forest, 0)
    assert forest.ask_one(0) is None
    assert forest.ask([0])[4].tolist() == [BLOCKED]
    forest.set_terminal([ticket])
    forest.tell_one(ticket, 1.0)
    assert forest.ask_one(0) is None
    assert forest.ask([0])[4].tolist() == [ALL_EXHAUSTED]


def test_tell_backs_up_along_the_path():
    forest = Forest()
    assert forest.add_trees(2).tolist() == [0, 1]
    roots = [forest.root(0), forest.root(1)]
    (ticket,), (node,), (tree,), (depth,), _ = forest.ask([1])
    assert (node, tree, depth) == (roots[1], 1, 0)
    (first,) = forest.expand([ticket], [2], [1, 0], [0.75, 0.25])
    assert forest.extend([ticket], [1]).tolist() == [first + 1] == forest.nodes_of([ticket]).tolist()
    assert forest.table(1)["in_flight"].tolist() == [1, 0, 1]
    forest.tell([ticket], [0.75])
    t = forest.table(1)
    assert t["id"].tolist() == [roots[1], first, first + 1]
    assert t["parent"].tolist() == [-1, 0, 0]
    assert t["depth"].tolist() == [0, 1, 1]
    assert t["visit_count"].tolist() == [1, 0, 1]
    assert t["value_sum"].tolist() == [0.75, 0, 0.75]
    assert t["in_flight"].tolist() == [0, 0, 0]
    assert t["critic_value"].tolist() == [0, 1, 0]
    assert t["prior"].tolist() == [0, 0.75, 0.25]
    assert forest.table(0)["visit_count"].tolist() == [0]
    assert forest.children(first).size == 0


def test_ask_counts_a_rollout_in_flight_as_a_visit_worth_nothing():
    # Two children, c_exp 0.1, the first told 1 once: Q = 1 against 0. With one rollout in flight its Q is 1/2, still
    # ahead, so the second ask meets it again: a collision, and the batch ends.
    forest = fan(2, c_exp=0.1)
    visit(forest, 0, 1.0)
    _, nodes, _, depths, status = forest.ask([0], 2)
    assert nodes.tolist() == [child(forest, 0)]
    assert depths.tolist() == [1]
    assert status.tolist() == [BLOCKED]
    assert forest.table(0)["in_flight"].tolist() == [1, 1, 0]
    # c_exp 2: 1/2 + 2 sqrt(ln 2 / 3) = 1.461 is behind 2 sqrt(ln 2) = 1.665 of the fresh child
    forest = fan(2, c_exp=2.0)
    visit(forest, 0, 1.0)
    assert forest.ask([0], 2)[1].tolist() == [child(forest, 0), child(forest, 1)]


def test_cancel_restores_every_number():
    forest = fan(3)
    visit(forest, 0, 0.1)
    before = state(forest)
    tickets = forest.ask([0], 3)[0]
    assert state(forest) != before
    forest.cancel(tickets)
    assert state(forest) == before


def test_cancel_at_an_inner_node_restores_what_its_children_compare():
    twins = Twins(c_exp=1.0)
    twins.add_trees(1)
    (ticket,) = twins.ask([0])
    twins.expand([ticket], [[(0, 0)] * 3])
    twins.cancel([ticket])  # had it counted for N(h), the bonus below would differ
    for value in (0.0, 1.0, 0.5, 0.0, 1.0, 0.5, 0.25):
        twins.tell(twins.ask([0]), [value])
        twins.check()


def test_exhaustion_climbs_to_the_root():
    forest = fan(2)
    seen = []
    for rank in range(2):
        (ticket,), (node,), *_ = forest.ask([0])
        forest.set_terminal([ticket])
        assert forest.table(0)["flags"][1 + rank] == TERMINAL
        forest.tell([ticket], [1.0])
        assert forest.table(0)["flags"][1 + rank] == TERMINAL | EXHAUSTED
        seen.append(node - child(forest, 0))
    assert seen == [0, 1]  # a success does not draw selection back to a node with nothing left to learn
    assert forest.table(0)["flags"][0] == EXHAUSTED
    tickets, _, _, _, status = forest.ask([0], 5)
    assert len(tickets) == 0
    assert status.tolist() == [ALL_EXHAUSTED]
    assert forest.num_in_flight == 0


def test_terminal_leaf_is_asked_again_without_exhaust():
    forest = fan(2, exhaust=False)
    for _ in range(3):
        (ticket,), (node,), *_ = forest.ask([0])
        assert node == child(forest, 0)
        forest.set_terminal([ticket])
        forest.tell([ticket], [1.0])
    assert forest.table(0)["visit_count"].tolist() == [3, 3, 0]
    assert forest.table(0)["flags"].tolist() == [0, TERMINAL, 0]


def test_uct_tries_every_child_once_first():
    forest = fan(3, selection="uct", c_exp=0.0)
    order = []
    for _ in range(4):
        ticket, node = forest.ask_one(0)
        order.append(node - child(forest, 0))
        forest.tell([ticket], [1.0 if order[-1] == 1 else 0.0])
    assert order == [0, 1, 2, 1]


def test_extend_that_fails_takes_back_the_first():
    forest = fan(2, c_exp=2.0)
    tickets = forest.ask([0], 2)[0]
    forest.expand(tickets[:1], [2])
    before = state(forest)
    with pytest.raises(ValueError, match="ranks must be below the children"):
        forest.extend(tickets, [1, 0])
    assert state(forest) == before


def test_extend_into_a_node_that_has_children_counts_there_too():
    twins = Twins(c_exp=1.0)
    twins.add_trees(1)
    (first,) = twins.ask([0])
    twins.expand([first], [[(0, 0)] * 2])
    (second,) = twins.ask([0])
    twins.expand([second], [[(0, 0)] * 2])
    twins.extend(first, 0)  # where the second waits, above its two children
    for tickets in ([first], [second]):
        twins.check()
        assert Forest.from_bytes(twins.forest.to_bytes()).num_nodes == 5
        twins.tell(tickets, [0.5])
    for value in (0.0, 1.0, 0.5, 0.25):
        twins.tell(twins.ask([0]), [value])
        twins.check()


def test_tickets_are_good_once_whatever_comes_after():
    forest = fan(2)
    stale = []
    for value in (0.0, 1.0, 0.5):
        (ticket,), *_ = forest.ask([0])
        forest.tell([ticket], [value])
        stale.append(int(ticket))
    assert len(set(stale)) == 3  # the same place in memory, another generation
    live, *_ = forest.ask([0])
    for ticket in stale:
        with pytest.raises(ValueError, match="is good once"):
            forest.tell([ticket], [1.0])
    forest.drop([0])
    with pytest.raises(ValueError, match="is good once"):
        forest.tell(live, [1.0])


def test_sums_beyond_every_number_leave_selection_somewhere_to_go():
    forest = fan(2, exhaust=False)
    for value in (1e308, 1e308, 1e308, -1e308, -1e308, 1e308) * 5:
        ticket, node = forest.ask_one(0)
        assert node in (child(forest, 0), child(forest, 1))
        forest.tell([ticket], [value])


# Structure and memory -------------------------------------------------------------------------------------------------


def test_a_dropped_tree_is_gone_and_its_memory_is_used_again():
    forest = Forest()
    forest.add_trees(2)

    def grow(tree: int) -> None:
        for _ in range(100):
            tickets, *_ = forest.ask([tree])
            forest.expand(tickets, [5])
            forest.tell(tickets, [0.5])

    grow(0)
    grow(1)
    bytes_before, cells_before = forest.bytes_in_use, len(forest.visits_started)
    for turn in range(10):
        forest.drop([1 + turn])
        with pytest.raises(IndexError, match=f"tree {1 + turn} has been dropped"):
            forest.root(1 + turn)
        assert forest.num_nodes == 501
        forest.add_trees(1)
        grow(2 + turn)
    assert (forest.bytes_in_use, len(forest.visits_started)) == (bytes_before, cells_before)
    assert forest.trees.tolist() == [0, 11]
    assert len(forest.trees) == 2
    assert forest.table(0)["visit_count"][0] == 100


def test_the_byte_limit_holds_and_what_does_not_fit_stays_a_leaf():
    forest = Forest(max_bytes=4096, exhaust=False)
    forest.add_trees(1)
    full = 0
    for _ in range(200):
        tickets, nodes, *_ = forest.ask([0])
        first = forest.expand(tickets, [4])
        if first[0] == NO_NODE:
            full += 1
            assert forest.children(int(nodes[0])).size == 0
        forest.tell(tickets, [0.5])  # evaluated all the same
        assert forest.bytes_in_use <= 4096
    assert full > 100
    assert forest.table(0)["visit_count"][0] == 200
    with pytest.raises(MemoryError, match=r"the trees of a forest must fit max_bytes \(4096\); got 1000 more trees"):
        forest.add_trees(1000)
    assert len(forest.trees) == 1
    with pytest.raises(MemoryError, match="critic values or priors must fit max_bytes"):
        forest.expand(forest.ask([0])[0], [1], [0.5])


def test_the_byte_limit_counts_values_too():
    forest = Forest(max_bytes=8192, selection="thompson_gaussian")
    forest.add_trees(1)
    for _ in range(1000):
        tickets, *_ = forest.ask([0])
        forest.widen(tickets, [1.0], [0.5])
        forest.tell(tickets, [0.5])
        assert forest.bytes_in_use <= 8192
    assert forest.bytes_in_use == 32 * (8192 // 32 // 64 * 64)  # cells of 32 bytes: 16, two values, a square


@pytest.mark.parametrize("width", [1, 2, 5, 20, 200])
def test_a_child_takes_16_bytes_and_a_node_with_children_at_most_32_more(width):
    forest = Forest(exhaust=False)
    forest.add_trees(1)
    inner = 20_000 // max(width, 4)  # a chain of nodes with one child costs the square of its length
    for _ in range(inner):
        ticket, _ = forest.ask_one(0)
        forest.expand_one(ticket, width)
        forest.tell_one(ticket, 0.5)
    chunks = 1 / 2 * forest.bytes_in_use  # the last chunk is as large as all before it together
    assert forest.bytes_in_use - chunks <= inner * (16 * width + 32)


def test_pages_of_a_dropped_tree_go_back():
    def resident() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096

    forest = Forest(exhaust=False)
    forest.add_trees(1)
    before = resident()
    for _ in range(300):
        tickets, *_ = forest.ask([0], 64)
        forest.expand(tickets, [200] * len(tickets))
        forest.tell(tickets, np.linspace(0, 1, len(tickets)))
    grown = resident() - before
    assert grown > 30e6
    forest.drop([0])
    assert resident() - before < grown / 4


def test_too_little_address_space_is_told_in_one_line():
    program = (
        "import resource; from agentq import Forest; resource.setrlimit(resource.RLIMIT_AS, (2**32, 2**32)); "
        "print(len(Forest(max_bytes=2**28).add_trees(3))); Forest(max_bytes=2**34)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "3\n"
    assert "MemoryError: max_bytes of address space must be there to reserve" in done.stderr


def test_reroot_keeps_what_lies_below_and_says_where():
    twins = Twins(c_exp=0.7)
    twins.add_trees(2)
    for i in range(60):
        for ticket in twins.ask([0, 1], 2):
            twins.expand([ticket], [[(0.5, 0)] * (1 + i % 3)])
            twins.tell([ticket], [(i * 7 % 5) / 4])
    before = twins.forest.num_nodes
    twins.reroot(0, twins.roots[0].children[0])
    assert twins.forest.num_nodes < before
    twins.check()
    for i in range(20):  # and it goes on as the twin does
        for ticket in twins.ask([0, 1], 2):
            twins.expand([ticket], [[(0.5, 0)] * 2])
            twins.tell([ticket], [i % 2])
    twins.check()


def test_a_chain_deeper_than_any_stack():
    forest = Forest()
    forest.add_trees(1)
    ((ticket,), *_) = forest.ask([0])
    depth = 200_000
    for _ in range(depth):
        forest.expand_one(ticket, 1)
        forest.extend([ticket], [0])
    forest.set_terminal([ticket])
    forest.tell([ticket], [1.0])
    table = forest.table(0)
    assert table["depth"][-1] == depth
    assert (table["flags"] & EXHAUSTED).all()
    assert Forest.from_bytes(forest.to_bytes()).to_bytes() == forest.to_bytes()
    forest.reroot(0, int(table["id"][depth // 2]))
    assert forest.num_nodes == 1 + depth // 2


def test_one_table_of_many_trees_is_their_tables_one_after_the_other():
    twins = Twins()
    twins.add_trees(4)
    for i in range(12):
        for ticket in twins.ask([0, 2, 3]):
            twins.expand([ticket], [[(0.5, 0)] * (1 + i % 3)])
            twins.tell([ticket], [i % 5 / 4])
    twins.drop(2)
    forest = twins.forest
    whole, parts = forest.table(), [forest.table(tree) for tree in (0, 1, 3)]
    assert whole["tree"].tolist() == [0] * len(parts[0]["id"]) + [1] + [3] * len(parts[2]["id"])
    first = np.cumsum([0, *(len(part["id"]) for part in parts)])
    for name in whole.keys() - {"parent"}:
        assert whole[name].tolist() == np.concatenate([part[name] for part in parts]).tolist()
    for start, part in zip(first, parts, strict=False):
        rows = part["parent"]
        np.testing.assert_array_equal(whole["parent"][start : start + len(rows)], np.where(rows < 0, -1, rows + start))
    assert forest.table([3, 0])["id"].tolist() == [*parts[2]["id"], *parts[0]["id"]]
    assert forest.table([])["id"].tolist() == []


# Recommendations ------------------------------------------------------------------------------------------------------


def test_recommend_takes_the_success_that_visits_get_wrong():
    # child 0 ends with 1 at once and is exhausted: N = 1. Child 1 has four ends, all failures: N = 4.
    forest = Forest(c_exp=1.0)
    forest.add_trees(1)
    ticket, _ = forest.ask_one(0)
    first = forest.expand_one(ticket, 2)
    forest.cancel([ticket])
    ticket, node = forest.ask_one(0)
    assert node == first
    forest.set_terminal([ticket])
    forest.tell_one(ticket, 1.0)
    ticket, node = forest.ask_one(0)
    assert node == first + 1
    forest.expand_one(ticket, 6)
    forest.cancel([ticket])
    for _ in range(4):
        ticket, _ = forest.ask_one(0)
        forest.set_terminal([ticket])
        forest.tell_one(ticket, 0.0)
    assert forest.visits_started[[first, first + 1]].tolist() == [1, 4]
    assert forest.recommend([0]).tolist() == [first]


def test_recommend_prefers_what_is_left_to_try_to_what_has_failed_for_sure():
    # Child 0 failed twice and is exhausted; child 1 failed once, its other child is untried.
    forest = fan(2, c_exp=10.0)
    tickets, nodes, *_ = forest.ask([0], 2)
    forest.expand(tickets, [2, 2])
    forest.cancel(tickets)
    ends = {0: 2, 1: 1}
    while sum(ends.values()):
        ticket, node = forest.ask_one(0)
        side = int(node > forest.children(int(nodes[0]))[-1])
        if not ends[side]:
            forest.cancel([ticket])
            break
        forest.set_terminal([ticket])
        forest.tell_one(ticket, 0.0)
        ends[side] -= 1
    assert forest.visits_started[nodes].tolist() == [2, 1]
    assert forest.recommend([0]).tolist() == [nodes[1]]


def test_recommend_without_exhaust_takes_the_most_visited():
    forest = fan(2, exhaust=False, c_exp=2.0)
    for value in (1.0, 0.75, 0.75, 0.75):  # by hand: 1 at child 0, 0.75 at child 1, ..
        ticket, node = forest.ask_one(0)
        forest.tell_one(ticket, value if node == child(forest, 0) else 0.75)
    counts = forest.visits_started[forest.children(forest.root(0))]
    assert forest.recommend([0]) == forest.children(forest.root(0))[counts.argmax()]


def test_recommend_has_nothing_to_say_before_anything_is_told():
    forest = fan(2)
    ticket, _ = forest.ask_one(0)  # in flight is not told
    assert forest.recommend([0]).tolist() == [NO_NODE]
    forest.tell_one(ticket, 0.0)
    assert forest.recommend([0]).tolist() == [child(forest, 0)]


# Views and threads ----------------------------------------------------------------------------------------------------


def test_columns_are_read_only_views_that_survive_growth_and_the_forest():
    forest = fan(3)
    started, value_sum, first = forest.visits_started, forest.value_sum, child(forest, 0)
    for view in (started, value_sum):
        with pytest.raises(ValueError, match="read-only"):
            view[0] = 1
        with pytest.raises(ValueError, match="WRITEABLE"):
            view.flags.writeable = True
    ticket, _ = forest.ask_one(0)
    assert started[first : first + 3].tolist() == [1, 0, 0]
    forest.tell([ticket], [0.5])
    forest.add_trees(100_000)
    assert value_sum[first : first + 3].tolist() == [0.5, 0, 0]  # no copy, and where it was
    ticket, _ = forest.ask_one(0)
    assert started[first : first + 3].sum() == 2
    del forest
    assert value_sum[first : first + 3].tolist() == [0.5, 0, 0]


def test_arrays_of_any_whole_number_type_are_ids():
    for dtype in (np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64):
        forest = Forest()
        forest.add_trees(2)
        tickets, _, trees, _, _ = forest.ask(np.array([9, 1, 9], dtype=dtype)[1:2])
        assert trees.tolist() == [1]
        forest.tell(np.array([0, *tickets, 0], np.uint64)[1:2], np.array([0.5], dtype=np.float32))
        assert forest.table(1)["value_sum"].tolist() == [0.5]
    swapped = forest.ask(np.array([1], dtype=">i4"))[0]
    forest.tell(swapped.astype(">u8"), np.array([1.0, 0.5])[::2].astype(">f8"))
    assert forest.table(1)["value_sum"].tolist() == [1.5]


def test_threads_on_one_forest_take_turns():
    forest = Forest()
    forest.add_trees(64)

    def work(trees: list[int]) -> None:
        for _ in range(60):
            tickets, *_ = forest.ask(trees)
            forest.expand(tickets, [2] * len(tickets), [1, 0] * len(tickets))
            forest.tell(tickets, [0.5] * len(tickets))
            forest.visits_started.sum()

    threads = [threading.Thread(target=work, args=(list(range(k, 64, 4)),)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert forest.num_nodes == 64 + 64 * 60 * 2
    assert [int(forest.visits_started[forest.root(tree)]) for tree in range(64)] == [60] * 64
    assert forest.num_in_flight == 0
