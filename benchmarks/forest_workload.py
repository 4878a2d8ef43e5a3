"""The work of forest.py: trees whose leaves' values are hashes of their paths. The definition, in pure Python.

    h(root of tree t) = mix(1 + t * GOLDEN)      h(child i) = mix(h + (i + 1) * GOLDEN)      value = (h >> 8) / 2^24

A simulation descends by UCB1 with 1 + N, evaluates the node that it ends at, gives it K children unless it lies at
depth 10, and adds the value to the node and all above it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

C_EXP = math.sqrt(2.0)
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
        """Above every node id of a forest that does this work: blocks of even size, chunks that double."""
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
    """In [0, 1), exact in single precision."""
    return (h >> 8) / 2**24


def mix_array(h: np.ndarray) -> np.ndarray:
    """`mix` of uint32, elementwise; products wrap around."""
    h = (h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    h = (h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return h ^ (h >> np.uint32(16))


# Pure Python: the definition ------------------------------------------------------------------------------------------


class Node:
    __slots__ = ("children", "count", "depth", "hash", "parent", "told", "total")

    def __init__(self, parent: Node | None, h: int) -> None:
        self.parent, self.hash, self.children = parent, h, []
        self.depth = 0 if parent is None else parent.depth + 1
        self.count, self.told, self.total = 0, 0, 0.0  # count: with visits in flight

    children: list[Node]


def pure_python_trees(work: Work) -> list[Node]:
    """One tree after the other: their roots."""
    roots = [Node(None, root_hash(tree)) for tree in range(work.trees)]
    for root in roots:
        done = 0
        while done < work.simulations:
            leaves = select(root, min(work.batch, work.simulations - done), work)
            for leaf in leaves:
                if not leaf.children and leaf.depth < DEPTH:
                    width = 1 + leaf.hash % work.widest if work.varied else work.width
                    leaf.children = [Node(leaf, child_hash(leaf.hash, i)) for i in range(width)]
                back_up(leaf, value_of(leaf.hash))
            done += len(leaves)
    return roots


def pure_python(work: Work) -> list[list[int]]:
    return [[child.count for child in root.children] for root in pure_python_trees(work)]


def select(root: Node, size: int, work: Work) -> list[Node]:
    """Up to `size` leaves, in flight."""
    leaves: list[Node] = []
    for _ in range(size):
        node, path = root, [root]
        while node.children:
            visits = node.count if work.plain else node.count - 1
            scale = C_EXP * math.sqrt(math.log(max(1, visits)))
            best, best_score, best_count = node.children[0], -math.inf, 0
            for child in node.children:
                n = child.count
                score = (child.total / n if n else 0.0) + scale / math.sqrt(1 + n)
                if score > best_score or (score == best_score and n < best_count and not work.plain):
                    best, best_score, best_count = child, score, n
            node = best
            path.append(node)
        if node.count > node.told:  # in flight already: the batch is over
            break
        for step in path:
            step.count += 1
        leaves.append(node)
    return leaves


def back_up(leaf: Node, value: float) -> None:
    node: Node | None = leaf
    while node is not None:
        node.told += 1
        node.total += value
        node = node.parent
