"""The work of forest.py: trees whose leaves' values are hashes of their paths. The definition, in pure Python."""

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

    `plain`: the rules of the known root counts. N(h) under the logarithm is the count of h itself (Agent Q: the sum
    over its children, one less), and ties go to the lower index (the forest: to fewer visits, then to the lower index).
    """

    trees: int = 1
    simulations: int = 2000
    width: int = 5
    batch: int = 1
    plain: bool = False


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


class _Node:
    __slots__ = ("children", "count", "depth", "hash", "parent", "told", "total")

    def __init__(self, parent: _Node | None, h: int) -> None:
        self.parent, self.hash, self.children = parent, h, []
        self.depth = 0 if parent is None else parent.depth + 1
        self.count, self.told, self.total = 0, 0, 0.0  # count: with visits in flight

    children: list[_Node]


def pure_python(work: Work) -> list[list[int]]:
    """One tree after the other."""
    roots = [_Node(None, root_hash(tree)) for tree in range(work.trees)]
    for root in roots:
        done = 0
        while done < work.simulations:
            leaves = _batch(root, min(work.batch, work.simulations - done), work)
            for leaf in leaves:
                if not leaf.children and leaf.depth < DEPTH:
                    leaf.children = [_Node(leaf, child_hash(leaf.hash, i)) for i in range(work.width)]
                value, node = value_of(leaf.hash), leaf
                while node is not None:
                    node.told += 1
                    node.total += value
                    node = node.parent  # type: ignore[assignment]
            done += len(leaves)
    return [[child.count for child in root.children] for root in roots]


def _batch(root: _Node, size: int, work: Work) -> list[_Node]:
    leaves: list[_Node] = []
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
