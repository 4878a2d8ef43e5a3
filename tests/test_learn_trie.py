"""The trie of token sequences: by hand, and against the set of all beginnings."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentq.learn.trie import Order, build_trie

CASES = {
    "one token": [[7]],
    "identical": [[1, 2, 3], [1, 2, 3]],
    "one a beginning of another": [[1, 2, 3, 4], [1, 2]],
    "beginnings in a chain": [[1], [1, 2], [1, 2, 3], [1, 2, 3, 4]],
    "chain with a fork at an end": [[1, 2], [1, 2, 3], [1, 2, 4], [1, 5]],
    "fork at the first token": [[1, 2], [3, 4], [5]],
    "fork inside": [[1, 2, 3, 4, 5], [1, 2, 9, 4, 5], [1, 2, 9, 7]],
    "three at a fork": [[1, 2, 3], [1, 2, 4], [1, 2, 5], [6]],
    "fork above a fork, found later": [[1, 2, 3, 4], [1, 2, 3, 5], [1, 6]],
    "ids that sort otherwise as text": [[255, 1], [256, 1], [2, 1], [70_000, 256]],
}


def beginnings(sequences: list[list[int]]) -> set[tuple[int, ...]]:
    return {tuple(s[: i + 1]) for s in sequences for i in range(len(s))}


def check(sequences: list[list[int]]) -> None:
    trie = build_trie([np.array(s) for s in sequences])
    size = len(trie.token_ids)
    assert size == len(trie.positions) == len(beginnings(sequences))
    visible = np.zeros((size, size), dtype=bool)  # query, key: by the paths
    for s, path in zip(sequences, trie.paths, strict=True):
        assert trie.token_ids[path].tolist() == s
        assert trie.positions[path].tolist() == list(range(len(s)))
        for i, query in enumerate(path):
            visible[query, path[: i + 1]] = True
    place = np.arange(size)
    ancestor = (place[None] <= place[:, None]) & (place[:, None] < trie.subtree_end[None])
    np.testing.assert_array_equal(ancestor, visible)
    # The segments say the same: all of the parents' tokens, and the earlier ones of one's own.
    for start, end, parent in zip(trie.bounds, trie.bounds[1:], trie.parents, strict=False):
        above = visible[trie.bounds[parent + 1] - 1] if parent >= 0 else np.zeros(size, dtype=bool)
        for query in range(start, end):
            above = above | (place == query)
            np.testing.assert_array_equal(visible[query], above)
    # Longest runs: a segment with one child, and no other, would be one with it, as would two roots be one root.
    for parent in set(trie.parents.tolist()) - {-1}:
        assert (trie.parents == parent).sum() >= 2


@pytest.mark.parametrize("sequences", CASES.values(), ids=CASES.keys())
def test_build_trie_of_awkward_sequences(sequences: list[list[int]]) -> None:
    check(sequences)
    check(sequences[::-1])


@settings(max_examples=200)
@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=7), min_size=1, max_size=8))
def test_build_trie_holds_each_beginning_once(sequences: list[list[int]]) -> None:
    check(sequences)


def test_build_trie_lays_out_depth_first() -> None:
    # The drawing in trie.py.
    a, b, c, d, e, f, g, x, y = range(9)
    trie = build_trie([np.array(s) for s in ([a, b, c, d], [a, b, c, e, f], [a, b, g], [x, y])])
    assert trie.token_ids.tolist() == [a, b, c, d, e, f, g, x, y]
    assert trie.positions.tolist() == [0, 1, 2, 3, 3, 4, 2, 0, 1]
    assert trie.bounds.tolist() == [0, 2, 3, 4, 6, 7, 9]
    assert trie.parents.tolist() == [-1, 0, 1, 1, 0, -1]
    assert trie.subtree_end.tolist() == [7, 7, 6, 4, 6, 6, 7, 9, 9]


@settings(max_examples=200)
@given(
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=7), min_size=1, max_size=8),
    st.randoms(use_true_random=False),
)
def test_order_counts_what_a_sequence_adds(sequences: list[list[int]], random: object) -> None:
    order = Order.of([np.array(s) for s in sequences])
    joining = list(range(len(sequences)))
    random.shuffle(joining)  # type: ignore[attr-defined]
    ranks: list[int] = []
    for n, i in enumerate(joining, start=1):
        ranks, added = order.join(ranks, [int(order.rank[i])])
        known = [sequences[j] for j in joining[: n - 1]]
        assert added == len(beginnings([*known, sequences[i]])) - len(beginnings(known))
    assert ranks == list(range(len(sequences)))


def test_order_by_length_shares_nothing() -> None:
    order = Order.by_length([np.array(s) for s in ([1, 2, 3], [1, 2], [1, 2, 3, 4])])
    assert order.rank.tolist() == [1, 0, 2]
    assert order.lengths.tolist() == [2, 3, 4]
    assert order.join([], [0, 1, 2]) == ([0, 1, 2], 3 * 4)  # three rows, padded to the longest
    assert [order.added(ranks, 1) for ranks in ([], [0], [2], [0, 2])] == [3, 2 * 3 - 2, 4, 4]
    assert order.join([0, 1], [1])[1] == 0  # the same one again
