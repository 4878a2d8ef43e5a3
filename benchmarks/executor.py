"""Search on `booking` with the embedded model: simulations per second inline, in worker processes and in Ray actors.

    python benchmarks/executor.py [--trees 64] [--iterations 8] [--workers 0 2] [--ray] [--repeats 3] [--json]

A simulation is one rollout of a search. Models are loaded before the clock starts. All kinds are measured in turn, and
ratios are medians over the turns, which a busy machine changes less than the figures of one kind. Trees count as the
same if their shape, visits, actions and tokens are; log-probabilities differ by rounding. CPU seconds and memory (PSS,
which divides shared pages among their processes) are those of the process tree. `--ray` also measures each number of
workers with the actors of a cluster on this machine. `--ceiling` also runs as many searches side by side that share
nothing, each in a process of its own with its part of the trees: what the cores allow, whose caches and memory are one.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import zip_longest
from multiprocessing import Manager, get_context
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import psutil
import torch
from machine import commit, machine, target

from agentq.config import Search, Settings
from agentq.model_settings import CriticSettings
from agentq.policies.engine_names import embedded_base
from agentq.recipes.executor import MODULES
from agentq.recipes.pipeline import Pipeline, search_settings
from agentq.recipes.resources import Resources, loading, searches
from agentq.searching.actors import Actors
from agentq.searching.collect import attempts
from agentq.searching.processes import Processes
from agentq.status import Show
from agentq.store.records import TreeRecord
from agentq.store.run import TREE, RunStore
from agentq.types import Split


class Silent:
    def stage(self, name: str, total: int, unit: str) -> Show:
        return lambda done, note, grown=0.0: None

    def plan(self, stages: Any, in_flight: int) -> None: ...

    def say(self, text: str) -> None: ...


class Watch:
    """CPU seconds of the process tree, and the largest sum of its PSS, in a block."""

    def __enter__(self) -> Watch:
        self.begun, self.cpu, self.peak, self.over = time.perf_counter(), _cpu(), 0, threading.Event()
        self.thread = threading.Thread(target=self._look)
        self.thread.start()
        return self

    def _look(self) -> None:
        while not self.over.wait(0.5):
            self.peak = max(self.peak, _pss())

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()
        self.seconds, self.cpu = time.perf_counter() - self.begun, _cpu() - self.cpu


def _tree() -> list[psutil.Process]:
    me = psutil.Process()
    return [me, *me.children(recursive=True)]


def _cpu() -> float:
    return sum(sum(process.cpu_times()[:2]) for process in _tree())


def _pss() -> int:
    return sum(int(process.memory_full_info().pss) for process in _tree())


def alone(args: argparse.Namespace, part: int, begin: Barrier) -> float:
    """Seconds of an inline search of one part of the trees, begun together with the others."""
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        return float(searched(Path(folder), args, 0, "processes", part, begin)["seconds"])


def side_by_side(args: argparse.Namespace, number: int) -> float:
    """Seconds of the slowest of `number` inline searches at once, each of a part of the trees."""
    args = argparse.Namespace(**vars(args) | {"trees": args.trees // number, "in_flight": args.in_flight // number})
    with Manager() as manager, ProcessPoolExecutor(number, mp_context=get_context("spawn")) as pool:
        begin = manager.Barrier(number)
        return max(pool.map(partial(alone, args, begin=begin), range(number)))


def searched(
    folder: Path, args: argparse.Namespace, workers: int, kind: str, part: int = 0, begin: Barrier | None = None
) -> dict[str, Any]:
    settings, base = Settings(), embedded_base()
    search = search_settings(Search(num_trees_in_flight=args.in_flight), args.iterations, 0)
    job = partial(searches, policy=base, critic=CriticSettings(), settings=search, stage="x")
    resources, processes = Resources(settings, base), None
    if kind == "ray":
        processes = Actors(resources, workers, address="local")
    elif workers:
        processes = Processes(resources, workers, MODULES)
    with RunStore.open(folder / f"{workers}{kind}", {}) as store:
        p = Pipeline(store, settings, base, Silent(), workers=processes)
        p.__dict__["in_flight"] = args.in_flight
        if processes is None:
            p.engine(base)
        else:
            processes.load(partial(loading, names=[base]))
        tasks = p.tasks(Split.TRAIN, args.trees, part * args.trees)
        if begin is not None:
            begin.wait()
        with Watch() as watch:
            p.collect("x", attempts(tasks), job, kind=TREE)
        trees = list(store.trees("x"))
        p.close()
    if processes is not None:
        processes.close()
    simulations = sum(int(tree.info["iterations"]) for tree in trees)
    return {
        "workers": workers,
        "kind": kind,
        "simulations": simulations,
        "seconds": round(watch.seconds, 2),
        "cpu_s": round(watch.cpu, 2),
        "simulations_per_s": round(simulations / watch.seconds, 2),
        "simulations_per_cpu_s": round(simulations / watch.cpu, 2),
        "peak_pss_mib": watch.peak >> 20,
        "trees": trees,
    }


def shape(tree: TreeRecord) -> tuple[object, ...]:
    tokens = [None if p is None else p.token_ids.tolist() for p in tree.proposal]
    return tree.parent.tolist(), tree.visit_count.tolist(), tree.value_sum.tolist(), tokens


def compared(trees: list[TreeRecord], others: list[TreeRecord]) -> tuple[int, int, float]:
    """Samples, those with the same tokens at the same node, and the largest difference of their log-probabilities."""
    found = [
        (p, q)
        for tree, other in zip(trees, others, strict=True)
        for p, q in zip_longest(tree.proposal, other.proposal)
        if p is not None
    ]
    same = [(p, q) for p, q in found if q is not None and np.array_equal(p.token_ids, q.token_ids)]
    return len(found), len(same), max(float(np.abs(p.logps - q.logps).max()) for p, q in same)


def ratio(turns: list[list[dict[str, Any]]], one: int, other: int, what: str) -> float:
    """Median over the turns of the figure of kind `one`, divided by that of kind `other`."""
    return round(float(np.median([turn[one][what] / turn[other][what] for turn in turns])), 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trees", type=int, default=64)
    parser.add_argument("--iterations", type=int, default=8)
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 2], help="0: this process")
    parser.add_argument("--ray", action="store_true")
    parser.add_argument("--ceiling", action="store_true")
    parser.add_argument("--in-flight", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    kinds = [(n, kind) for n in args.workers for kind in ("processes", "ray") if kind != "ray" or (args.ray and n)]
    turns: list[list[dict[str, Any]]] = []
    ceilings: dict[int, list[float]] = {}  # by number of processes: how many times as fast as one
    for _ in range(args.repeats):
        with tempfile.TemporaryDirectory() as folder:
            turns.append([searched(Path(folder), args, *each) for each in kinds])
        for n in {n for n, _ in kinds if args.ceiling and n}:
            ceilings.setdefault(n, []).append(turns[-1][0]["seconds"] / side_by_side(args, n))
    rows = turns[0]
    for row in rows:
        row["samples"], row["same_samples"], row["logp_difference"] = compared(row["trees"], rows[0]["trees"])
        row["same_trees"] = sum(shape(a) == shape(b) for a, b in zip(row["trees"], rows[0]["trees"], strict=True))
    for row in (row for turn in turns for row in turn):
        del row["trees"]
    targets = {}
    for i, row in enumerate(rows[1:], 1):
        row["speedup"], row["cpu_ratio"] = ratio(turns, 0, i, "seconds"), ratio(turns, i, 0, "cpu_s")
        if row["kind"] == "ray":
            targets[f"{row['workers']} ray, times processes"] = target(ratio(turns, i - 1, i, "seconds"), 0.9)
            targets[f"{row['workers']} ray, CPU of processes"] = target(ratio(turns, i - 1, i, "cpu_s"), 0.9)
        else:
            targets[f"{row['workers']} processes, times inline"] = target(row["speedup"], 1.7)
    report = {"commit": commit(), "machine": machine("torch"), "load": os.getloadavg()[0], "rows": rows, "turns": turns}
    report["ceilings"] = {n: round(float(np.median(found)), 3) for n, found in ceilings.items()}
    if args.json:
        print(json.dumps(report | {"targets": targets}))
        return
    for row in rows:
        print(row)
    print("side by side:", report["ceilings"])
    print(targets, f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
