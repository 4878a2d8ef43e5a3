"""Bytes per simulation of forest.py's contestants. Each simulation evaluates one node and gives it K slots.

The forest reports its own bytes, in whole chunks. mctx and NumPy count their arrays. For contestants in Python
tracemalloc measures the peak. Python cannot see the tree of OpenSpiel in C++, so the growth of a process that plays
Connect Four (width 7) counts. OpenSpiel's nodes get their slots on their second visit, and TreeQuest makes one node per
simulation.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import forest_llm_peers
import forest_numpy
import forest_own
import forest_peers
import forest_workload
from forest_workload import Work

from agentq._core import Forest


def traced(run: Callable[[Work], Any], work: Work) -> int:
    """Peak bytes that Python allocates during `run(work)`."""
    run(Work(simulations=10))  # imports and caches
    tracemalloc.start()
    run(work)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def resident() -> int:
    """Resident bytes of this process (Linux)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def openspiel_growth(simulations: int) -> int | None:
    """Growth of a process's resident memory during a game of OpenSpiel in C++; None if it is not installed."""
    code = (
        "import forest_memory as m, forest_peers as p; p.openspiel_game(10, 'connect_four'); before = m.resident(); "
        f"root = p.openspiel_game({simulations}, 'connect_four'); print(m.resident() - before)"
    )
    if not (find_spec("open_spiel") and Path("/proc/self/statm").exists()):
        return None
    return int(subprocess.check_output([sys.executable, "-c", code], cwd=Path(__file__).parent, text=True))


def bytes_per_simulation(work: Work) -> dict[str, float]:
    used = {"pure Python": traced(forest_workload.pure_python, work)}
    used["NumPy lockstep"] = forest_numpy.search(work).nbytes
    if forest_own.cmake():
        used["forest"] = forest_own.core_bytes(work)
    if find_spec("mctx"):
        used["mctx"] = forest_peers.mctx_bytes(work)
    if work.trees == 1:
        if find_spec("open_spiel"):
            used["OpenSpiel, Python"] = traced(forest_peers.openspiel, work)
        if find_spec("treequest"):
            used["TreeQuest"] = traced(forest_peers.treequest, work)
        if find_spec("reasoners"):
            used["llm-reasoners"] = traced(forest_llm_peers.llm_reasoners, work)
    return {name: round(total / work.total, 1) for name, total in sorted(used.items())}


def bytes_per_child_slot() -> float:
    """Bytes per additional child, measured with two nodes whose blocks fill a chunk each."""

    def used(width: int) -> int:
        forest = Forest(selection="ucb1", exhaust=False)
        (tree,) = forest.add_trees(1).tolist()
        before = forest.bytes_in_use
        forest.expand_one(forest.ask_one(tree)[0], width)
        return forest.bytes_in_use - before

    narrow, wide = (1 << 14) - 3, (1 << 16) - 3
    return (used(wide) - used(narrow)) / (wide - narrow)
