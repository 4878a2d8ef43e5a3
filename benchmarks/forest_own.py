"""The forest at the work of forest.py: driven with NumPy arrays, one leaf at a time, and without Python."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from shutil import which

import numpy as np
from forest_workload import C_EXP, DEPTH, GOLDEN, MASK, Work, mix_array, root_hash

from agentq._core import Forest, Lockstep


def _root_counts(forest: Forest, roots: np.ndarray) -> list[list[int]]:
    started = forest.visits_started  # each look makes a view
    return [started[forest.children(int(root))].tolist() for root in roots]


_EIGHT = np.uint32(8)


def values_of(hashes: np.ndarray) -> np.ndarray:
    return (hashes >> _EIGHT) * 2.0**-24


def arrays(work: Work, evaluate: Callable[[np.ndarray], np.ndarray] = values_of) -> list[list[int]]:
    """All trees in lockstep; hashes in NumPy.

    known[node]: the hash of an expanded node. A leaf's hash follows from its parent's and its rank.
    """
    forest = Forest(selection="ucb1", c_exp=C_EXP, exhaust=False)
    every = forest.add_trees(work.trees)
    roots = np.array([forest.root(tree) for tree in every])
    known = np.zeros(work.cells, dtype=np.uint32)
    steps = ((np.arange(work.widest, dtype=np.uint64) + 1) * GOLDEN).astype(np.uint32)  # by rank
    rows = Lockstep(forest, every, work.simulations, work.batch)
    node, parent, rank, depth = rows.node, rows.parent, rows.rank, rows.depth
    values, widths = rows.values, rows.widths
    last, by_depth = np.int32(DEPTH), np.array([work.width] * DEPTH + [0], dtype=np.uint32)

    def answer(seeds: np.ndarray, size: int) -> int:
        hashes = mix_array(seeds)
        known.put(node[:size], hashes)
        values[:size] = evaluate(hashes)
        if work.varied:
            widths[:size] = 1 + hashes % np.uint32(work.widest)
            widths[:size] *= depth[:size] < last
        else:
            by_depth.take(depth[:size], out=widths[:size], mode="clip")
        return rows.step()

    size = answer((1 + np.arange(work.trees, dtype=np.uint64) * GOLDEN).astype(np.uint32), work.trees)  # the roots
    while size:
        seeds = known.take(parent[:size])
        seeds += steps.take(rank[:size])
        size = answer(seeds, size)
    return _root_counts(forest, roots)


def scalar(work: Work) -> list[list[int]]:
    """One leaf at a time, tree after tree; hashes in Python."""
    forest = Forest(selection="ucb1", c_exp=C_EXP, exhaust=False)
    roots = np.array([forest.root(tree) for tree in forest.add_trees(work.trees)])
    known = [0] * work.cells  # by node: its hash
    steps, width = [(rank + 1) * GOLDEN for rank in range(work.width)], work.width
    for tree, root in enumerate(roots.tolist()):
        step = Lockstep(forest, [tree], work.simulations).step_one
        h = known[root] = root_hash(tree)
        leaf = step((h >> 8) * 2.0**-24, width)
        while leaf:
            node, parent, rank, depth = leaf
            h = (known[parent] + steps[rank]) & MASK
            h = ((h ^ (h >> 16)) * 0x85EBCA6B) & MASK  # mix(), in place: a call costs as much as the search
            h = ((h ^ (h >> 13)) * 0xC2B2AE35) & MASK
            h ^= h >> 16
            known[node] = h
            leaf = step((h >> 8) * 2.0**-24, width if depth < DEPTH else 0)
    return _root_counts(forest, roots)


# Evaluator and search in C++ ------------------------------------------------------------------------------------------


def cmake() -> str | None:
    if find_spec("cmake"):
        from cmake import CMAKE_BIN_DIR  # type: ignore[import-not-found]

        return str(Path(CMAKE_BIN_DIR) / "cmake")
    return which("cmake")


@cache
def _program() -> Path:
    """Build benchmarks/forest.cc and return its path."""
    root = Path(__file__).resolve().parents[1]
    out = root / "build" / "benchmark"
    pybind = subprocess.check_output([sys.executable, "-m", "pybind11", "--cmakedir"], text=True).strip()
    words = [f"-Dpybind11_DIR={pybind}", f"-DPython_EXECUTABLE={sys.executable}", "-DCMAKE_BUILD_TYPE=Release"]
    for command in (["-S", str(root), "-B", str(out), *words], ["--build", str(out), "--target", "forest_bench"]):
        subprocess.run([str(cmake()), *command], check=True, stdout=subprocess.DEVNULL, env=os.environ)
    return out / "forest_bench"


def _lines(work: Work, repetitions: int) -> list[list[str]]:
    """CPU seconds and bytes in use per repetition; in the first also number and counts of each root's children."""
    words = [work.trees, work.simulations, work.width, work.batch, int(work.varied), repetitions]
    out = subprocess.check_output([_program(), *map(str, words)], text=True)
    return [line.split() for line in out.splitlines()]


def core(work: Work) -> list[list[int]]:
    words = iter(map(int, _lines(work, 1)[0][2:]))
    return [[next(words) for _ in range(width)] for width in words]


def core_seconds(work: Work, repetitions: int) -> list[float]:
    """CPU seconds of each repetition; the first, which also starts the program, is left out."""
    return [float(line[0]) for line in _lines(work, repetitions + 1)[1:]]


def core_bytes(work: Work) -> int:
    """The bytes that the forest itself reports."""
    return int(_lines(work, 1)[0][1])
