"""Methods against one another at one budget of environment steps: held-out success with intervals, and paired.

    python benchmarks/methods.py {loop,step_agent,all} [--seeds 0 ...] [--jobs 2] [--out runs/methods] [--report]

A row is one run of `agentq train` in a directory of its own; the same command goes on where an earlier one stopped, and
tables share rows. --report runs nothing and shows what there is. Prints a Markdown table and writes TABLE.json there.

All rows of a table have the same held-out tasks, seeds, base and budget; the policy gradients also share tasks,
rounds and learning rate, which was chosen for GRPO by the success of its training rounds. The other methods keep the
settings of their recipes, sized to the budget.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from machine import commit, machine

from agentq.evaluate.stats import RungResult, paired_difference, pool_seeds
from agentq.store.files import write_json
from agentq.store.run import RunStore

BUDGET = 10_000  # environment steps of training, at most; of demonstrations the expert's
SHARED = ("--eval.num_tasks=200", "--eval.measure_base=false", "--run.num_rounds=99", f"--run.max_env_steps={BUDGET}")
GROUPS = (
    *("--run.num_tasks=16", "--run.group_size=8", "--train.learning_rate=1e-4"),
    *("--train.epochs=2", "--train.batch_size=32"),
)
EXPERT = ("sft", "step_agent_implicit", "step_agent_inverse")  # what their rounds collect are its successes
STRICT = (*GROUPS, "--train.epochs=1", "--train.batch_size=128")  # one step a round


@dataclass(frozen=True, slots=True)
class Row:
    """A run; `start` is the row whose model it begins with. Without recipe: the base, measured by the run `start`."""

    name: str
    recipe: str | None
    words: tuple[str, ...] = ()
    start: str | None = None


def _loop(ratio: str, std: bool) -> Row:
    words = (*GROUPS, f"--policy_gradient.ratio={ratio}", f"--policy_gradient.divide_by_std={std}")
    unit = "trajectory" if ratio == "sequence" else ratio
    return Row(f"loop, ratio a {unit}{', std' if std else ''}", "loop", words)


LOOP = [
    Row("base", None, start="grpo"),
    *(_loop(ratio, std) for std in (False, True) for ratio in ("token", "turn", "sequence")),
    Row("rloo", "rloo", STRICT),
    Row("grpo", "grpo", GROUPS),
    Row("ppo", "ppo", GROUPS),
]
DEMOS = "--run.num_tasks=60"
STEP_AGENT = [
    Row("base", None, start="sft"),
    Row("sft", "sft", (DEMOS, "--run.num_rounds=1", "--train.epochs=2")),
    Row("sft, longer", "sft", (DEMOS, "--run.num_rounds=1", "--train.epochs=4"), "sft"),
    Row("step_agent_implicit", "step_agent_implicit", (DEMOS,), "sft"),
    Row("step_agent_inverse", "step_agent_inverse", (DEMOS, "--train.learning_rate=1e-4"), "sft"),
    Row("ppo", "ppo", GROUPS, "sft"),
]
ALL = [
    Row("base", None, start="grpo"),
    Row("sft", "sft", ("--run.num_tasks=660", "--run.num_rounds=1")),
    Row("rft", "rft", ("--run.num_tasks=130", "--run.num_rounds=1")),
    Row("ei", "ei", ("--run.num_tasks=30",)),
    Row("outcome_dpo", "outcome_dpo", ("--run.num_tasks=65", "--run.num_rounds=1")),
    Row("agent_q", "agent_q", ("--run.num_tasks=105", "--run.num_rounds=1")),
    Row("step_agent_implicit", "step_agent_implicit", ("--run.num_tasks=220", "--run.num_rounds=3")),
    Row("step_agent_inverse", "step_agent_inverse", ("--run.num_tasks=220", "--run.num_rounds=3", *GROUPS[2:])),
    Row("reinforce", "reinforce", (*STRICT, "--run.group_size=1", "--run.num_tasks=128")),
    *(row for row in LOOP if row.name in ("rloo", "loop, ratio a token", "grpo", "ppo")),
    *(Row(name, name, GROUPS) for name in ("dapo", "gspo", "gigpo", "arpo_replay", "tree_grpo", "arpo_entropy")),
]
TABLES: dict[str, tuple[str, list[Row]]] = {
    "loop": ("booking", LOOP),
    "step_agent": ("shop", STEP_AGENT),
    "all": ("booking", ALL),
}


def directory(out: Path, env: str, row: Row, seed: int) -> Path:
    """Where a row's run lies: tables over one site share rows of one name."""
    return out / env / f"seed{seed}" / row.name.replace(", ", "-").replace(" ", "_")


def train(out: Path, env: str, row: Row, seed: int, table: list[Row]) -> int:
    """Run or resume one row in a process of its own, after the one it starts from; returns its exit code."""
    path = directory(out, env, row, seed)
    if (path / "summary.json").exists() and result(path, str(row.recipe)) is not None:
        return 0
    words = [f"--run.env={env}", f"--run.seed={seed}", f"--run.out={path}", *SHARED]
    words += [f"--eval.measure_base={row.name == table[0].start}", *row.words]
    command = [sys.executable, "-m", "agentq.cli", "train", str(row.recipe), "--json", *words]
    if row.start is not None:
        (start,) = [r for r in table if r.name == row.start]
        if code := train(out, env, start, seed, table):
            return code
        command += ["--base", str(directory(out, env, start, seed) / "checkpoints" / str(start.recipe))]
    path.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".log").open("a") as log:
        one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}
        return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=log, env=one_thread).returncode


def result(path: Path, name: str) -> RungResult | None:
    """The held-out result of this name in a run's summary, None where it is not there yet."""
    rows = json.loads((path / "summary.json").read_text())
    return next((RungResult.from_dict(r) for r in rows if r["name"] == name), None)


def read(path: Path, name: str) -> dict[str, Any] | None:
    """What one run shows of a recipe, or of the base; None where its held-out result is not there yet."""
    held_out = result(path, name) if (path / "summary.json").exists() else None
    if held_out is None:
        return None
    with RunStore.read(path) as store:
        own = {t.task.seed: t.success for t in store.trajectories(f"{name}/eval")}
        lines = list(store.metrics())
        notes = [note for n in range(1, 100) if (note := store.note(f"{name}/round{n}/learn"))]
    return {
        "result": held_out,
        "outcomes": own,
        "env_steps": sum(note["env_steps"] for note in notes),
        "rounds": len(notes),
        "updates": sum(line["stage"] == f"{name}/learn" for line in lines),
        "training_success": [line["success"] for line in lines if line["stage"] == name and name not in EXPERT],
    }


def report(out: Path, env: str, table: list[Row], seeds: list[int]) -> list[dict[str, Any]]:
    """What there is, a dictionary a row, in the table's order; the base comes first."""
    by_name = {row.name: row for row in table}
    base: dict[int, dict[int, bool]] = {}  # held-out success by task, by seed
    figures = []
    for row in table:
        run = row if row.recipe else by_name[str(row.start)]
        runs = {seed: read(directory(out, env, run, seed), row.recipe or "base") for seed in seeds}
        found = {seed: shown for seed, shown in runs.items() if shown}
        if not found:
            continue
        base = base if row.recipe else {seed: shown["outcomes"] for seed, shown in found.items()}
        pooled = pool_seeds([shown["result"] for shown in found.values()])
        pairs = [(won, base[s][task]) for s in found.keys() & base.keys() for task, won in found[s]["outcomes"].items()]
        less_base = asdict(paired_difference(*zip(*pairs, strict=True))) if row.recipe and pairs else None
        figures.append(
            {
                "name": row.name,
                **{key: getattr(pooled, key) for key in ("successes", "n", "low", "high")},
                **{key: [shown[key] for shown in found.values()] for key in ("env_steps", "rounds", "updates")},
                "training_success": [shown["training_success"] for shown in found.values()],
                "seeds": sorted(found),
                "less_base": less_base,
            }
        )
    return figures


def markdown(rows: list[dict[str, Any]]) -> str:
    """The table of docs/experiments.md."""
    lines = [
        "| method | held-out | 95 % interval | less base, paired | env. steps | rounds | updates | training success |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        n, less, curve = row["n"], row["less_base"], row["training_success"][0]
        shown = "-"
        if less:
            low, high = 100 * less["low"], 100 * less["high"]
            shown = f"{100 * less['diff']:+.1f} ({low:+.1f} to {high:+.1f}), p {less['p_value']:.2g}"
        cells = [
            row["name"],
            f"{row['successes']} of {n}, {100 * row['successes'] / n:.1f} %",
            f"{100 * row['low']:.1f} to {100 * row['high']:.1f}",
            shown,
            *(", ".join(map(str, row[key])) for key in ("env_steps", "rounds", "updates")),
            f"{100 * curve[0]:.0f} to {100 * curve[-1]:.0f} %" if len(curve) > 1 else "-",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--jobs", type=int, default=2, help="runs at once, a process of one thread each")
    parser.add_argument("--out", type=Path, default=Path("runs/methods"))
    parser.add_argument("--only", nargs="+", metavar="ROW", help="run these rows alone")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    parser.add_argument("--report", action="store_true", help="show what there is")
    args = parser.parse_args()
    env, table = TABLES[args.table]
    failed: list[str] = []
    if not args.report:
        # rows that others start from come first, so that no row is run twice at once
        chosen = [r for r in table if r.recipe and (args.only is None or r.name in args.only)]
        starts = {row.start for row in table if row.recipe}
        for wave in ([r for r in chosen if r.name in starts], [r for r in chosen if r.name not in starts]):
            todo = [(row, seed) for seed in args.seeds for row in wave]
            with ThreadPoolExecutor(args.jobs) as pool:
                codes = list(pool.map(lambda job: train(args.out, env, *job, table), todo))
            failed += [f"{row.name}, seed {seed}" for (row, seed), code in zip(todo, codes, strict=True) if code]
    rows = report(args.out, env, table, args.seeds)
    found = {"env": env, "figures": rows, "targets": {}, "machine": machine("torch"), "commit": commit()}
    write_json(args.out / f"{args.table}.json", found)
    print(json.dumps(found) if args.json else markdown(rows))
    for name in failed:
        print(f"failed, see its log: {name}", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
