"""Does a model solve the tasks that it was trained on? What training reaches there, and what is left on other tasks.

    python benchmarks/learnt.py RUN [RUN ...] [--tasks N] [--out runs/learnt] [--json]

RUN is a run of `agentq train`. The model that its training began with and its last one act greedily on the tasks of its
first round, and the table tells apart those that the round solved, by any rollout. If a model solves few of these, it
has not learnt them; if it solves many, and no more of the held-out tasks than before, it has learnt only these. --tasks
measures every nth task, so that about N are left. Each measurement is a run directory below --out, and the same command
resumes where an earlier one stopped.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from outcomes import held_out

from agentq import envs
from agentq.evaluation.stats import wilson
from agentq.model_settings import ModelSettings
from agentq.policies.engine_names import make_engine
from agentq.policies.model_policy import ModelPolicy
from agentq.searching.collect import attempts, collect, inline, rollouts
from agentq.searching.rollout import RolloutSettings
from agentq.store.run import RunStore
from agentq.types import Task


def first_round(store: RunStore) -> dict[Task, bool]:
    """The tasks of a run's first round in its order, and whether a rollout succeeded."""
    stage = next(name for name in store.stages() if name.endswith("round1/collect"))
    found: dict[Task, bool] = {}
    for task, success in (
        *((tree.task, bool(tree.success.any())) for tree in store.trees(stage)),
        *((t.task, t.success) for t in store.trajectories(stage)),
    ):
        found[task] = found.get(task, False) or success
    return found


def greedy(path: Path, model: str, tasks: list[Task], config: dict[str, Any]) -> dict[int, bool]:
    """Success of a model by task seed, with a run's settings of model and episodes."""
    how, run = ModelSettings(**config["model"]), config["run"]
    settings = RolloutSettings(0.0, run["seed"], max_unreadable=run["max_unreadable"])
    wanted = {task.seed for task in tasks}
    with RunStore.open(path, {"model": model, "run": run}) as store:
        if wanted - store.done("episodes"):
            engine = make_engine(model, how)
            policy = ModelPolicy(engine, max_new_tokens=how.max_new_tokens, constrained=run["constrained"])
            work = inline(rollouts(lambda: envs.make(run["env"]), policy, settings))
            collect(store, "episodes", attempts(tasks), work, in_flight=32, on_item=lambda *_: None)
            engine.close()
        return {
            t.task.seed: t.success for t in store.trajectories("episodes") if t.task.seed in wanted and not t.broken
        }


def figures(run: Path, most: int, out: Path) -> dict[str, Any]:
    """By model, `[solved, n]` of the tasks that the first round solved, of the others, and of the held-out ones."""
    with RunStore.read(run) as store:
        solved = first_round(store)
        began = (store.note("base") or {})["name"]
        (last,) = held_out(store)
        others = [t.success for t in store.trajectories(last) if not t.broken]
        config = store.config
    tasks = list(solved)[:: max(1, len(solved) // most) if most else 1]
    recipe = last.removesuffix("/eval")
    rows = {}
    for name, model in (("before", began), ("after", str(run / "checkpoints" / recipe))):
        won = greedy(out / "-".join((*run.parts[-3:], name)), model, tasks, config)
        kept = {task: won[task.seed] for task in tasks if task.seed in won}
        rows[name] = {
            part: [
                sum(won for task, won in kept.items() if solved[task] is had),
                sum(solved[task] is had for task in kept),
            ]
            for part, had in (("solved", True), ("unsolved", False))
        }
    rows["after"]["held out"] = [sum(others), len(others)]
    return {"run": str(run), "recipe": recipe, "rows": rows}


def table(found: list[dict[str, Any]]) -> str:
    """Markdown: a row per model."""
    lines = [
        "| run | model | trained on | of those solved in training | of the others | held out |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for each in found:
        for model, row in each["rows"].items():
            both = [sum(pair) for pair in zip(row["solved"], row["unsolved"], strict=True)]
            cells = [_rate(*both), _rate(*row["solved"]), _rate(*row["unsolved"]), _rate(*row.get("held out", (0, 0)))]
            lines.append(f"| {each['run']} | {model} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _rate(won: int, n: int) -> str:
    if not n:
        return ""
    low, high = wilson(won, n)
    return f"{100 * won / n:.1f} % of {n} ({100 * low:.1f} - {100 * high:.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    parser.add_argument("--tasks", type=int, default=0, help="tasks per run, about; 0: all")
    parser.add_argument("--out", type=Path, default=Path("runs/learnt"), help="default: %(default)s")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    found = [figures(run, args.tasks, args.out) for run in args.runs]
    print(json.dumps(found) if args.json else table(found))


if __name__ == "__main__":
    main()
