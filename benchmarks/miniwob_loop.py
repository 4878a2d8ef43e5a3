"""Agent Q on MiniWoB++ in Chromium: demonstrations, then search and node DPO; success by page, paired.

    python benchmarks/miniwob_loop.py [--base MODEL] [--seeds 0 ...] [--demonstrations 6] [--rounds 1] [--jobs 1]
                                      [--out runs/miniwob] [--report] [--json]

Two runs of `agentq train` for each seed, each resumable: sft from the base, then agent_q from its checkpoint, behind
its tasks. Further rounds go on from a copy of the run before, on other tasks; with --rounds 0 there is SFT alone. Rows
with another number of demonstrations per page are named after it. All are measured on the same held-out tasks:
greedily, and the first two also greedily but for actions that repeat the one before, which are sampled again
(`resampled`). Prints a Markdown table, writes miniwob.json to the output directory and the outcomes of all tasks to
benchmarks/results.
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from machine import commit, machine
from methods import INLINE, MEASURED, agentq, rate, summary, training
from outcomes import RESULTS, Outcomes, base_words, difference, interval, keep, of_runs, repeats_of, titled
from rounds import measured_rounds

from agentq.envs.browser.experts import PAGES, PREFIX
from agentq.policies.engine_names import embedded_base
from agentq.store.files import write_json

HELD_OUT, SHOWN, SEARCHED = 5, 6, 5  # tasks per page: to measure on, with a demonstration, with a tree
EVAL = ("--env=miniwob", f"--eval.num_tasks={HELD_OUT * len(PAGES)}")
SHARED = (*EVAL, "--eval.measure_base=false", "--search.num_trees_in_flight=8")
QUICK = {
    "sft": ("--run.num_tasks=8", "--eval.num_tasks=4", "--train.epochs=1"),
    "agent_q": ("--run.num_tasks=4", "--eval.num_tasks=4", "--run.num_rounds=1", "--search.num_iterations=2"),
    "eval": ("--eval.num_tasks=4",),
}


def runs_of(shown: int) -> dict[str, tuple[str, ...]]:
    """The settings of each recipe, with so many demonstrations per page. Search begins behind their tasks."""
    first = shown * len(PAGES)
    return {
        "sft": (
            f"--run.num_tasks={first}",
            *("--run.num_rounds=1", "--train.learning_rate=3e-4", "--train.epochs=5", "--train.batch_size=16"),
        ),
        "agent_q": (
            *("--run.num_rounds=1", f"--run.num_tasks={SEARCHED * len(PAGES)}", "--search.num_iterations=8"),
            f"--run.first_task={first}",
            *("--critic.model=none", "--search.temperature=1.0", "--train.learning_rate=1e-4", "--train.epochs=3"),
        ),
    }


def make(out: Path, base: Path, seed: int, rounds: int, shown: int, more: dict[str, tuple[str, ...]]) -> int:
    """Run the missing parts of a seed, with `more` settings by recipe; return the exit code of what failed, or 0."""
    start = base
    for recipe, words in list(runs_of(shown).items())[: rounds + 1]:
        path = run(out, base, seed, recipe)
        chosen = (*SHARED, *words, *rate(titled("miniwob", base), recipe), *more.get(recipe, ()))
        told = ("train", recipe, "--json", f"--out={path}", f"--seed={seed}", f"--base={start}", *chosen)
        if not summary(path) and (code := agentq(path, *told)):
            return code
        start, again = path / "checkpoints" / recipe, resampled(path)
        words = ("--json", *MEASURED["resampled"], f"--out={again}", f"--seed={seed}", *EVAL, *more.get("eval", ()))
        if not summary(again) and (code := agentq(again, "eval", str(start), *words)):
            return code
    for number in range(2, rounds + 1):
        before, path = (run(out, base, seed, after(n)) for n in (number - 1, number))
        if not path.exists() and (code := agentq(path, "fork", str(before), f"--out={path}")):
            return code
        told = ("resume", str(path), "--json", f"--run.num_rounds={number}")
        if measured_rounds(path, "agent_q") < number and (code := agentq(path, *told)):
            return code
    return 0


def after(rounds: int) -> str:
    """The row of Agent Q after so many rounds."""
    return "agent_q" if rounds == 1 else f"agent_q, {rounds} rounds"


def run(out: Path, base: Path, seed: int, row: str) -> Path:
    """The directory of a row's run."""
    return out / titled("miniwob", base) / f"seed{seed}" / row.replace(", ", "-").removesuffix(" rounds")


def resampled(path: Path) -> Path:
    """The directory of the second measurement of a run's model."""
    return path.with_name(f"{path.name}-resampled")


def rows_of(rounds: int) -> dict[str, tuple[str, int]]:
    """By row, its recipe and number of rounds."""
    return {"sft": ("sft", 1), **{after(number): ("agent_q", number) for number in range(1, rounds + 1)}}


def report(out: Path, base: Path, seeds: list[int], rounds: int) -> dict[str, Any]:
    """The existing results: one row per model, and the difference of those seeds that have both."""
    rows, won = {}, dict[str, dict[int, dict[str, float]]]()
    for row, (recipe, number) in rows_of(rounds).items():
        paths = [(seed, run(out, base, seed, row)) for seed in seeds]
        paths = [(seed, path) for seed, path in paths if measured_rounds(path, recipe) >= number]
        results = [result for _, path in paths if (result := summary(path))]
        if not results:
            continue
        low, high = interval(results)
        won[row] = {seed: of_runs([path]) for seed, path in paths}
        pages = {page: [r.by_env[page] for r in results if page in r.by_env] for page in PAGES}
        rows[row] = {
            "seeds": [seed for seed, _ in paths],
            "rates": [result.rate for result in results],
            "low": low,
            "high": high,
            "n": [result.n for result in results],
            "by_page": {
                page: [int(sum(f[key] for f in found)) for key in ("successes", "n")] for page, found in pages.items()
            },
            "training": [training(path, recipe) for _, path in paths],
        }
    figures: dict[str, Any] = {"rows": rows}
    first, second = (won.get(row, {}) for row in ("sft", after(rounds)))
    if both := [(second[seed], first[seed]) for seed in sorted(first.keys() & second.keys())]:
        figures["paired"] = asdict(difference(both))
    return figures


def keep_outcomes(out: Path, base: Path, seeds: list[int], rounds: int, shown: int) -> None:
    """Write the outcomes of all finished runs to `benchmarks/results`."""
    more = ["--rounds", str(rounds)] if rounds != 1 else []
    more += ["--demonstrations", str(shown)] if shown != SHOWN else []
    command = " ".join(["python benchmarks/miniwob_loop.py --seeds", *map(str, seeds), *base_words(base), *more])
    for seed in seeds:
        for row, (recipe, number) in rows_of(rounds).items():
            if measured_rounds(path := run(out, base, seed, row), recipe) >= number:
                steps = training(path, recipe)["env_steps"]
                kept = {"greedy": of_runs([path]), "repeats": repeats_of(path)}
                if summary(resampled(path)):
                    kept["resampled"] = of_runs([resampled(path)])
                table, name = titled("miniwob", base), row if shown == SHOWN else f"{row}, {shown} demonstrations"
                for how, tasks in kept.items():
                    keep(Outcomes(table, "miniwob", name, how, seed, command, commit(), tasks, steps), RESULTS)


def markdown(figures: dict[str, Any]) -> str:
    """The table of docs/experiments.md: successes of all seeds by page."""
    rows = figures["rows"]
    lines = [f"| page | {' | '.join(rows)} |", "|---" * (1 + len(rows)) + "|"]
    lines.append(f"| all | {' | '.join(_rate(found) for found in rows.values())} |")
    for page in PAGES:
        cells = ["{}/{}".format(*found["by_page"][page]) for found in rows.values()]
        lines.append(f"| {page.removeprefix(PREFIX)} | {' | '.join(cells)} |")
    if less := figures.get("paired"):
        spans = [("low", "high"), ("low_tasks", "high_tasks")][len(less["by_seed"]) < 2 :]
        told = "; ".join(f"{100 * less[a]:+.1f} to {100 * less[b]:+.1f}" for a, b in spans)
        lines.append(f"\n{100 * less['mean']:+.1f} points ({told})")
    return "\n".join(lines)


def _rate(found: dict[str, Any]) -> str:
    mean = sum(found["rates"]) / len(found["rates"])
    return f"{100 * mean:.1f} % ({100 * found['low']:.1f} - {100 * found['high']:.1f})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", type=Path, metavar="MODEL", default=embedded_base(), help="where training starts")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--demonstrations", type=int, default=SHOWN, help="per page; default: %(default)s")
    parser.add_argument("--rounds", type=int, default=1, help="rounds of Agent Q; default: %(default)s")
    parser.add_argument("--jobs", type=int, default=1, help="seeds at once; default: %(default)s")
    parser.add_argument("--out", type=Path, default=Path("runs/miniwob"))
    parser.add_argument("--report", action="store_true", help="run nothing, show the existing results")
    parser.add_argument("--quick", action="store_true", help="few tasks, to see whether it runs")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    args = parser.parse_args()
    shown = args.demonstrations
    if shown != SHOWN:
        args.out /= f"{shown}_demonstrations"
    failed: list[int] = []
    if not args.report:
        more = QUICK if args.quick else {}
        if args.jobs > 1:  # seeds share the cores; each is one process
            more = {name: (*more.get(name, ()), INLINE) for name in (*runs_of(shown), "eval")}
        with ThreadPoolExecutor(args.jobs) as pool:
            codes = pool.map(lambda seed: make(args.out, args.base, seed, args.rounds, shown, more), args.seeds)
            failed = [seed for seed, code in zip(args.seeds, codes, strict=True) if code]
    if not args.quick:
        keep_outcomes(args.out, args.base, args.seeds, args.rounds, shown)
    figures = report(args.out, args.base, args.seeds, args.rounds)
    made = {"machine": machine("torch", "playwright", "miniwob"), "commit": commit()}
    found = {"figures": figures, "targets": {}, **made}
    write_json(args.out / "miniwob.json", found)
    print(json.dumps(found) if args.json else markdown(figures))
    if failed:
        print(f"failed, see the logs in {args.out}: seed {', '.join(map(str, failed))}", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
