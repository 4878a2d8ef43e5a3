"""What makes a policy propose different actions, and what does that buy? Temperature and K, with and without effect.

    python benchmarks/proposals.py [--env shop] [--base MODEL] [--tasks 60] [--seeds 0 1 2] [--iterations 16] [--report]

The base alone, without a critic, searches the same validation tasks with each temperature and number of proposals K
until a rollout succeeds. For each row: how many of the expanded nodes have one distinct proposal, and how many a node
has on average; the tasks that were solved, the rollouts until then (a tree without success counts its budget), and the
tokens that were sampled. A row is a run directory; the same command resumes where an earlier one stopped. Solved tasks
and rollouts go to benchmarks/results, for `benchmarks/results.py`. --report runs nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from alpha import by_task, searched
from machine import commit, machine
from outcomes import RESULTS, Outcomes, base_words, keep, titled
from results import markdown, tables

from agentq import envs
from agentq.policies.engine_names import embedded_base, make_engine
from agentq.policies.model_policy import ModelPolicy
from agentq.searching.selection import SearchSettings
from agentq.store.records import TreeRecord
from agentq.types import Split

ROWS = ((0.8, 5), (0.5, 5), (1.0, 5), (1.2, 5), (0.8, 2), (0.8, 10))  # temperature, K; the first is that of training


def search(
    args: argparse.Namespace, temperature: float, num_proposals: int, seed: int, policy: Any
) -> list[TreeRecord]:
    """The trees of a row; those that its directory lacks are searched first, unless there is no policy."""
    settings = SearchSettings(args.iterations, num_proposals, temperature, stop_on_success=True, seed=seed)
    budget = [args.iterations, num_proposals, temperature]
    identity = {"env": args.env, "base": str(args.base), "seed": seed, "budget": budget}
    tasks = envs.tasks(args.env, Split.VALIDATION, args.tasks)
    name = f"{titled(args.env.replace('/', '-'), args.base)}-T{temperature:g}-K{num_proposals}-{seed}"
    return searched(args.out / name, identity, args.env, tasks, policy, None, settings)


def measured(trees: Sequence[TreeRecord], iterations: int) -> dict[str, Any]:
    """The figures of a row, and success and rollouts by task."""
    children = np.concatenate([np.bincount(tree.parent[1:]) for tree in trees])
    children = children[children > 0]
    found = by_task(trees, iterations)
    return {
        "one distinct": float((children == 1).mean()),
        "distinct": float(children.mean()),
        "solved": fmean(found["oracle"].values()),
        "rollouts": fmean(found["rollouts"].values()),
        "tokens": fmean(tree.info["generated_tokens"] for tree in trees),
        "by_task": found,
        "env_steps": sum(int(tree.info["env_steps"]) for tree in trees),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="shop")
    parser.add_argument("--base", type=Path, metavar="MODEL", default=embedded_base())
    parser.add_argument("--tasks", type=int, default=60, help="validation tasks per seed")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--iterations", type=int, default=16, help="rollouts per tree at most")
    parser.add_argument("--out", type=Path, default=Path("runs/proposals"))
    parser.add_argument("--results", type=Path, default=RESULTS, help="default: %(default)s")
    parser.add_argument("--report", action="store_true", help="run nothing")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    policy = None if args.report else ModelPolicy(make_engine(args.base))
    words = ["python benchmarks/proposals.py --env", args.env, *base_words(args.base)]
    command = " ".join([*words, "--tasks", str(args.tasks), "--iterations", str(args.iterations)])
    kept, figures = list[Outcomes](), list[dict[str, Any]]()
    for temperature, k in ROWS:
        row, seeds = f"T {temperature:g}, K {k}", list[dict[str, Any]]()
        for seed in args.seeds:
            if not (trees := search(args, temperature, k, seed, policy)):
                continue
            seeds.append(measured(trees, args.iterations))
            for how, tasks in seeds[-1].pop("by_task").items():
                table, steps = titled("proposals", args.base), seeds[-1]["env_steps"]
                kept.append(Outcomes(table, args.env, row, how, seed, command, commit(), tasks, steps))
                if policy is not None:
                    keep(kept[-1], args.results)
        if seeds:
            figures.append({"row": row, **{key: fmean(each[key] for each in seeds) for key in seeds[0]}})
            print(_line(figures[-1]), file=sys.stderr, flush=True)
    if args.json:
        print(json.dumps({"figures": figures, "targets": {}, "machine": machine("torch"), "commit": commit()}))
    else:
        print("\n".join(map(_line, figures)) + "\n\n" + "\n\n".join(map(markdown, tables(kept))))
    return 0


def _line(figure: dict[str, Any]) -> str:
    one, mean = 100 * figure["one distinct"], figure["distinct"]
    return (
        f"| {figure['row']} | {one:.0f} % | {mean:.2f} | {100 * figure['solved']:.1f} % | {figure['rollouts']:.2f} |"
        f" {figure['tokens']:.0f} |"
    )


if __name__ == "__main__":
    sys.exit(main())
