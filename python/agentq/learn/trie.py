"""The trie of many token sequences, laid out depth first: common prefixes are stored once.

    a b c d      packed     a b c d | e f | g | x y        (sequences: abcd, abce..f, abg, xy)
    a b c e f    position   0 1 2 3   3 4   2   0 1
    a b g        segments   [ab] [c] [d] [ef] [g] [xy]
    x y          parents     -1   0   1   1    0   -1

A segment is a longest run without a fork. A token may see earlier tokens of its own segment and all of its ancestors'
segments. In this order, token k is visible to exactly the tokens k <= q < subtree_end[k].
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np


@dataclass(frozen=True, slots=True)
class Trie:
    """`T` packed tokens in `S` segments; parents come before their children."""

    token_ids: np.ndarray  # [T] int64
    positions: np.ndarray  # [T] int64: depth, from 0
    paths: list[np.ndarray]  # for each sequence, in the order given: [len] packed index of each token
    bounds: np.ndarray  # [S + 1] int64: segment s is packed[bounds[s] : bounds[s + 1]]
    parents: np.ndarray  # [S] int64: -1 for a root

    @property
    def subtree_end(self) -> np.ndarray:
        """`[T]` int64: for each token, the end of the packed tokens that may see it."""
        ends = self.bounds[1:].copy()
        for segment in range(len(self.parents) - 1, -1, -1):
            if (parent := self.parents[segment]) >= 0:
                ends[parent] = max(ends[parent], ends[segment])
        return np.repeat(ends, np.diff(self.bounds))


@dataclass(frozen=True, slots=True)
class Order:
    """`N` sequences in lexicographic order, in which all sequences between two share their common prefix."""

    rank: np.ndarray  # [N] int64: rank of each sequence, in the order given
    lengths: np.ndarray  # [N] int64, by rank
    common: np.ndarray  # [N] int64: tokens in common with the rank before; 0 for rank 0
    padded: bool = False  # sequences are rows, padded to the longest of them; nothing is shared

    @classmethod
    def of(cls, sequences: Sequence[np.ndarray]) -> Order:
        """Sort `sequences` of non-negative token ids."""
        keys = [np.asarray(ids).astype(">u4").tobytes() for ids in sequences]  # big-endian bytes sort like the ids
        order = sorted(range(len(keys)), key=keys.__getitem__)
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order))
        common = [0, *(_common(sequences[a], sequences[b]) for a, b in pairwise(order))]
        return cls(rank, np.array([len(sequences[i]) for i in order]), np.array(common[: len(order)]))

    @classmethod
    def by_length(cls, sequences: Sequence[np.ndarray]) -> Order:
        """An order by length, of padded rows: no two share a prefix."""
        lengths = np.array([len(ids) for ids in sequences], dtype=np.int64)
        order = np.argsort(lengths, kind="stable")
        return cls(np.argsort(order), lengths[order], np.zeros_like(lengths), padded=True)

    def shared(self, a: int, b: int) -> int:
        """Length of the common prefix of ranks a <= b."""
        return int(self.common[a + 1 : b + 1].min()) if a < b else int(self.lengths[a])

    def added(self, ranks: list[int], rank: int) -> int:
        """Tokens, padding included, by which the batch of the sorted `ranks` grows when `rank` joins it."""
        at = bisect_left(ranks, rank)
        if self.padded:
            width = int(self.lengths[ranks[-1]]) if ranks else 0
            rows = len(ranks) + (ranks[at : at + 1] != [rank])
            return rows * max(width, int(self.lengths[rank])) - len(ranks) * width
        known = [self.shared(ranks[at - 1], rank)] if at else []
        known += [self.shared(rank, ranks[at])] if at < len(ranks) else []
        return int(self.lengths[rank]) - max(known, default=0)

    def join(self, ranks: list[int], joining: Sequence[int]) -> tuple[list[int], int]:
        """The sorted ranks with `joining`, and the number of tokens added."""
        ranks, tokens = list(ranks), 0
        for rank in joining:
            tokens += self.added(ranks, rank)
            insort(ranks, rank)
        return ranks, tokens


def build_trie(sequences: Sequence[np.ndarray]) -> Trie:
    """The trie of at least one sequence of at least one token; equal ones share one path."""
    order = Order.of(sequences)
    paths: list[np.ndarray] = [np.empty(0, np.int64)] * len(sequences)
    blocks: list[np.ndarray] = []
    positions: list[np.ndarray] = []
    above: dict[int, int] = {}  # packed index of a segment's first token; of its parent's last token
    end, path = 0, np.empty(0, np.int64)
    for i, common in zip(np.argsort(order.rank), order.common.tolist(), strict=True):
        fresh = np.asarray(sequences[i])[common:]
        if len(fresh):
            parent = int(path[common - 1]) if common else -1
            if parent < 0 or parent + 1 != end:
                above[end] = parent
                if parent >= 0:
                    above.setdefault(parent + 1, parent)
            blocks.append(fresh)
            positions.append(np.arange(common, common + len(fresh)))
        path = np.concatenate([path[:common], np.arange(end, end + len(fresh))])
        paths[i] = path
        end += len(fresh)
    starts = np.array(sorted(above))
    parents = np.array([above[start] for start in starts.tolist()])
    return Trie(
        token_ids=np.concatenate(blocks).astype(np.int64),
        positions=np.concatenate(positions),
        paths=paths,
        bounds=np.append(starts, end),
        parents=np.searchsorted(starts, parents, side="right") - 1,
    )


def _common(a: np.ndarray, b: np.ndarray) -> int:
    size = min(len(a), len(b))
    differ = np.flatnonzero(a[:size] != b[:size])
    return int(differ[0]) if len(differ) else size
