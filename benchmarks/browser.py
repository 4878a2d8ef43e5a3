"""What do a step, a reset, a way back and a search cost in a real browser, compared with BrowserGym?

    python benchmarks/browser.py [--json] [--rounds 5] [--sessions 1 4 16] [--peer-sessions 1 4] [--only steps back]

steps: MiniWoB++ pages by scripted agents (browser_workload.py), the same pages and seeds for agentq (browser_own.py)
and for BrowserGym (browser_peer.py, installed by `make browsergym`), as it is and with its delays at zero. Before
anything is timed, all contestants must get the same instructions and earn every reward. A BrowserGym session is a
process, since its API is synchronous. agentq's sessions are threads that share Chromium processes. Memory is the PSS of
all processes.

back: to states on the expert's paths on the built-in sites, from their first page, by token, storage and replay; fork:
by token, in a new session. search: expert episodes, and tree searches that must find the same trees as in process.

In each round every contestant takes a turn. Figures are medians over rounds, ratios medians of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from browser_workload import TASKS
from machine import commit, machine, target

from agentq.envs import names
from agentq.envs.browser import processes

HERE = Path(__file__).resolve().parent
PEER = HERE.parent / "build" / "browsergym" / "bin" / "python"
PEERS = {"browsergym": "defaults", "browsergym, no delays": "no_delays"}
TARGETS = {  # (figure, peer): agentq is at least this many times as good, with one session
    ("steps_per_s", "browsergym"): 15.0,
    ("steps_per_s", "browsergym, no delays"): 4.0,
    ("reset_ms", "browsergym"): 100.0,
}
BACK = 8.0  # times as fast as replay at the largest depth
ATTEMPTS = 3
Figure = dict[str, Any]


class Contestant:
    """Processes that answer questions, all at the same time."""

    def __init__(self, name: str, command: list[str], count: int = 1) -> None:
        pages = Path(str(importlib.util.find_spec("miniwob").submodule_search_locations[0])) / "html" / "miniwob"  # type: ignore
        environ = os.environ | {"MINIWOB_URL": f"{pages.resolve().as_uri()}/", "OMP_NUM_THREADS": "1"}
        self.name = name
        self.processes = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ)
            for _ in range(count)
        ]

    def ask(self, question: Any) -> list[Any]:
        """The answer of each process."""
        for process in self.processes:
            process.stdin.write(json.dumps(question) + "\n")  # type: ignore[union-attr]
            process.stdin.flush()  # type: ignore[union-attr]
        lines = [process.stdout.readline() for process in self.processes]  # type: ignore[union-attr]
        if not all(lines):
            raise SystemExit(f"{self.name} must answer {question}; got the end of a process")
        return [json.loads(line) for line in lines]

    def memory_mib(self) -> float:
        """MiB of all its processes and their descendants."""
        return processes.memory_mb(set().union(*(processes.tree(p.pid, "-") for p in self.processes)))

    def end(self) -> None:
        for process in self.processes:
            process.stdin.close()  # type: ignore[union-attr]
            process.wait()


def own(sessions: int, browsers: int = 1) -> Contestant:
    name = "agentq" if browsers == 1 else f"agentq, {browsers} browsers"
    return Contestant(name, [sys.executable, str(HERE / "browser_own.py"), str(sessions), str(browsers)])


def contestants(sessions: int, peers: bool) -> list[Contestant]:
    found = [own(sessions)] + ([own(sessions, 2)] if sessions > 1 else [])
    chromium = next(filter(None, map(shutil.which, processes.CHROMIUMS)))
    for name, mode in PEERS.items() if peers else ():
        command = [str(PEER), str(HERE / "browser_peer.py"), mode, chromium]
        found.append(Contestant(name, command, sessions))
    return found


def episodes(contestant: Contestant, seeds: list[int], sessions: int) -> Figure:
    """One round of one contestant; `failed` episodes have no reward: BrowserGym gives up an act after half a second."""
    start = time.perf_counter()
    played = [episode for answer in contestant.ask({"tasks": TASKS, "seeds": seeds}) for episode in answer]
    wall_s = time.perf_counter() - start
    steps = [second for e in played for second in e["steps_s"]]
    return {
        "steps_per_s": sessions * len(steps) / sum(steps),
        "step_ms": 1000 * statistics.median(steps),
        "reset_ms": 1000 * statistics.median(e["reset_s"] for e in played if not e["first"]),
        "first_reset_ms": 1000 * statistics.median(e["reset_s"] for e in played if e["first"]),
        "episodes_per_s": len(played) / wall_s,
        "failed": sum(e["reward"] != 1.0 for e in played),
        "asked": {f"{e['task']} {e['seed']}": e["goal"] for e in played},
    }


def check(everyone: list[Contestant], sessions: int) -> None:
    """All contestants get the same instructions and earn every reward, in one of several attempts."""
    asked = []
    for each in everyone:
        turns = (episodes(each, [0, 1], sessions) for _ in range(ATTEMPTS))
        asked.append(next((turn["asked"] for turn in turns if not turn["failed"]), None))
    if asked != asked[:1] * len(everyone):
        raise SystemExit(f"all contestants must get the same instructions and earn every reward; got {asked}")


def measure_steps(sessions: int, rounds: int, per_turn: int, peers: bool) -> list[Figure]:
    """Every contestant with each number of sessions; ratios are to agentq with one browser."""
    everyone = contestants(sessions, peers)
    check(everyone, sessions)
    memory = {}
    for each in everyone:
        each.ask({"hold": "login-user"})
        memory[each.name] = each.memory_mib()
    found: dict[str, list[Figure]] = defaultdict(list)
    for turn in range(rounds):
        for each in everyone:
            seeds = range(2 + turn * per_turn, 2 + (turn + 1) * per_turn)
            found[each.name].append(episodes(each, list(seeds), sessions))
    for each in everyone:
        each.end()
    figures = []
    for name, turns in found.items():
        figure: Figure = {"sessions": sessions, "contestant": name, "memory_mib": memory[name]}
        for key in ("steps_per_s", "step_ms", "reset_ms", "first_reset_ms", "episodes_per_s"):
            figure[key] = statistics.median(t[key] for t in turns)
            times = [(o[key] / t[key], t[key] / o[key]) for o, t in zip(found["agentq"], turns, strict=True)]
            figure["failed"] = sum(t["failed"] for t in turns)
            figure[f"{key}_ratio"] = statistics.median(t[key.endswith("_ms")] for t in times)
        figures.append(figure)
    return figures


def measure_back(rounds: int) -> list[Figure]:
    """Milliseconds of each way to each depth; `replay_ratio`: how many times as long replay takes."""
    contestant, found = own(1), defaultdict(list)
    for name in names():
        for seed in range(-1, rounds):  # the first is not counted
            (ways,) = contestant.ask({"back": name, "seed": max(seed, 0)})
            took = {(way["way"], way["depth"]): way["ms"] for way in ways}
            for (way, depth), ms in took.items() if seed >= 0 else ():
                found[name, way, depth].append((ms, took["replay", depth] / ms))
    contestant.end()
    return [
        {
            "site": name,
            "way": way,
            "depth": depth,
            "n": len(both),
            "ms": statistics.median(ms for ms, _ in both),
            "replay_ratio": statistics.median(ratio for _, ratio in both),
        }
        for (name, way, depth), both in sorted(found.items())
    ]


def measure_search(sessions: list[int], rounds: int) -> list[Figure]:
    """Expert episodes and searches of several trees at once, in process (one at a time) and in Chromium."""
    figures = []
    for count in sessions:
        contestant = own(count, min(2, count))
        for name in names():
            turns: dict[bool, list[Figure]] = defaultdict(list)
            for _ in range(rounds):
                for chromium in (False, True):
                    question = {"n": max(4, count), "chromium": chromium}
                    (played,) = contestant.ask(question | {"experts": name})
                    (searched,) = contestant.ask(question | {"searches": name})
                    turns[chromium].append({"expert_episodes_per_s": played["episodes_per_s"]} | searched)
            if any(t["trees"] != turns[False][0]["trees"] for both in turns.values() for t in both):
                raise SystemExit(f"{name}: every search must find the trees that are found in process")
            for chromium, each in turns.items():
                figure: Figure = {"site": name, "in_flight": count, "chromium": chromium}
                for key in ("expert_episodes_per_s", "simulations_per_s", "steps_per_s"):
                    figure[key] = statistics.median(t[key] for t in each)
                figures.append(figure)
        contestant.end()
    return figures


def targets_of(figures: dict[str, list[Figure]]) -> dict[str, Any]:
    goals = {}
    for figure in figures["steps"]:
        for (key, peer), least in TARGETS.items():
            if figure["sessions"] == 1 and figure["contestant"] == peer:
                goals[f"{key}: times as good as {peer}"] = target(figure[f"{key}_ratio"], least)
    deepest = max((figure["depth"] for figure in figures["back"]), default=0)
    for figure in figures["back"]:
        if figure["way"] == "token" and figure["depth"] == deepest:
            name = f"{figure['site']}: token, times as fast as replay at depth {deepest}"
            goals[name] = target(figure["replay_ratio"], BACK)
    return goals


def show(figures: list[Figure]) -> None:
    for figure in figures:
        words = (
            f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in figure.items()
        )
        print("  ".join(words), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--episodes", type=int, default=3, help="of each page in a turn")
    parser.add_argument("--sessions", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--peer-sessions", type=int, nargs="*", default=[1, 4])
    parser.add_argument("--only", nargs="+", choices=("steps", "back", "search"), default=["steps", "back", "search"])
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    figures: dict[str, list[Figure]] = {"steps": [], "back": [], "search": []}
    for sessions in args.sessions if "steps" in args.only else ():
        peers = PEER.exists() and sessions in args.peer_sessions
        figures["steps"] += measure_steps(sessions, args.rounds, args.episodes, peers)
    if "back" in args.only:
        figures["back"] = measure_back(args.rounds)
    if "search" in args.only:
        figures["search"] = measure_search(args.sessions, args.rounds)
    goals = targets_of(figures)
    if args.json:
        found = {"figures": figures, "targets": goals, "machine": machine("playwright", "miniwob"), "commit": commit()}
        print(json.dumps(found))
        return
    for each in figures.values():
        show(each)
    for name, goal in goals.items():
        print(f"{'met ' if goal['met'] else 'MISSED'}  {goal['value']:10.3g}  target {goal['target']:g}  {name}")


if __name__ == "__main__":
    main()
