"""Methods compared at one budget of environment steps: held-out success with intervals, and paired.

    python benchmarks/methods.py {loop,step_agent,all} [--seeds 0 ...] [--jobs 2] [--out runs/methods] [--report]

A row is one run of `agentq train` in its own directory. The same command resumes where an earlier one stopped, and
tables share rows. --report runs nothing and shows the existing results. Prints a Markdown table, writes TABLE.json to
the output directory and the outcomes of all tasks to benchmarks/results, from which `benchmarks/results.py` makes the
tables with intervals over seeds. The table here has the first attempt of four only.

All rows of a table have the same held-out tasks, seeds, base and budget. A row that starts from another row's model
begins behind that row's training tasks. The policy gradients also share tasks and rounds. Each family has the learning
rate that `rates.py` chose for it on validation tasks; one for which it has not run keeps those of its recipes, and the
policy gradients 1e-4. All else are the settings of the recipes, sized to the budget.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

from machine import commit, machine
from outcomes import Outcomes, interval, keep, of_runs

from agentq.evaluation.seeds import seed_difference
from agentq.evaluation.stats import RungResult
from agentq.policies.engine_names import embedded_base
from agentq.store.files import write_json
from agentq.store.run import RunStore

BUDGET = 10_000  # environment steps of training, at most; of demonstrations the expert's
NUM_HELD_OUT = 200
MEASURED = {"greedy": (0, 1), "sampled": (1, 4)}  # temperature; episodes per task, each a run with its own seed
SHARED = ("--eval.measure_base=false", "--run.num_rounds=99", f"--run.max_env_steps={BUDGET}")
GROUPS = (
    *("--run.num_tasks=16", "--run.group_size=8", "--train.learning_rate=1e-4"),
    *("--train.epochs=2", "--train.batch_size=32"),
)
EXPERT = ("sft", "step_agent_implicit", "step_agent_inverse")  # their rounds collect its successes
# Strictly on-policy: one step per round. Small rounds, so that there are about as many updates as with GROUPS.
STRICT = (*GROUPS, "--run.num_tasks=2", "--train.epochs=1", "--train.batch_size=16")


FAMILIES = {  # recipes that share a learning rate; the first stands for its family in `rates.py`
    "imitation": ("rft", "sft", "ei"),
    "preferences": ("agent_q", "outcome_dpo", "step_agent_implicit"),
    "strict": ("rloo", "reinforce"),
    "clipped": (
        *("grpo", "loop", "ppo", "dapo", "gspo", "gigpo", "arpo_replay", "arpo_entropy", "tree_grpo"),
        *("tree_rl", "tree_po", "step_agent_inverse"),
    ),
}
RATES = Path(__file__).parent / "rates.json"


@dataclass(frozen=True, slots=True)
class Row:
    """One run. `recipe` None is the base itself. `start` names the row whose model training begins with."""

    name: str
    recipe: str | None
    words: tuple[str, ...] = ()
    start: str | None = None


CHANGES = {  # of LOOP's loss, one at a time
    "": (),
    ", std": ("--policy_gradient.divide_by_std=true",),
    ", not clipped": ("--policy_gradient.clip_low=1", "--policy_gradient.clip_high=1e9"),
    ", constant": ("--policy_gradient.average=constant",),
}


def _loop(ratio: str, change: str) -> Row:
    unit = "trajectory" if ratio == "sequence" else ratio
    words = (*GROUPS, f"--policy_gradient.ratio={ratio}", *CHANGES[change])
    return Row(f"loop, ratio per {unit}{change}", "loop", words)


LOOP = [
    Row("base", None),
    *(_loop(ratio, change) for change in CHANGES for ratio in ("token", "turn", "sequence")),
    Row("rloo", "rloo", STRICT),
    Row("grpo", "grpo", GROUPS),
    Row("ppo", "ppo", GROUPS),
]
SHOWN, INSPECTED = 60, 300  # episodes of the expert that SFT is trained on; others whose states are inspected
ONCE = ("--run.num_rounds=1", "--train.epochs=2")
OTHERS = (f"--run.first_task={SHOWN}", f"--run.num_tasks={INSPECTED}")
STEP_AGENT = [
    Row("base", None),
    Row("sft", "sft", (f"--run.num_tasks={SHOWN}", *ONCE)),
    Row("sft, all", "sft", (f"--run.num_tasks={SHOWN + INSPECTED}", *ONCE)),
    Row("step_agent_implicit", "step_agent_implicit", OTHERS, "sft"),
    Row("step_agent_inverse", "step_agent_inverse", (*OTHERS, "--train.learning_rate=1e-4"), "sft"),
    Row("ppo", "ppo", (*GROUPS, f"--run.first_task={SHOWN}"), "sft"),
]
ALL = [
    Row("base", None),
    Row("sft", "sft", ("--run.num_tasks=660", "--run.num_rounds=1")),
    Row("rft", "rft", ("--run.num_tasks=130", "--run.num_rounds=1")),
    Row("ei", "ei", ("--run.num_tasks=30",)),
    Row("outcome_dpo", "outcome_dpo", ("--run.num_tasks=65", "--run.num_rounds=1")),
    Row("agent_q", "agent_q", ("--run.num_tasks=105", "--run.num_rounds=1")),
    Row("step_agent_implicit", "step_agent_implicit", ("--run.num_tasks=220", "--run.num_rounds=3")),
    Row("step_agent_inverse", "step_agent_inverse", ("--run.num_tasks=220", "--run.num_rounds=3", *GROUPS[2:])),
    Row("reinforce", "reinforce", (*STRICT, "--run.group_size=1", "--run.num_tasks=16")),
    *(row for row in LOOP if row.name in ("rloo", "loop, ratio per token", "grpo", "ppo")),
    *(
        Row(name, name, GROUPS)
        for name in ("dapo", "gspo", "gigpo", "arpo_replay", "tree_grpo", "arpo_entropy", "tree_rl", "tree_po")
    ),
]
TABLES: dict[str, tuple[str, list[Row]]] = {
    "loop": ("booking", LOOP),
    "step_agent": ("booking", STEP_AGENT),
    "all": ("booking", ALL),
}


def rate(recipe: str) -> tuple[str, ...]:
    """The word for the learning rate of a recipe's family, if one has been chosen."""
    known = json.loads(RATES.read_text()) if RATES.exists() else {}
    return tuple(
        f"--train.learning_rate={known[family]['learning_rate']:g}"
        for family, recipes in FAMILIES.items()
        if recipe in recipes and family in known
    )


def directory(out: Path, env: str, row: Row, seed: int) -> Path:
    """The directory of a row's run. Tables over one site share rows of one name."""
    return out / env / f"seed{seed}" / row.name.replace(", ", "-").replace(" ", "_")


def make(out: Path, env: str, row: Row, seed: int, table: list[Row], quick: bool) -> int:
    """Train and measure one row, or the missing part of it; return the exit code of what failed, or 0."""
    path = directory(out, env, row, seed)
    common = ["--json", f"--env={env}", f"--eval.num_tasks={5 if quick else NUM_HELD_OUT}"]
    more = ("--run.num_rounds=1", "--run.num_tasks=2") if quick else ()
    if row.recipe is not None and not summary(path):
        start = next((r for r in table if r.name == row.start), None)
        base = () if start is None else ("--base", str(checkpoint(directory(out, env, start, seed), start)))
        told = (f"--out={path}", *SHARED, *row.words, *rate(row.recipe), *more)
        if code := agentq(path, "train", row.recipe, *common, f"--seed={seed}", *told, *base):
            return code
    for name, (temperature, _) in MEASURED.items():
        for attempt, measured in enumerate(_measured(path, row, name)):
            words = (f"--out={measured}", f"--eval.temperature={temperature}", f"--seed={seed + 1000 * attempt}")
            told = (str(checkpoint(path, row)), *common, *words)
            if not summary(measured) and (code := agentq(measured, "eval", *told)):
                return code
    return 0


def checkpoint(path: Path, row: Row) -> Path:
    """The model of a row's run."""
    return path / "checkpoints" / row.recipe if row.recipe else embedded_base()


def summary(path: Path) -> RungResult | None:
    """The last row of a run's summary, or None if there is none yet."""
    file = path / "summary.json"
    rows = json.loads(file.read_text()) if file.exists() else []
    return RungResult.from_dict(rows[-1]) if rows else None


def _measured(path: Path, row: Row, name: str) -> list[Path]:
    """The directories of a row's held-out episodes, one per attempt; a trained model's greedy ones are in its run."""
    if name == "greedy" and row.recipe:
        return [path]
    first = path.with_name(f"{path.name}-{name}")
    return [first, *(first.with_name(f"{first.name}-{n}") for n in range(2, MEASURED[name][1] + 1))]


def keep_outcomes(out: Path, name: str, seeds: list[int]) -> None:
    """Write the outcomes of all finished rows of a table to `benchmarks/results`."""
    env, table = TABLES[name]
    command = f"python benchmarks/methods.py {name} --seeds {' '.join(map(str, seeds))}"
    for row, seed, how in product(table, seeds, MEASURED):
        path = directory(out, env, row, seed)
        runs = _measured(path, row, how)
        if all(map(summary, runs)):
            steps = training(path, row.recipe)["env_steps"] if row.recipe else 0
            tasks = of_runs(runs)
            keep(Outcomes(f"methods-{name}", env, row.name, how, seed, command, commit(), tasks, steps))


def agentq(path: Path, *words: str) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f"{path.name}.log").open("a") as log:
        one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "agentq", *words]
        return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=log, env=one_thread).returncode


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


def report(out: Path, env: str, table: list[Row], seeds: list[int]) -> list[dict[str, Any]]:
    """The existing results, one dictionary per row, in the table's order; the base comes first."""
    base: dict[tuple[str, int], dict[str, bool]] = {}  # held-out success by (greedy or sampled, seed), by task
    figures = []
    for row in table:
        paths = {seed: directory(out, env, row, seed) for seed in seeds}
        figure: dict[str, Any] = {"name": row.name}
        if row.recipe:
            runs = [training(path, row.recipe) for path in paths.values() if summary(path)]
            figure |= {key: [run[key] for run in runs] for key in (runs[0] if runs else ())}
        for name in MEASURED:
            measured = {seed: _measured(path, row, name)[0] for seed, path in paths.items()}
            results = {seed: found for seed, path in measured.items() if (found := summary(path))}
            if not results:
                continue
            own = {seed: {task: won > 0 for task, won in of_runs([measured[seed]]).items()} for seed in results}
            base |= {} if row.recipe else {(name, seed): won for seed, won in own.items()}
            low, high = interval(list(results.values()))
            rates = [result.rate for result in results.values()]
            figure[name] = {"rate": fmean(rates), "low": low, "high": high, "seeds": sorted(results)}
            both = [(own[s], base[name, s]) for s in own if (name, s) in base]
            if row.recipe and both:
                tasks = [sorted(mine.keys() & first.keys()) for mine, first in both]
                ours, theirs = (
                    [[pair[side][task] for task in each] for pair, each in zip(both, tasks, strict=True)]
                    for side in (0, 1)
                )
                figure[name]["less_base"] = asdict(seed_difference(ours, theirs))
        figures += [figure] if len(figure) > 1 else []
    return figures


def markdown(rows: list[dict[str, Any]]) -> str:
    """The table of docs/experiments.md."""
    lines = [
        "| method | greedy | minus base | sampled | minus base | training rounds | env. steps | updates |",
        "|---|---|---|---|---|---|---|---|",
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
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--jobs", type=int, default=2, help="runs at once, one process with one thread each")
    parser.add_argument("--out", type=Path, default=Path("runs/methods"))
    parser.add_argument("--only", nargs="+", metavar="ROW", help="run these rows only")
    parser.add_argument("--quick", action="store_true", help="one round of two tasks, to see whether it runs")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    parser.add_argument("--report", action="store_true", help="run nothing, show the existing results")
    args = parser.parse_args()
    env, table = TABLES[args.table]
    failed: list[str] = []
    if not args.report:
        # rows that others start from come first, so that no row runs twice at once
        chosen = [r for r in table if args.only is None or r.name in args.only]
        starts = {row.start for row in table}
        for wave in ([r for r in chosen if r.name in starts], [r for r in chosen if r.name not in starts]):
            todo = [(row, seed) for seed in args.seeds for row in wave]
            with ThreadPoolExecutor(args.jobs) as pool:
                codes = list(pool.map(lambda job: make(args.out, env, *job, table, args.quick), todo))
            failed += [f"{row.name}, seed {seed}" for (row, seed), code in zip(todo, codes, strict=True) if code]
    if not args.quick:
        keep_outcomes(args.out, args.table, args.seeds)
    rows = report(args.out, env, table, args.seeds)
    found = {"env": env, "figures": rows, "targets": {}, "machine": machine("torch"), "commit": commit()}
    write_json(args.out / f"{args.table}.json", found)
    print(json.dumps(found) if args.json else markdown(rows))
    for name in failed:
        print(f"failed, see its log: {name}", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
