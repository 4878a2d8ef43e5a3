"""What does a user gain from the forest, in time and in memory?

    python benchmarks/forest_gain.py [--json]

- with a model: 64 searches at once, each waiting 10 ms for every value. The median time in the tree per simulation, and
  its share of the wall time of one search alone and of all 64. With such a model the tree does not matter.
- cheap evaluator: 64 trees side by side. One small network in NumPy (64 inputs, 64 hidden units) evaluates one leaf of
  each. Simulations per second, and the share of the time outside the network. Root counts are checked.
- memory: 64 trees of 80,000 simulations each, without a depth limit: the growth of the process (Linux). Then, ten
  times, half of the trees are dropped and as many searched anew. The memory that a week of simulations takes if nothing
  is dropped follows from their rate. A forest holds at most 2^31 cells.

Pure Python is forest_workload.py's tree. The cheap evaluator is measured in CPU time of one core.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import time
from collections.abc import Awaitable, Callable
from statistics import median
from typing import Any

import forest_own
import forest_workload
import numpy as np
from forest_memory import resident, traced
from forest_workload import C_EXP, MASK, Node, Work, back_up, expand, mix_array, root_hash, select
from machine import commit, machine, target

from agentq._core import Forest

WIDTH, TREES = 5, 64
CALL_S = 0.010
WEEK_S = 7 * 24 * 3600
MOST_BYTES = 16 << 31  # of one forest

Value = Callable[[int], Awaitable[float]]

# With a model ---------------------------------------------------------------------------------------------------------


async def forest_search(forest: Forest, tree: int, simulations: int, value: Value) -> list[float]:
    """Seconds in the tree for each simulation."""
    spent = []
    for _ in range(simulations):
        start = time.perf_counter()
        ticket, node = forest.ask_one(tree)
        asked = time.perf_counter()
        worth = await value(node)
        told = time.perf_counter()
        forest.expand_one(ticket, WIDTH)
        forest.tell_one(ticket, worth)
        spent.append(asked - start + time.perf_counter() - told)
    return spent


async def python_search(root: Node, simulations: int, value: Value) -> list[float]:
    spent = []
    for _ in range(simulations):
        start = time.perf_counter()
        (path,) = select(root)
        asked = time.perf_counter()
        worth = await value(path[-1].hash)
        told = time.perf_counter()
        expand(path, WIDTH)
        back_up(path, worth)
        spent.append(asked - start + time.perf_counter() - told)
    return spent


async def beside_a_model(name: str, simulations: int = 100) -> dict[str, float]:
    async def value(seed: int) -> float:
        await asyncio.sleep(CALL_S)
        return forest_workload.value_of(forest_workload.mix(seed & MASK))

    start = time.perf_counter()
    if name == "forest":
        forest = Forest(selection="ucb1", c_exp=C_EXP, exhaust=False)
        jobs = [forest_search(forest, tree, simulations, value) for tree in forest.add_trees(TREES).tolist()]
    else:
        jobs = [python_search(Node(root_hash(tree)), simulations, value) for tree in range(TREES)]
    spent = await asyncio.gather(*jobs)
    wall, each = time.perf_counter() - start, median(seconds for search in spent for seconds in search)
    return {
        "tree_us_per_simulation": round(1e6 * each, 2),
        "share_of_one_search_alone": round(each / (each + CALL_S), 6),
        "share_of_64_at_once": round(each * TREES * simulations / wall, 5),
    }


# A cheap evaluator ----------------------------------------------------------------------------------------------------


class ValueHead:
    """A network of one hidden layer over features looked up by hash, and the seconds that it took."""

    def __init__(self) -> None:
        rng = np.random.default_rng(7)
        self.features = rng.standard_normal((4096, 64), dtype=np.float32)
        self.hidden = rng.standard_normal((64, 64), dtype=np.float32) / 8
        self.out = rng.standard_normal(64, dtype=np.float32) / 8
        self.seconds = 0.0

    def __call__(self, hashes: np.ndarray) -> np.ndarray:
        start = time.process_time()
        logits = np.maximum(self.features[hashes & 4095] @ self.hidden, 0) @ self.out
        values = (1 / (1 + np.exp(-logits))).astype(np.float64)
        self.seconds += time.process_time() - start
        return values


def python_lockstep(work: Work, evaluate: ValueHead) -> list[list[int]]:
    roots = [Node(root_hash(tree)) for tree in range(work.trees)]
    for _ in range(work.simulations):
        paths = [select(root)[0] for root in roots]
        values = evaluate(np.array([path[-1].hash for path in paths], dtype=np.uint32)).tolist()
        for path, value in zip(paths, values, strict=True):
            expand(path, work.width)
            back_up(path, value)
    return [[child.count for child in root.children] for root in roots]


def cheap_evaluator(rounds: int = 5) -> dict[str, dict[str, float]]:
    work = Work(TREES, 200, WIDTH)
    ways: dict[str, Callable[[Work, ValueHead], list[list[int]]]] = {
        "forest": forest_own.arrays,
        "pure Python": python_lockstep,
    }
    if forest_own.arrays(work, ValueHead()) != python_lockstep(work, ValueHead()):
        raise SystemExit("the forest must give the root counts of pure Python with the value head")
    rows: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, run in ways.items():
            head, start = ValueHead(), time.process_time()
            run(work, head)
            spent = time.process_time() - start
            rows[name].append((work.total / spent, 1 - head.seconds / spent))
    return {
        name: {
            "simulations_per_s": round(median(rate for rate, _ in row)),
            "share_in_tree": round(median(share for _, share in row), 3),
        }
        for name, row in rows.items()
    }


# Memory ---------------------------------------------------------------------------------------------------------------


def grow(forest: Forest, trees: np.ndarray, simulations: int) -> None:
    """Grow the forest alone: a node's value is a hash of its id."""
    widths = np.full(len(trees), WIDTH, dtype=np.uint32)
    for _ in range(simulations):
        tickets, nodes, *_ = forest.ask(trees)
        forest.expand(tickets, widths)
        forest.tell(tickets, forest_own.values_of(mix_array(nodes)))


def memory(simulations: int = 80_000, rounds: int = 10) -> dict[str, Any]:
    python = traced(forest_workload.pure_python, Work(1, 20_000, WIDTH)) / 20_000
    gc.collect()
    forest = Forest(selection="ucb1", c_exp=C_EXP, exhaust=False)
    trees = forest.add_trees(TREES)
    grow(forest, trees, 10)
    before, total = resident(), TREES * simulations
    grow(forest, trees, simulations - 10)
    peak, counted = resident() - before, forest.bytes_in_use
    half = trees[: TREES // 2]
    forest.drop(half)
    dropped, later = resident() - before, []
    for _ in range(rounds):
        half = forest.add_trees(TREES // 2)
        grow(forest, half, simulations)
        later.append(resident() - before)
        forest.drop(half)
    each = peak / total
    return {
        "simulations": total,
        "bytes_per_simulation": {"resident": round(each, 1), "counted": round(counted / total, 1)},
        "pure_python_bytes_per_simulation": round(python, 1),
        "resident_after_dropping_half": round(dropped / peak, 3),
        "resident_after_rounds": round(max(later) / peak, 3),
        "simulations_a_forest_holds": round(MOST_BYTES * total / counted),
        "week_gb": {
            f"{rate} simulations/s": {
                "forest": round(rate * WEEK_S * each / 1e9, 2),
                "pure Python": round(rate * WEEK_S * python / 1e9, 2),
            }
            for rate in (10, 100, 6400)
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    gc.freeze()
    figures = {
        "beside_a_model": {name: asyncio.run(beside_a_model(name)) for name in ("forest", "pure Python")},
        "cheap_evaluator": cheap_evaluator(),
        "memory": memory(),
    }
    again = target(figures["memory"]["resident_after_rounds"], 1.05, at_most=True)
    targets = {"resident memory after ten rounds of dropping and planting / first peak": again}
    report = {"figures": figures, "targets": targets, "machine": machine("numpy"), "commit": commit()}
    print(json.dumps(report) if args.json else json.dumps(report["figures"] | {"targets": targets}, indent=2))


if __name__ == "__main__":
    main()
