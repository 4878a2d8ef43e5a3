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
from forest_workload import C_EXP, DEPTH, GOLDEN, MASK, Work, mix_array
from numpy.lib.stride_tricks import sliding_window_view

from agentq._core import Forest


def _root_counts(forest: Forest, roots: np.ndarray) -> list[list[int]]:
    return [forest.visits_started[forest.children(int(root))].tolist() for root in roots]


_EIGHT = np.uint32(8)


def values_of(hashes: np.ndarray) -> np.ndarray:
    return (hashes >> _EIGHT) * 2.0**-24


def arrays(work: Work, evaluate: Callable[[np.ndarray], np.ndarray] = values_of) -> list[list[int]]:
    """Ask all trees at once; hashes in NumPy.

    A node's hash is mixed when it is visited, from the seed that its parent left for it.
    """
    forest = Forest(selection="ucb1", c_exp=C_EXP, exhaust=False)
    every = forest.add_trees(work.trees)
    roots = np.array([forest.root(tree) for tree in every])
    seeds = np.zeros(work.cells, dtype=np.uint32)
    seeds[roots] = (1 + np.arange(work.trees, dtype=np.uint64) * GOLDEN).astype(np.uint32)
    steps = ((np.arange(work.widest, dtype=np.uint64) + 1) * GOLDEN).astype(np.uint32)
    offsets = np.arange(work.widest)
    blocks = sliding_window_view(seeds, work.width, writeable=True)  # blocks[first]: the seeds of K siblings
    widths = np.full(work.trees * work.batch, work.width, dtype=np.uint32)
    left = np.full(work.trees, work.simulations)
    while left.any():
        batch = min(work.batch, int(left.max()))
        trees = every[left >= batch]
        size, done = len(trees) * batch, 0
        for _ in range(int(left[trees].min()) // batch):  # until one of them may have too few left
            tickets, leaves, asked, depth, _ = forest.ask(trees, batch)
            hashes = mix_array(seeds.take(leaves))
            growing, grown = tickets, hashes
            fresh = depth < DEPTH
            if np.count_nonzero(fresh) < len(fresh):
                growing, grown = tickets[fresh], hashes[fresh]
            if work.varied:
                width = 1 + grown % np.uint32(work.widest)
                first = forest.expand(growing, width)
                inside = offsets < width[:, None]
                seeds[(first[:, None] + offsets)[inside]] = (grown[:, None] + steps)[inside]
            else:
                blocks[forest.expand(growing, widths[: len(growing)])] = grown[:, None] + steps
            forest.tell(tickets, evaluate(hashes))
            if len(tickets) < size:  # a tree was blocked
                left -= np.bincount(asked, minlength=work.trees)
                break
            done += batch
        left[trees] -= done
    return _root_counts(forest, roots)


def scalar(work: Work) -> list[list[int]]:
    """One leaf at a time, tree after tree; hashes in Python.

    Siblings share one record: their parent's hash, the first sibling, their depth.
    """
    forest = Forest(selection="ucb1", c_exp=C_EXP, exhaust=False)
    ask, expand, tell, width = forest.ask_one, forest.expand_one, forest.tell_one, work.width
    roots = np.array([forest.root(tree) for tree in forest.add_trees(work.trees)])
    known: list[tuple[int, int, int]] = [(0, 0, 0)] * work.cells
    for tree, root in enumerate(roots.tolist()):
        known[root] = (1 + (tree - 1) * GOLDEN, root, 0)
        for _ in range(work.simulations):
            ticket, node = ask(tree)
            h, first, depth = known[node]
            h = (h + (node - first + 1) * GOLDEN) & MASK
            h = ((h ^ (h >> 16)) * 0x85EBCA6B) & MASK  # mix(), in place: a call costs as much as the search
            h = ((h ^ (h >> 13)) * 0xC2B2AE35) & MASK
            h ^= h >> 16
            if depth < DEPTH:
                first = expand(ticket, width)
                known[first : first + width] = [(h, first, depth + 1)] * width
            tell(ticket, (h >> 8) * 2.0**-24)
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
