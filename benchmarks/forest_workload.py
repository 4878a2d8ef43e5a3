"""The work of forest.py, defined in pure Python: trees whose leaf values are hashes of their paths.

    h(root of tree t) = mix(1 + t * GOLDEN)      h(child i) = mix(h + (i + 1) * GOLDEN)      value = (h >> 8) / 2^24

A simulation descends by UCB1 with 1 + N, evaluates the node where it ends, gives it K children unless it is at depth
10, and adds the value to the node and to all its ancestors.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, sqrt

import numpy as np

C_EXP = sqrt(2.0)
DEPTH = 10
GOLDEN = 0x9E3779B9
MASK = 0xFFFFFFFF
# T=1, K=5, S=2000 by the plain rules, by batch size; known from outside this project
KNOWN_ROOT_COUNTS = {
    1: [457, 442, 336, 407, 357],
    8: [455, 442, 335, 408, 359],
    64: [449, 454, 333, 390, 373],
}


@dataclass(frozen=True, slots=True)
class Work:
    """T trees, S simulations each, width K, B leaves of a tree at once.

    `varied`: a node with the hash h has 1 + h % (2K - 1) children, K on average; else K.
    `plain`: the rules of the known root counts. N(h) under the logarithm is the count of h itself (Agent Q: the sum
    over its children, one less), and ties go to the lower index (the forest: to fewer visits, then to the lower index).
    """

    trees: int = 1
    simulations: int = 2000
    width: int = 5
    batch: int = 1
    varied: bool = False
    plain: bool = False

    @property
    def name(self) -> str:
        return f"T{self.trees} S{self.simulations} B{self.batch} K{'varied' if self.varied else self.width}"

    @property
    def total(self) -> int:
        return self.trees * self.simulations

    @property
    def cells(self) -> int:
        """An upper bound on the node ids of a forest that does this work: blocks of even size, chunks that double."""
        block = (self.widest + 2) // 2 * 2
        return self.trees * (256 + 4 * block * (self.simulations + 1))

    @property
    def widest(self) -> int:
        return 2 * self.width - 1 if self.varied else self.width


def mix(h: int) -> int:
    """murmur3's 32-bit finaliser."""
    h = ((h ^ (h >> 16)) * 0x85EBCA6B) & MASK
    h = ((h ^ (h >> 13)) * 0xC2B2AE35) & MASK
    return h ^ (h >> 16)


def root_hash(tree: int) -> int:
    return mix((1 + tree * GOLDEN) & MASK)


def child_hash(h: int, i: int) -> int:
    return mix((h + (i + 1) * GOLDEN) & MASK)


def value_of(h: int) -> float:
    """A value in [0, 1), exact in single precision."""
    return (h >> 8) / 2**24


_SHIFTS, _FACTORS = (np.uint32(16), np.uint32(13)), (np.uint32(0x85EBCA6B), np.uint32(0xC2B2AE35))


def mix_array(h: np.ndarray) -> np.ndarray:
    """`mix` of uint32, elementwise; products wrap around."""
    h = h ^ (h >> _SHIFTS[0])
    h *= _FACTORS[0]
    h ^= h >> _SHIFTS[1]
    h *= _FACTORS[1]
    h ^= h >> _SHIFTS[0]
    return h


# Pure Python: the definition ------------------------------------------------------------------------------------------


class Node:
    __slots__ = ("children", "count", "hash", "told", "total")

    def __init__(self, h: int) -> None:
        self.hash = h
        self.children: list[Node] = []
        self.count, self.told, self.total = 0, 0, 0.0  # count: with visits in flight


def pure_python_trees(work: Work) -> list[Node]:
    """The roots of the trees, searched one after the other."""
    roots = [Node(root_hash(tree)) for tree in range(work.trees)]
    for root in roots:
        done = 0
        while done < work.simulations:
            paths = select(root, min(work.batch, work.simulations - done), work.plain)
            for path in paths:
                h = path[-1].hash
                expand(path, 1 + h % work.widest if work.varied else work.width)
                back_up(path, (h >> 8) / 2**24)
            done += len(paths)
    return roots


def pure_python(work: Work) -> list[list[int]]:
    return [[child.count for child in root.children] for root in pure_python_trees(work)]


def select(root: Node, size: int = 1, plain: bool = False) -> list[list[Node]]:
    """The paths to up to `size` leaves, marked as in flight."""
    paths: list[list[Node]] = []
    for _ in range(size):
        node, path = root, [root]
        while node.children:
            visits = node.count if plain else node.count - 1
            scale = C_EXP * sqrt(log(visits)) if visits > 1 else 0.0
            best, best_score, best_count = node, -1.0, 0
            for child in node.children:
                n = child.count
                score = child.total / n + scale / sqrt(1 + n) if n else scale
                if score > best_score or (score == best_score and n < best_count and not plain):
                    best, best_score, best_count = child, score, n
            node = best
            path.append(node)
        if node.count > node.told:  # in flight already: the batch is over
            break
        for step in path:
            step.count += 1
        paths.append(path)
    return paths


def expand(path: list[Node], width: int) -> None:
    leaf = path[-1]
    if len(path) <= DEPTH and not leaf.children:
        leaf.children = [Node(child_hash(leaf.hash, i)) for i in range(width)]


def back_up(path: list[Node], value: float) -> None:
    for node in path:
        node.told += 1
        node.total += value
