"""How much processor time passes before agentq answers?

    python benchmarks/startup.py [--json] [--repeats 5]

Commands that compute nothing: help, a wrong setting of each command, the report of a finished run, the import. Each
runs in a process of its own. The smallest of several processor times counts, user and system, since other work on the
machine can only add to it.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from machine import commit, machine, target

import agentq
from agentq.store import RunStore

HELP, WRONG, REPORT, IMPORT = 0.2, 0.3, 1.0, 0.1  # seconds at most
NO_SETTING = ("--run.sed", "3")
WRONG_WORDS = (  # of `agentq`; each ends with one line on stderr
    *(("demo", *NO_SETTING), ("ladder", *NO_SETTING), ("train", "loop", *NO_SETTING), ("train", "ppo", *NO_SETTING)),
    *(("eval", ".", *NO_SETTING), ("eval", ".", "--search", *NO_SETTING), ("settings", "loop", *NO_SETTING)),
    *(("run", "book", "--url", "http://localhost", *NO_SETTING), ("base", "--out", "new", *NO_SETTING)),
    *(("report", ".", *NO_SETTING), ("env", "check", "booking", *NO_SETTING), ("env", "serve", "x", *NO_SETTING)),
    ("demo", "--search.c_exp", "no"),
    ("ladder", "--run.env", "bookng"),
    ("train", "loop", "--run.seed=-1"),
    ("train", "loop", "--pairs.alpha", "0.5"),  # another recipe's
    ("train", "grpo", "--run.group_size", "1"),  # nothing to compare
    ("train", "lop"),
    ("dmo",),
    ("run", "book", "--url", "http://localhost", "--calls", "0"),
    ("env", "check", "booking", "--tasks", "0"),
)
TREES, ROLLOUTS = 120, 2  # of 246 nodes: about those of `agentq demo`


@dataclass(frozen=True, slots=True)
class Case:
    """One command, the exit code that it must have, and the seconds that it may take."""

    name: str
    words: tuple[str, ...]
    code: int
    most: float

    def seconds(self, folder: Path) -> float:
        """Processor seconds of one run.

        Raises:
            RuntimeError: if it did not end as it must.
        """
        before = os.times()
        done = subprocess.run(self.words, cwd=folder, capture_output=True, text=True, check=False)
        after = os.times()
        if done.returncode != self.code or (self.code == 2 and len(done.stderr.splitlines()) != 1):
            raise RuntimeError(f"{self.name} must end with {self.code}; got {done.returncode}: {done.stderr[-500:]}")
        return after.children_user + after.children_system - before.children_user - before.children_system


def cases(run: Path) -> list[Case]:
    """Every case; `run` is a finished run's directory."""
    python, command = (sys.executable,), (sys.executable, "-m", "agentq")
    return [
        Case("import agentq", (*python, "-c", "import agentq"), 0, IMPORT),
        Case("agentq --help", (*command, "--help"), 0, HELP),
        Case("agentq train --help", (*command, "train", "--help"), 0, HELP),
        Case("agentq report", (*command, "report", str(run)), 0, REPORT),
        *(Case(f"agentq {shlex.join(words)}", (*command, *words), 2, WRONG) for words in WRONG_WORDS),
    ]


def make_run(path: Path) -> None:
    """A run directory of `TREES` trees."""

    def answers(history: object, k: int) -> list[str]:
        return ["SCROLL DOWN", *(f"CLICK [{i}]" for i in range(1, k))]

    with RunStore.open(path, {"command": "demo"}) as store:
        for task in range(TREES):
            store.add_tree("search", agentq.search("booking", task, answers, num_iterations=ROLLOUTS).tree)


def measure(repeats: int) -> dict[str, float]:
    """Processor seconds by case, the smallest of `repeats`."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        make_run(run)
        return {case.name: round(min(case.seconds(Path(folder)) for _ in range(repeats)), 3) for case in cases(run)}


def main(argv: Sequence[str] | None = None) -> int:
    """Returns 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5, help="runs of each command")
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    args = parser.parse_args(argv)
    figures = measure(args.repeats)
    targets = {case.name: target(figures[case.name], case.most, at_most=True) for case in cases(Path("run"))}
    for name, goal in targets.items():
        print(f"{'met   ' if goal['met'] else 'MISSED'} {goal['value']:6.3f} of {goal['target']:.1f} s  {name}")
    if args.json:
        report = {"figures": figures, "targets": targets, "machine": machine("numpy", "pydantic", "torch")}
        print(json.dumps(report | {"commit": commit()}))
    return int(not all(goal["met"] for goal in targets.values()))


if __name__ == "__main__":
    sys.exit(main())
