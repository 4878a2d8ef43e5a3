"""How fast is the forest compared with other tree searches that do the same work?

    python benchmarks/forest.py [--json] [--only "forest, core" mctx] [--rounds 5] [--seconds 0.3]

The work (forest_workload.py): T trees of width K and depth at most 10, S simulations each, B leaves of a tree at once.
A leaf's value is a hash of its path. UCB1 with 1 + N and c = sqrt 2; a visit in flight is worth 0. A first visit
evaluates a node and gives it K children. Root counts are checked before anything is timed.

CPU time of one core. In each of several rounds every contestant does each work in turn. Figures are medians over the
rounds, and ratios are medians of the rounds' ratios.

The forest is driven in lockstep in three ways: with NumPy arrays ("arrays"), one leaf at a time ("scalar"), and in C++
with the evaluator ("core", built if CMake is found). Peers take part if they are installed (`make bench-setup`).
forest_peers.py and forest_llm_peers.py say which do the same work and which only nearly. Aims are ratios within a run.

Widths that vary: a node with the hash h has 1 + h % 9 children, 5 on average; the root counts are pure Python's. These
trees are deeper and UCB1 prefers their wide nodes, so a simulation looks at more children. The ratio to the fixed width
is in children looked at per second (all children of every node on a path). The ratio in simulations is listed too.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import forest_llm_peers
import forest_memory
import forest_numpy
import forest_own
import forest_peers
from forest_workload import KNOWN_ROOT_COUNTS, Work, pure_python, pure_python_trees
from machine import commit, machine, target


@dataclass(frozen=True, slots=True)
class Contestant:
    """`run` does the work. It returns the visit counts of the roots' children, or a result that `holds` judges."""

    name: str
    run: Callable[[Work], Any]
    holds: Callable[[Any, Work], bool] | None = None
    batches: bool = False  # can take several leaves of a tree at once
    trees: bool = True  # can search several trees
    varies: bool = False  # can give each node its own width
    most: int = 200_000  # simulations per run, so that no run takes long
    widest: int = 1000  # children per node
    seconds: Callable[[Work, int], list[float]] | None = None  # times itself: CPU seconds of some repetitions

    def can(self, work: Work) -> bool:
        return (
            (self.batches or work.batch == 1)
            and (self.trees or work.trees == 1)
            and (self.varies or not work.varied)
            and work.total <= self.most
            and work.width <= self.widest
        )


FOREST = ("forest, core", "forest, arrays", "forest, scalar")
OPENSPIEL = "OpenSpiel, C++"
LARGE = 2_000_000


def contestants() -> list[Contestant]:
    out = [
        Contestant("forest, arrays", forest_own.arrays, batches=True, varies=True, most=LARGE),
        Contestant("forest, scalar", forest_own.scalar),
        Contestant("pure Python", pure_python, batches=True, varies=True),
        Contestant("NumPy lockstep", forest_numpy.lockstep, batches=True),
    ]
    if forest_own.cmake():
        core = forest_own
        out.insert(0, Contestant(FOREST[0], core.core, None, True, True, True, LARGE, seconds=core.core_seconds))
    if find_spec("mctx"):
        out.append(Contestant("mctx", forest_peers.mctx_ucb1, mctx_holds, most=20_000))
    alone: dict[str, Any] = {"trees": False, "most": 20_000}
    if find_spec("open_spiel"):
        peer = forest_peers.openspiel
        out.append(Contestant("OpenSpiel, Python", peer, forest_peers.openspiel_holds, **alone))
        native = forest_peers.openspiel_native
        holds = forest_peers.openspiel_native_holds
        out.append(Contestant(OPENSPIEL, native, holds, most=20_000, widest=5))
    if find_spec("treequest"):
        out.append(Contestant("TreeQuest", forest_peers.treequest, forest_peers.treequest_holds, **alone))
    if find_spec("reasoners"):
        peer = forest_llm_peers.llm_reasoners
        out.append(Contestant("llm-reasoners", peer, forest_llm_peers.llm_reasoners_holds, **alone))
    if find_spec("lits"):  # copies and prints its whole tree after each simulation, so only the smallest work
        peer = forest_llm_peers.lits
        out.append(Contestant("LiTS", peer, forest_llm_peers.lits_holds, trees=False, most=200))
    return out


def mctx_holds(counts: list[list[int]], work: Work) -> bool:
    return counts == pure_python(replace(work, plain=True))


# Works by the names that the targets use
ONE, MANY, VARIED = Work(1, 2000), Work(64, 200), Work(64, 200, varied=True)
BATCHES, LONG, LONGER = Work(64, 200, batch=8), Work(64, 2000), Work(64, 20_000)
WORKS = [
    Work(1, 200), ONE, Work(1, 2000, varied=True), Work(1, 2000, batch=8), Work(1, 2000, 20),
    MANY, VARIED, BATCHES, Work(64, 200, 20), LONG, LONGER,
]  # fmt: skip
CHECKED = [
    Work(1, 50), ONE, Work(batch=8), Work(batch=64), Work(3, 500, 20, 4), Work(8, 200), Work(64, 200, batch=8),
    Work(1, 2000, varied=True), VARIED, Work(16, 300, batch=8, varied=True),
]  # fmt: skip


def check(everyone: list[Contestant]) -> None:
    """Compare root counts: the definition with the known ones, then each contestant with the definition."""
    for batch, known in KNOWN_ROOT_COUNTS.items():
        found = pure_python(Work(batch=batch, plain=True))
        if found != [known]:
            raise SystemExit(f"pure Python must give the root counts {known} at B={batch}; got {found[0]}")
    for work in CHECKED:
        want = pure_python(work)
        for contestant in everyone:
            if contestant.can(work):
                found = contestant.run(work)
                if not (contestant.holds(found, work) if contestant.holds else found == want):
                    raise SystemExit(f"{contestant.name} must do the work {work.name}")


def speeds(everyone: list[Contestant], rounds: int, seconds: float) -> dict[str, dict[str, list[float]]]:
    """Simulations per CPU second in each round, by work and contestant."""
    turns = [(work, contestant) for work in WORKS for contestant in everyone if contestant.can(work)]
    out: dict[str, dict[str, list[float]]] = {work.name: {} for work in WORKS}
    for work, contestant in turns:
        out[work.name][contestant.name] = []
        if contestant.seconds is None:  # first calls
            contestant.run(work if contestant.run is forest_peers.mctx_ucb1 else replace(work, simulations=10))
    for _ in range(rounds):
        for work, contestant in turns:
            gc.collect()  # frees what other contestants left
            gc.freeze()  # keeps the collector out of the objects of their packages
            out[work.name][contestant.name].append(turn(contestant, work, seconds))
    return out


def turn(contestant: Contestant, work: Work, seconds: float) -> float:
    if contestant.seconds is not None:
        repetitions = math.ceil(seconds * 8e6 / work.total)
        return work.total / statistics.median(contestant.seconds(work, repetitions))
    spent, runs = 0.0, 0
    while spent < seconds:
        start = time.process_time()
        contestant.run(work)
        spent, runs = spent + time.process_time() - start, runs + 1
    return runs * work.total / spent


def ratio(over: list[float], under: list[float]) -> float:
    return float(f"{statistics.median(a / b for a, b in zip(over, under, strict=True)):.3g}")


def looked_at(work: Work) -> float:
    """Children looked at per simulation: all children of every node on the path."""
    count, rest = 0, pure_python_trees(work)
    while rest:
        node = rest.pop()
        count += (node.count - 1) * len(node.children)
        rest.extend(node.children)
    return count / work.total


def figures_of(measured: dict[str, dict[str, list[float]]]) -> dict[str, Any]:
    """The medians, and how many times as fast the forest is as each peer on the same work."""
    ratios: dict[str, dict[str, float]] = {}
    for work, speed in measured.items():
        peers = [name for name in speed if name not in FOREST]
        pairs = [(way, peer) for way in FOREST if way in speed for peer in peers]
        ratios[work] = {f"{way} / {peer}": ratio(speed[way], speed[peer]) for way, peer in pairs}
    out: dict[str, Any] = {
        "simulations_per_s": {
            work: {name: round(statistics.median(rates)) for name, rates in speed.items()}
            for work, speed in measured.items()
        },
        "ratios": ratios,
        "varied_over_fixed": {},
        "slowdown": {  # how many times as long a simulation takes in trees ten times as large
            name: ratio(measured[LONG.name][name], rates) for name, rates in measured[LONGER.name].items()
        },
    }
    for varied in (Work(1, 2000, varied=True), VARIED):
        fixed = replace(varied, varied=False)
        children = looked_at(varied) / looked_at(fixed)
        for name, rates in measured[varied.name].items():
            simulations = ratio(rates, measured[fixed.name][name])
            row = {"children_per_s": round(simulations * children, 3), "simulations_per_s": simulations}
            out["varied_over_fixed"].setdefault(varied.name, {})[name] = row
    return out


def targets_of(figures: dict[str, Any], slot: float) -> dict[str, Any]:
    ratios, core = figures["ratios"], FOREST[0]
    wanted = [
        ("core / pure Python, T1 S2000", ONE, f"{core} / pure Python", 70),
        ("core / pure Python, T64 S200", MANY, f"{core} / pure Python", 150),
        ("arrays / pure Python, T64 S200 B1", MANY, f"{FOREST[1]} / pure Python", 35),
        ("arrays / pure Python, T64 S200 B8", BATCHES, f"{FOREST[1]} / pure Python", 80),
        ("scalar / pure Python, T1 S2000", ONE, f"{FOREST[2]} / pure Python", 14),
        ("core / OpenSpiel C++, T1 S2000", ONE, f"{core} / {OPENSPIEL}", 2),
        ("core / OpenSpiel C++, T64 S200", MANY, f"{core} / {OPENSPIEL}", 2),
        ("core / mctx, T1 S2000", ONE, f"{core} / mctx", 30),
        ("scalar / TreeQuest, T1 S2000", ONE, f"{FOREST[2]} / TreeQuest", 250),
    ]
    rows = [(name, ratios[work.name], key, least) for name, work, key, least in wanted]
    out = {name: target(row[key], least) for name, row, key, least in rows if key in row}
    if slowdown := figures["slowdown"].get(core):
        out["core, S2000 / S20000, T64"] = target(slowdown, 1.5, at_most=True)
    if varied := figures["varied_over_fixed"].get(VARIED.name, {}).get(core):
        out["core, varied width / fixed, T64 S200"] = target(varied["children_per_s"], 0.8)
    return out | {"bytes per child slot": target(slot, 16, at_most=True)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", help="contestants, by name")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3, help="least CPU time of a contestant per round")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    everyone = [contestant for contestant in contestants() if not args.only or contestant.name in args.only]
    check(everyone)
    figures = figures_of(speeds(everyone, args.rounds, args.seconds))
    if not args.only:
        works = (ONE, Work(1, 2000, 20), MANY)
        figures["bytes_per_simulation"] = {work.name: forest_memory.bytes_per_simulation(work) for work in works}
        if growth := forest_memory.openspiel_growth(200_000):
            figures["bytes_per_simulation"]["Connect Four, S200000"] = {"OpenSpiel C++": round(growth / 200_000, 1)}
    figures["bytes_per_child_slot"] = forest_memory.bytes_per_child_slot()
    targets = targets_of(figures, figures["bytes_per_child_slot"])
    if args.json:
        packages = ("numpy", "mctx", "jax", "open_spiel", "treequest", "llm-reasoners", "lits-llm")
        report = {"figures": figures, "targets": targets, "machine": machine(*packages), "commit": commit()}
        print(json.dumps(report))
        return
    for title in ("simulations_per_s", "varied_over_fixed", "bytes_per_simulation"):
        for work, values in figures.get(title, {}).items():
            print(f"{title}, {work}", *(f"\n    {value!s:>12}  {name}" for name, value in values.items()))
    for name, row in targets.items():
        print(f"{'met   ' if row['met'] else 'unmet '} {row['value']:>14,.6g}  target {row['target']:>12,g}  {name}")


if __name__ == "__main__":
    main()
