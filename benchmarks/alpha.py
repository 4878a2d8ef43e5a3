"""What is the critic's share in selection worth? Rollouts to the first success by `search.alpha`.

    python benchmarks/alpha.py [--env booking] [--base MODEL] [--tasks 100] [--seeds 0 1 2] [--alphas 1 0.75 0.5]
                               [--iterations 16] [--report]

The base, with itself as critic, searches the same validation tasks with each alpha and seed until a rollout succeeds,
and once more without a critic. A tree without a success counts its whole budget, `--iterations`. With equal seeds the
first rollout of a task is the same for every row. A row is a run directory, and the same command resumes where an
earlier one stopped; each row's outcomes are written to `--results`. --report runs nothing and shows the outcomes.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

from machine import commit, machine
from outcomes import RESULTS, Outcomes, base_words, keep, read, titled
from results import markdown, tables
from selection import PROPOSALS, TEMPERATURE

from agentq import envs
from agentq.critics.ranker import LLMRanker
from agentq.policies.engine_names import embedded_base, make_engine
from agentq.policies.model_policy import ModelPolicy
from agentq.searching.collect import attempts, collect, inline
from agentq.searching.collect import trees as searches
from agentq.searching.selection import SearchSettings
from agentq.store.records import TreeRecord
from agentq.store.run import RunStore
from agentq.types import Split, Task

TABLE = "alpha"


def search(args: argparse.Namespace, row: str, alpha: float, seed: int, policy: Any, critic: Any) -> list[TreeRecord]:
    """The trees of a row; those that its directory lacks are searched first."""
    settings = SearchSettings(args.iterations, PROPOSALS, TEMPERATURE, stop_on_success=True, seed=seed, alpha=alpha)
    budget = [args.iterations, PROPOSALS, TEMPERATURE]
    identity = {"env": args.env, "base": str(args.base), "row": row, "seed": seed, "budget": budget}
    tasks = envs.tasks(args.env, Split.VALIDATION, args.tasks)
    path = args.out / titled(args.env.replace("/", "-"), args.base) / f"{row.replace(' ', '_')}-{seed}"
    return searched(path, identity, args.env, tasks, policy, critic, settings)


def searched(
    path: Path,
    identity: dict[str, Any],
    env: str,
    tasks: list[Task],
    policy: Any,
    critic: Any,
    settings: SearchSettings,
) -> list[TreeRecord]:
    """The trees of the run `path`, in the order of the tasks; with a policy, those that it lacks are searched first."""
    with RunStore.open(path, identity) as store:
        if policy is not None:
            work = searches(lambda: envs.make(env), policy, critic, settings)
            collect(store, "search", attempts(tasks), inline(work), in_flight=32, on_item=lambda *_: None)
        found = {tree.task.seed: tree for tree in store.trees("search")}
    return [found[task.seed] for task in tasks if task.seed in found]


def by_task(trees: Sequence[TreeRecord], iterations: int) -> dict[str, dict[str, float]]:
    """Success (`oracle`) and `rollouts` until then by task; a tree without a success counts its whole budget."""
    infos = {str(tree.task.seed): tree.info for tree in trees}
    return {
        "oracle": {seed: float(info["succeeded"]) for seed, info in infos.items()},
        "rollouts": {
            seed: float(info["iterations"] if info["succeeded"] else iterations) for seed, info in infos.items()
        },
    }


def keep_row(args: argparse.Namespace, row: str, seed: int, trees: Sequence[TreeRecord]) -> None:
    """Write which tasks a row solved, and after how many rollouts."""
    steps = sum(int(tree.info["env_steps"]) for tree in trees)
    words = ["python benchmarks/alpha.py --env", args.env, *base_words(args.base)]
    command = " ".join([*words, "--tasks", str(args.tasks), "--iterations", str(args.iterations)])
    table = titled(TABLE, args.base)
    for measured, tasks in by_task(trees, args.iterations).items():
        keep(Outcomes(table, args.env, row, measured, seed, command, commit(), tasks, steps), args.results)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=100, help="validation tasks per seed")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--alphas", type=float, nargs="+", default=[1.0, 0.75, 0.5])
    parser.add_argument("--iterations", type=int, default=16, help="rollouts per tree at most")
    parser.add_argument("--env", default="booking")
    parser.add_argument("--base", type=Path, metavar="MODEL", default=embedded_base())
    parser.add_argument("--out", type=Path, default=Path("runs/alpha"))
    parser.add_argument("--results", type=Path, default=RESULTS, help="default: %(default)s")
    parser.add_argument("--report", action="store_true", help="run nothing")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if not args.report:
        engine = make_engine(args.base)
        policy, ranker = ModelPolicy(engine), LLMRanker(engine)
        rows = [(f"alpha {alpha:g}", alpha, ranker) for alpha in args.alphas] + [("no critic", 1.0, None)]
        for seed, (row, alpha, critic) in product(args.seeds, rows):
            begun = time.monotonic()
            keep_row(args, row, seed, search(args, row, alpha, seed, policy, critic))
            print(f"{row}, seed {seed}: {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
    table = titled(TABLE, args.base)
    found = [each for each in read(args.results) if each.table == table and each.env == args.env]
    if args.json:
        print(json.dumps({"tables": tables(found), "targets": {}, "machine": machine("torch"), "commit": commit()}))
    else:
        print("\n\n".join(map(markdown, tables(found))) or f"no outcomes in {args.results}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
