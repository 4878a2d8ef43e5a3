"""How fast is the forest beside other tree searches that do the same work?

    python benchmarks/forest.py [--json] [--simulations 200 2000] [--trees 1 64] [--seconds 2]

The work: T trees of width K and depth at most 10; a leaf's value is a hash of its path; UCB1 with 1 + N and c = sqrt 2;
a visit in flight is worth 0. First visits evaluate a node and give it K children. Root counts are checked before
anything is timed. CPU time of one process, medians of repetitions.

The forest takes part in three ways: driven with NumPy arrays, driven one leaf at a time, and in C++ with the evaluator
(built with CMake where there is a compiler). mctx, OpenSpiel and TreeQuest join where they are installed (`pip install
mctx open_spiel treequest`). mctx is given UCB1 and does the same work; the rules of the other two differ, so that their
root counts are not compared.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from shutil import which
from typing import Any

import numpy as np
from forest_peers import mctx_ucb1, openspiel, treequest
from forest_workload import (
    C_EXP,
    DEPTH,
    GOLDEN,
    KNOWN_ROOT_COUNTS,
    MASK,
    Work,
    mix_array,
    pure_python,
)

from agentq._core import Forest


@dataclass(frozen=True, slots=True)
class Contestant:
    """`run` does the work and gives the visit counts of the roots' children `[T][K]`."""

    name: str
    run: Callable[[Work], list[list[int]]]
    same_work: bool
    only_one_tree: bool = False
    leaf_by_leaf: bool = False
    seconds: Callable[[Work], list[float]] | None = None  # times itself: CPU seconds of some repetitions


# The forest, driven from Python ---------------------------------------------------------------------------------------


def _root_counts(forest: Forest, roots: np.ndarray, width: int) -> list[list[int]]:
    first = [forest.children(int(root))[0] for root in roots]
    return [forest.started[child : child + width].tolist() for child in first]


def forest_arrays(work: Work) -> list[list[int]]:
    """Asks all trees at once; hashes in NumPy. A node's hash is mixed when it is visited, from the seed that its parent
    left for it."""
    forest = Forest(selection="ucb1", c_exp=C_EXP, exhaust=False)
    trees = forest.add_trees(work.trees)
    roots = np.array([forest.root(tree) for tree in trees])
    seeds = np.zeros(_cells(work), dtype=np.uint32)
    seeds[roots] = (1 + np.arange(work.trees, dtype=np.uint64) * GOLDEN).astype(np.uint32)
    steps = ((np.arange(work.width, dtype=np.uint64) + 1) * GOLDEN).astype(np.uint32)
    offsets = np.arange(work.width)
    widths = np.full(work.trees * work.batch, work.width, dtype=np.uint32)
    left = np.full(work.trees, work.simulations)
    while trees.size:
        batch = min(work.batch, int(left[trees[0]]))
        for _ in range(int(left[trees].min()) // batch):  # until a tree may be done
            tickets, leaves, asked, depth, _ = forest.ask(trees, batch)
            hashes = mix_array(seeds.take(leaves))
            if depth.max() < DEPTH:
                first = forest.expand(tickets, widths[: len(tickets)])
                seeds[first[:, None] + offsets] = hashes[:, None] + steps
            else:
                fresh = depth < DEPTH
                first = forest.expand(tickets[fresh], widths[: np.count_nonzero(fresh)])
                seeds[first[:, None] + offsets] = hashes[fresh][:, None] + steps
            forest.tell(tickets, (hashes >> 8) * 2.0**-24)
            if len(tickets) == len(trees) * batch:
                left[trees] -= batch
            else:  # somebody was blocked
                left -= np.bincount(asked, minlength=work.trees)
        trees = np.flatnonzero(left > 0).astype(np.int32)
    return _root_counts(forest, roots, work.width)


def _cells(work: Work) -> int:
    """Above every node id that the work can need: blocks of even size, chunks that double."""
    block = (work.width + 2) // 2 * 2
    return work.trees * (256 + 4 * block * (work.simulations + 1))


def forest_scalar(work: Work) -> list[list[int]]:
    """One leaf at a time, tree after tree; hashes in Python, mixed when visited."""
    forest = Forest(selection="ucb1", c_exp=C_EXP, exhaust=False)
    ask, expand, tell = forest.ask_one, forest.expand_one, forest.tell_one
    roots = np.array([forest.root(tree) for tree in forest.add_trees(work.trees)])
    known = [0] * _cells(work)  # depth << 40 | the seed, which may be above 2**32
    steps = [((i + 1) * GOLDEN & MASK) + (1 << 40) for i in range(work.width)]
    width = work.width
    for tree, root in enumerate(roots.tolist()):
        known[root] = (1 + tree * GOLDEN) & MASK
        for _ in range(work.simulations):
            ticket, node = ask(tree)
            seed = known[node]
            h = seed & 0xFFFFFFFF  # mix(), in place: a call costs as much as the search
            h = ((h ^ (h >> 16)) * 0x85EBCA6B) & 0xFFFFFFFF
            h = ((h ^ (h >> 13)) * 0xC2B2AE35) & 0xFFFFFFFF
            h ^= h >> 16
            depth = seed >> 40
            if depth < DEPTH:
                first = expand(ticket, width)
                base = (depth << 40) + h
                known[first : first + width] = [base + step for step in steps]
            tell(ticket, (h >> 8) * 2.0**-24)
    return _root_counts(forest, roots, work.width)


# The forest without Python --------------------------------------------------------------------------------------------


@cache
def program() -> Path:
    """benchmarks/forest.cc, built."""
    root = Path(__file__).resolve().parents[1]
    out = root / "build" / "benchmark"
    pybind = subprocess.check_output([sys.executable, "-m", "pybind11", "--cmakedir"], text=True).strip()
    words = [f"-Dpybind11_DIR={pybind}", f"-DPython_EXECUTABLE={sys.executable}", "-DCMAKE_BUILD_TYPE=Release"]
    env = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    for command in (["-S", str(root), "-B", str(out), *words], ["--build", str(out), "--target", "forest_bench"]):
        subprocess.run(["cmake", *command], check=True, stdout=subprocess.DEVNULL, env=env)
    return out / "forest_bench"


def _run_program(work: Work, repetitions: int) -> list[list[str]]:
    words = [str(x) for x in (work.trees, work.simulations, work.width, work.batch, repetitions)]
    return [line.split() for line in subprocess.check_output([program(), *words], text=True).splitlines()]


def forest_native(work: Work) -> list[list[int]]:
    """Evaluator and search in C++."""
    counts = [int(word) for word in _run_program(work, 1)[0][2:]]
    return [counts[i : i + work.width] for i in range(0, len(counts), work.width)]


def forest_native_seconds(work: Work) -> list[float]:
    """CPU seconds of each repetition; the first, which also starts the program, is left out."""
    repetitions = max(10, 10_000_000 // (work.trees * work.simulations))  # about a second
    return [float(line[0]) for line in _run_program(work, repetitions)[1:]]


CONTESTANTS = [
    Contestant("forest, arrays", forest_arrays, same_work=True),
    Contestant("forest, one leaf at a time", forest_scalar, same_work=True, leaf_by_leaf=True),
    Contestant("pure Python", pure_python, same_work=True),
]
if which("cmake", path=str(Path(sys.executable).parent)) or which("cmake"):
    CONTESTANTS.append(Contestant("forest, in C++", forest_native, same_work=True, seconds=forest_native_seconds))
if find_spec("mctx"):
    CONTESTANTS.append(Contestant("mctx, CPU", mctx_ucb1, same_work=False, leaf_by_leaf=True))
if find_spec("treequest"):
    CONTESTANTS.append(
        Contestant("TreeQuest StandardMCTS", treequest, same_work=False, leaf_by_leaf=True, only_one_tree=True)
    )
if find_spec("open_spiel"):
    CONTESTANTS.append(
        Contestant("OpenSpiel, Python", openspiel, same_work=False, leaf_by_leaf=True, only_one_tree=True)
    )


def check() -> None:
    """Root counts: the definition against the known ones, everyone who does the same work against the definition."""
    for batch, known in KNOWN_ROOT_COUNTS.items():
        found = pure_python(Work(batch=batch, plain=True))
        if found != [known]:
            raise SystemExit(f"pure Python must give the root counts {known} at B={batch}; got {found[0]}")
    if find_spec("mctx") and mctx_ucb1(Work()) != [KNOWN_ROOT_COUNTS[1]]:
        raise SystemExit(f"mctx must give the root counts {KNOWN_ROOT_COUNTS[1]}; got {mctx_ucb1(Work())}")
    for work in (Work(batch=b) for b in (1, 8, 64)):
        _agree(work)
    _agree(Work(trees=3, simulations=500, width=20, batch=4))


def _agree(work: Work) -> None:
    want = pure_python(work)
    for contestant in CONTESTANTS:
        possible = contestant.same_work and not (contestant.leaf_by_leaf and work.batch > 1)
        if possible and contestant.run(work) != want:
            raise SystemExit(f"{contestant.name} must give the root counts of pure Python on {work}")


def rate(contestant: Contestant, work: Work, seconds: float) -> float:
    """Median simulations a CPU second, over repetitions that take at least `seconds` together."""
    if contestant.seconds is not None:
        return work.trees * work.simulations / statistics.median(contestant.seconds(work))
    contestant.run(work if contestant.run is mctx_ucb1 else Work(simulations=10, width=work.width))  # first calls
    rates: list[float] = []
    spent = 0.0
    while spent < seconds or len(rates) < 3:
        start = time.process_time()
        contestant.run(work)
        took = time.process_time() - start
        spent += took
        rates.append(work.trees * work.simulations / took)
        if took > seconds:
            break
    return statistics.median(rates)


def memory(contestant: Contestant, work: Work) -> float | None:
    """Bytes a simulation: what the forest counts itself, what tracemalloc sees at its peak of the pure Python ones."""
    if contestant.run is forest_native:
        return int(_run_program(work, 1)[0][1]) / (work.trees * work.simulations)
    if contestant.name.startswith("forest") or contestant.run is mctx_ucb1:
        return None
    tracemalloc.start()
    contestant.run(work)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / (work.trees * work.simulations)


def ratios(figures: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """How many times as fast the forest's ways are as everyone else on the same work."""
    key = ("trees", "simulations", "batch", "width")
    return [
        {**{k: ours[k] for k in key}, "forest": ours["contestant"], "peer": peer["contestant"]}
        | {"ratio": round(ours["simulations_per_s"] / peer["simulations_per_s"], 2)}
        for ours, peer in product([figure for figure in figures if "simulations_per_s" in figure], repeat=2)
        if ours["contestant"].startswith("forest") and not peer["contestant"].startswith("forest")
        if all(ours[k] == peer[k] for k in key)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trees", type=int, nargs="+", default=[1, 64])
    parser.add_argument("--simulations", type=int, nargs="+", default=[200, 2000])
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--width", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="CPU time for each figure, about")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    check()
    figures = []
    for trees in args.trees:
        for simulations in args.simulations:
            for batch in args.batch:
                work = Work(trees, simulations, args.width, batch)
                for contestant in CONTESTANTS:
                    if (contestant.only_one_tree and trees > 1) or (contestant.leaf_by_leaf and batch > 1):
                        continue
                    if trees * simulations > 20_000 and not contestant.name.startswith(("forest", "pure")):
                        continue
                    figure = {"contestant": contestant.name, "trees": trees, "simulations": simulations}
                    speed = rate(contestant, work, args.seconds)
                    figures.append({**figure, "batch": batch, "width": args.width, "simulations_per_s": round(speed)})
                    if not args.json:
                        print(f"T={trees:3} S={simulations:5} B={batch:2}  {speed:12,.0f}/s  {contestant.name}")
    for contestant in CONTESTANTS:
        if (used := memory(contestant, Work(width=args.width))) is not None:
            figures.append({"contestant": contestant.name, "width": args.width, "bytes_per_simulation": round(used)})
            if not args.json:
                print(f"T=  1 S= 2000  {used:12,.0f} bytes a simulation  {contestant.name}")
    if args.json:
        print(json.dumps({"figures": figures, "ratios": ratios(figures)}))


if __name__ == "__main__":
    main()
