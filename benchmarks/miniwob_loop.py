"""Agent Q on MiniWoB++ in Chromium: few demonstrations per page, then search and node DPO; success by page, paired.

    python benchmarks/miniwob_loop.py [--out runs/miniwob] [--report] [--json]

Two runs of `agentq train`, each resumable: sft from the embedded base, so short that acting stays weak, then agent_q
from its checkpoint. Both are measured greedily on the same held-out tasks. Prints a Markdown table and writes
miniwob.json to the output directory.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from machine import commit, machine

from agentq.envs.browser.experts import PAGES, PREFIX
from agentq.evaluation.stats import RungResult, paired_difference
from agentq.store.files import write_json
from agentq.store.run import RunStore

HELD_OUT = 5  # tasks per page
SHARED = (
    *("--env=miniwob", "--eval.measure_base=false", f"--eval.num_tasks={HELD_OUT * len(PAGES)}"),
    "--search.num_trees_in_flight=8",
)
RUNS = {
    "sft": (
        f"--run.num_tasks={10 * len(PAGES)}",
        *("--run.num_rounds=1", "--train.learning_rate=1e-3", "--train.epochs=6", "--train.batch_size=16"),
    ),
    "agent_q": (
        *("--run.num_rounds=2", f"--run.num_tasks={2 * len(PAGES)}", "--search.num_iterations=8"),
        f"--run.first_task={10 * len(PAGES)}",  # behind those of sft
        *("--train.learning_rate=3e-4", "--train.epochs=3"),
    ),
}
QUICK = {
    "sft": ("--run.num_tasks=8", "--eval.num_tasks=4", "--train.epochs=1"),
    "agent_q": ("--run.num_tasks=4", "--eval.num_tasks=4", "--run.num_rounds=1", "--search.num_iterations=2"),
}


def make(out: Path, more: dict[str, tuple[str, ...]]) -> int:
    """Run the missing parts, with `more` settings by recipe; return the exit code of what failed, or 0."""
    start: tuple[str, ...] = ()
    out.mkdir(parents=True, exist_ok=True)
    for recipe, words in RUNS.items():
        path = out / recipe
        command = [
            "-m",
            "agentq",
            "train",
            recipe,
            "--json",
            f"--out={path}",
            *SHARED,
            *words,
            *more.get(recipe, ()),
            *start,
        ]
        with (out / f"{recipe}.log").open("a") as log:
            one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}
            done = subprocess.run([sys.executable, *command], stdout=subprocess.DEVNULL, stderr=log, env=one_thread)
        if done.returncode:
            return done.returncode
        start = ("--base", str(path / "checkpoints" / recipe))
    return 0


def row(out: Path, recipe: str) -> dict[str, Any] | None:
    """The results of a model's held-out episodes, or None if some are missing."""
    file = out / recipe / "summary.json"
    results = [RungResult.from_dict(found) for found in json.loads(file.read_text())] if file.exists() else []
    if not results:
        return None
    with RunStore.read(out / recipe) as store:
        won = {f"{t.task.env} {t.task.seed}": t.success for t in store.trajectories(f"{recipe}/eval") if not t.broken}
        rounds = [line for line in store.metrics() if line["stage"] == recipe]
    return {**asdict(results[-1]), "won": won, "rounds": rounds}


def report(out: Path) -> dict[str, Any]:
    """The existing results: one row per model, and their paired difference."""
    rows = {recipe: found for recipe in RUNS if (found := row(out, recipe))}
    won = [found.pop("won") for found in rows.values()]
    figures: dict[str, Any] = {"rows": rows}
    if len(won) == len(RUNS):
        before, after = ([each[task] for task in sorted(won[0].keys() & won[1].keys())] for each in won)
        figures["paired"] = asdict(paired_difference(after, before))
    return figures


def markdown(figures: dict[str, Any]) -> str:
    """The table of docs/experiments.md."""
    rows = figures["rows"]
    lines = [f"| page | {' | '.join(rows)} |", "|---" * (1 + len(rows)) + "|"]
    lines.append(f"| all | {' | '.join(_rate(found) for found in rows.values())} |")
    for page in PAGES:
        cells = [_count(found["by_env"].get(page)) for found in rows.values()]
        lines.append(f"| {page.removeprefix(PREFIX)} | {' | '.join(cells)} |")
    if less := figures.get("paired"):
        low, high = 100 * less["low"], 100 * less["high"]
        lines.append(f"\n{100 * less['diff']:+.1f} points ({low:+.1f} to {high:+.1f}), p = {less['p_value']:.2g}")
    return "\n".join(lines)


def _rate(found: dict[str, Any]) -> str:
    low, high = 100 * found["low"], 100 * found["high"]
    return f"{100 * found['successes'] / found['n']:.1f} % ({low:.1f} - {high:.1f})"


def _count(found: dict[str, Any] | None) -> str:
    return f"{found['successes']}/{found['n']} ({100 * found['low']:.0f} - {100 * found['high']:.0f})" if found else "-"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/miniwob"))
    parser.add_argument("--report", action="store_true", help="run nothing, show the existing results")
    parser.add_argument("--quick", action="store_true", help="few tasks, to see whether it runs")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    args = parser.parse_args()
    code = 0 if args.report else make(args.out, QUICK if args.quick else {})
    figures = report(args.out)
    made = {"machine": machine("torch", "playwright", "miniwob"), "commit": commit()}
    found = {"figures": figures, "targets": {}, **made}
    write_json(args.out / "miniwob.json", found)
    print(json.dumps(found) if args.json else markdown(figures))
    if code:
        print(f"failed, see the logs in {args.out}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
