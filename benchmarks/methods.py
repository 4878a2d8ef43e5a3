"""Methods compared at one budget of environment steps: held-out success with intervals, and paired.

    python benchmarks/methods.py {loop,all,apps,several,...} [--base MODEL] [--seeds 0 ...] [--jobs 2] [--report]

A row is one run of `agentq train` in its own directory. The same command resumes where an earlier one stopped, and
tables share rows. Each model is measured greedily, sampled, and greedily but for actions that repeat the one before,
which are sampled again (`resampled`). --report runs nothing and shows the existing results. Prints a Markdown table,
writes TABLE.json to the output directory and the outcomes of all tasks to benchmarks/results, from which
`benchmarks/results.py` makes the tables with intervals over seeds. The table here has the first attempt of four only.

All rows of a table have the same held-out tasks, seeds, base and budget. A row that starts from another row's model
begins behind that row's training tasks. The policy gradients also share tasks and rounds. Each family has the learning
rate that `rates.py` chose for it on validation tasks; one for which it has not run keeps those of its recipes, and the
policy gradients 1e-4. All else are the settings of the recipes, sized to the budget. `apps` counts tasks and scenarios.
`step_agent_textworld` needs `agentq env serve textworld/3.5.3 --python build/textworld/bin/python` beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

from machine import commit, machine
from methods_rows import FAMILIES, TABLES, Row, Table
from outcomes import Outcomes, base_words, difference, interval, keep, of_runs, repeats_of, titled

from agentq.evaluation.stats import RungResult
from agentq.policies.engine_names import embedded_base
from agentq.store.files import write_json
from agentq.store.run import RunStore

MEASURED = {  # settings of `agentq eval`
    "greedy": (),
    "sampled": ("--eval.temperature=1",),
    "resampled": ("--eval.repeat_temperature=1",),  # greedy, but for actions that repeat the one before
}
REPEATS = {"greedy": "repeats", "sampled": "sampled repeats"}  # names of the shares of steps that are repeats
ATTEMPTS = 4  # sampled episodes per task, each a run with its own seed
SHARED = ("--eval.measure_base=false", "--run.num_rounds=99", "--train.devices=")
INLINE = "--run.executor=inline"  # runs share the cores; each is one process
EXPERT = ("sft", "step_agent_implicit", "step_agent_inverse")  # their rounds collect its successes
RATES = Path(__file__).parent / "rates.json"


def known_rates() -> dict[str, Any]:
    """What `rates.py` has chosen, by environment and base, by family."""
    found: dict[str, Any] = json.loads(RATES.read_text()) if RATES.exists() else {}
    return found


def rate(title: str, recipe: str) -> tuple[str, ...]:
    """The word for the learning rate of a recipe's family, if one has been chosen for an environment and base."""
    known = known_rates().get(title, {})
    return tuple(
        f"--train.learning_rate={known[family]['learning_rate']:g}"
        for family, recipes in FAMILIES.items()
        if recipe in recipes and family in known
    )


@dataclass(frozen=True, slots=True)
class Place:
    """Where the runs of a table are, and the model that they begin with."""

    out: Path
    table: Table
    base: Path
    attempts: int = ATTEMPTS

    @property
    def title(self) -> str:
        """The environment, and the base unless it is the embedded one. Tables that have both in common share rows."""
        return titled(self.table.env.partition("@")[0], self.base)

    def run(self, row: Row, seed: int) -> Path:
        """The directory of a row's run."""
        return self.out / self.title / f"seed{seed}" / row.name.replace(", ", "-").replace(" ", "_")

    def words(self, row: Row) -> tuple[str, ...]:
        """A row's settings, with this place's base."""
        return tuple(word.replace("{base}", str(self.base)) for word in row.words)

    def model(self, row: Row, seed: int) -> Path:
        """The model of a row's run."""
        return self.run(row, seed) / "checkpoints" / row.recipe if row.recipe else self.base


def make(place: Place, row: Row, seed: int, quick: bool) -> int:
    """Train and measure one row, or the missing part of it; return the exit code of what failed, or 0."""
    path, table = place.run(row, seed), place.table
    common = (f"--eval.num_tasks={5 if quick else table.num_held_out}", *table.more)
    if row.recipe is not None and not summary(path):
        start = next((r for r in table.rows if r.name == row.start), None)
        base = place.base if start is None else place.model(start, seed)
        more = ("--run.num_rounds=1", "--run.num_tasks=2") if quick else ()
        told = (
            *SHARED,
            f"--run.max_env_steps={table.budget}",
            *place.words(row),
            *rate(place.title, row.recipe),
            *more,
            f"--base={base}",
        )
        words = ("--json", INLINE, *common, f"--env={table.env}", f"--seed={seed}", f"--out={path}", *told)
        if code := agentq(path, "train", row.recipe, *words):
            return code
    for name in measures(place):
        env = name if name in table.also else table.env
        words = (*common, f"--env={env}", *MEASURED.get(name, ()))
        if code := measure(_measured(place, path, row, name), place.model(row, seed), seed, *words):
            return code
    return 0


def measures(place: Place) -> tuple[str, ...]:
    """How a table's models are measured: on its environment in all ways, and greedily on others."""
    return (*(name for name in MEASURED if name == "greedy" or place.attempts), *place.table.also)


def summary(path: Path) -> RungResult | None:
    """The last row of a run's summary, or None if there is none yet."""
    file = path / "summary.json"
    rows = json.loads(file.read_text()) if file.exists() else []
    return RungResult.from_dict(rows[-1]) if rows else None


def _measured(place: Place, path: Path, row: Row, name: str) -> list[Path]:
    """The directories of a row's held-out episodes, one per attempt; a trained model's greedy ones are in its run."""
    if name == "greedy" and row.recipe:
        return [path]
    first = path.with_name(f"{path.name}-{name.replace('/', '_')}")
    return runs_of(first, place.attempts if name == "sampled" else 1)


def keep_outcomes(place: Place, name: str, seeds: list[int]) -> None:
    """Write the outcomes of all finished rows of a table to `benchmarks/results`."""
    command = " ".join(["python benchmarks/methods.py", name, "--seeds", *map(str, seeds), *base_words(place.base)])
    for row, seed, how in product(place.table.rows, seeds, measures(place)):
        path = place.run(row, seed)
        runs = _measured(place, path, row, how)
        if all(map(summary, runs)):
            steps = training(path, row.recipe)["env_steps"] if row.recipe else 0
            env, told = (how, "greedy") if how in place.table.also else (place.table.env.partition("@")[0], how)
            table = titled(f"methods-{name}", place.base)
            kept = {told: of_runs(runs)}
            if told in REPEATS:
                kept[REPEATS[told]] = repeats_of(runs[0])
            for measured, tasks in kept.items():
                keep(Outcomes(table, env, row.name, measured, seed, command, commit(), tasks, steps))


def agentq(path: Path, *words: str) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f"{path.name}.log").open("a") as log:
        one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "agentq", *words]
        return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=log, env=one_thread).returncode


def runs_of(first: Path, attempts: int) -> list[Path]:
    """The directories of several attempts; that of the first is given."""
    return [first, *(first.with_name(f"{first.name}-{n}") for n in range(2, attempts + 1))][:attempts]


def measure(runs: list[Path], model: Path | str, seed: int, *words: str) -> int:
    """Measure a model in those runs that are not there yet, each with its own seed; return as `make` does."""
    for attempt, path in enumerate(runs):
        told = (str(model), *words, f"--out={path}", f"--seed={seed + 1000 * attempt}", "--json", INLINE)
        if not summary(path) and (code := agentq(path, "eval", *told)):
            return code
    return 0


def training(path: Path, recipe: str) -> dict[str, Any]:
    """What a run of `agentq train` used, and how its rounds went."""
    with RunStore.read(path) as store:
        lines = list(store.metrics())
        notes = [note for n in range(1, 100) if (note := store.note(f"{recipe}/round{n}/learn"))]
    rounds = [line["success"] for line in lines if line["stage"] == recipe and recipe not in EXPERT]
    return {
        "env_steps": sum(note["env_steps"] for note in notes),
        "rounds": len(notes),
        "updates": sum(line["stage"] == f"{recipe}/learn" for line in lines),
        "training_success": rounds,
    }


def report(place: Place, seeds: list[int]) -> list[dict[str, Any]]:
    """The existing results, one dictionary per row, in the table's order; the base comes first."""
    base: dict[tuple[str, int], dict[str, bool]] = {}  # held-out success by (greedy or sampled, seed), by task
    figures = []
    for row in place.table.rows:
        paths = {seed: place.run(row, seed) for seed in seeds}
        figure: dict[str, Any] = {"name": row.name}
        if row.recipe:
            runs = [training(path, row.recipe) for path in paths.values() if summary(path)]
            figure |= {key: [run[key] for run in runs] for key in (runs[0] if runs else ())}
        for name in measures(place):
            measured = {seed: _measured(place, path, row, name)[0] for seed, path in paths.items()}
            results = {seed: found for seed, path in measured.items() if (found := summary(path))}
            if not results:
                continue
            own = {seed: {task: won > 0 for task, won in of_runs([measured[seed]]).items()} for seed in results}
            base |= {} if row.recipe else {(name, seed): won for seed, won in own.items()}
            low, high = interval(list(results.values()))
            rates = [result.rate for result in results.values()]
            figure[name] = {"rate": fmean(rates), "low": low, "high": high, "seeds": sorted(results)}
            if all(result.sgc for result in results.values()):
                figure[name]["sgc"] = [result.sgc for result in results.values()]
            both = [(own[s], base[name, s]) for s in own if (name, s) in base]
            if row.recipe and both:
                figure[name]["less_base"] = asdict(difference(both))
        figures += [figure] if len(figure) > 1 else []
    return figures


def markdown(rows: list[dict[str, Any]]) -> str:
    """The table of docs/experiments.md."""
    measured = " | ".join(f"{name} | minus base" for name in MEASURED)
    lines = [
        f"| method | {measured} | training rounds | env. steps | updates |",
        f"|{'---|' * (4 + 2 * len(MEASURED))}",
    ]
    for row in rows:
        cells = [row["name"]]
        for name in MEASURED:
            cells += _rate(row[name]) if name in row else ["-", "-"]
        curve = (row.get("training_success") or [[]])[0]
        cells.append(f"{100 * curve[0]:.0f} to {100 * curve[-1]:.0f} %" if len(curve) > 1 else "-")
        cells += [", ".join(map(str, row.get(key, "-"))) for key in ("env_steps", "updates")]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _rate(found: dict[str, Any]) -> list[str]:
    """Percent with its interval, and the difference with its own: over seeds if there are several, and over tasks."""
    low, high = 100 * found["low"], 100 * found["high"]
    cells = [f"{100 * found['rate']:.1f} % ({low:.1f} - {high:.1f})", "-"]
    if less := found.get("less_base"):
        spans = [("low", "high"), ("low_tasks", "high_tasks")][len(less["by_seed"]) < 2 :]
        told = "; ".join(f"{100 * less[a]:+.1f} to {100 * less[b]:+.1f}" for a, b in spans)
        cells[1] = f"{100 * less['mean']:+.1f} ({told})"
    return cells


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("--base", type=Path, metavar="MODEL", default=embedded_base(), help="where training starts")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--jobs", type=int, default=2, help="runs at once, one process with one thread each")
    parser.add_argument("--attempts", type=int, default=ATTEMPTS, help="sampled episodes per task; 0: greedy only")
    parser.add_argument("--out", type=Path, default=Path("runs/methods"))
    parser.add_argument("--only", nargs="+", metavar="ROW", help="run and show these rows only, and the base")
    parser.add_argument("--quick", action="store_true", help="one round of two tasks, to see whether it runs")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    parser.add_argument("--report", action="store_true", help="run nothing, show the existing results")
    args = parser.parse_args()
    place = Place(args.out, TABLES[args.table], args.base, args.attempts)
    failed: list[str] = []
    chosen = [r for r in place.table.rows if args.only is None or r.name in args.only]
    if not args.report:
        # rows that others start from come first, so that no row runs twice at once
        starts = {row.start for row in place.table.rows}
        for wave in ([r for r in chosen if r.name in starts], [r for r in chosen if r.name not in starts]):
            todo = [(row, seed) for seed in args.seeds for row in wave]
            with ThreadPoolExecutor(args.jobs) as pool:
                codes = list(pool.map(lambda job: make(place, *job, args.quick), todo))
            failed += [f"{row.name}, seed {seed}" for (row, seed), code in zip(todo, codes, strict=True) if code]
    place = replace(
        place, table=replace(place.table, rows=[r for r in place.table.rows if r in chosen or not r.recipe])
    )
    if not args.quick:
        keep_outcomes(place, args.table, args.seeds)
    rows = report(place, args.seeds)
    found = {"env": place.table.env, "figures": rows, "targets": {}, "machine": machine("torch"), "commit": commit()}
    write_json(args.out / f"{args.table}.json", found)
    print(json.dumps(found) if args.json else markdown(rows))
    for name in failed:
        print(f"failed, see its log: {name}", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
