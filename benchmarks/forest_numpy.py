"""NumPy alone at the work of forest.py: T trees side by side, one descent of each at a time.

An expanded node is a row of K slots, so a slot is the number `row * K + child`. The first T rows are the roots. Every
level of a descent takes a few array operations over the trees whose descent has not ended.
"""

from __future__ import annotations

import math

import numpy as np
from forest_workload import C_EXP, DEPTH, GOLDEN, Work, mix_array, root_hash


class Lockstep:
    def __init__(self, work: Work) -> None:
        self.work, width, slots = work, work.width, work.total * work.width
        # one more slot at the end, for the levels that a path does not reach
        self.count = np.zeros(slots + 1, dtype=np.int32)  # with visits in flight
        self.total = np.zeros(slots + 1)
        self.row = np.full(slots + 1, -1, dtype=np.int32)  # of the children; -1: a leaf
        self.flying = np.zeros(slots + 1, dtype=bool)
        self.counts = self.count[:-1].reshape(-1, width)
        self.totals = self.total[:-1].reshape(-1, width)
        self.hash = np.zeros(work.total, dtype=np.uint32)  # of a row
        self.hash[: work.trees] = [root_hash(tree) for tree in range(work.trees)]
        self.rows = work.trees
        visits = range(work.simulations + 1)
        self.scale = np.array([C_EXP * math.sqrt(math.log(max(1, n))) for n in visits])
        self.root = np.sqrt(1.0 + np.arange(work.simulations + 1))
        self.started = np.ones(work.trees, dtype=np.int32)  # of the roots, which are expanded at once
        self.steps = ((np.arange(width, dtype=np.uint64) + 1) * GOLDEN).astype(np.uint32)

    def choose(self, rows: np.ndarray, visits: np.ndarray) -> np.ndarray:
        """The slot that the rule chooses in each row; `visits` is N(h), under the logarithm."""
        count = self.counts.take(rows, axis=0)
        score = self.totals.take(rows, axis=0)
        score /= np.maximum(count, 1)
        score += self.scale.take(visits)[:, None] / self.root.take(count)
        if self.work.batch > 1:  # ties, which visits in flight make, go to fewer visits
            tied = score == score.max(axis=1, keepdims=True)
            score = np.where(tied, -count, -np.inf)
        return rows * self.work.width + score.argmax(axis=1)

    def descend(self, trees: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Leaf and depth of each tree, and the slots from the root to it, one row per level."""
        leaf, depth = np.empty_like(trees), np.full(trees.size, DEPTH)
        path = np.full((DEPTH, trees.size), -1)
        going, rows, visits = np.arange(trees.size), trees, self.started[trees] - 1
        for level in range(DEPTH):
            slots = self.choose(rows, visits)
            path[level, going] = leaf[going] = slots
            below = self.row.take(slots)
            on = below >= 0
            if not on.all():
                depth[going[~on]] = level + 1
                going, slots, below = going[on], slots[on], below[on]
                if not going.size:
                    break
            rows, visits = below.astype(np.intp), self.count.take(slots) - 1
        return leaf, depth, path[: level + 1]

    def simulate(self, trees: np.ndarray, size: int) -> np.ndarray:
        """Simulate up to `size` leaves of each tree; return how many each tree had."""
        had, found = np.zeros(self.work.trees, dtype=int), []
        for _ in range(size):
            leaf, depth, path = self.descend(trees)
            free = ~self.flying.take(leaf)
            if not free.all():  # in flight already: that tree's batch is over
                trees, leaf, depth, path = trees[free], leaf[free], depth[free], path[:, free]
            self.count[path] += 1
            self.started[trees] += 1
            had[trees] += 1
            if size > 1:
                self.flying[leaf] = True
            found.append((leaf, depth, path))
        for leaf, depth, path in found:
            self.flying[leaf] = False
            row, child = np.divmod(leaf, self.work.width)
            h = mix_array(self.hash.take(row) + self.steps.take(child))
            self.total[path] += (h >> 8) * 2.0**-24
            fresh = depth < DEPTH
            new = np.arange(self.rows, self.rows + np.count_nonzero(fresh))
            self.row[leaf[fresh]], self.hash[new] = new, h[fresh]
            self.rows += new.size
        return had

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in (self.count, self.total, self.row, self.flying, self.hash))


def search(work: Work) -> Lockstep:
    forest = Lockstep(work)
    left = np.full(work.trees, work.simulations - 1)  # the roots' own
    while left.any():
        batch = min(work.batch, int(left.max()))
        left -= forest.simulate(np.flatnonzero(left >= batch), batch)
    return forest


def lockstep(work: Work) -> list[list[int]]:
    counts: list[list[int]] = search(work).counts[: work.trees].tolist()
    return counts
