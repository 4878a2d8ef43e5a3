"""Chooses the learning rate of each family of methods by success on validation tasks. `methods.py` then uses it.

    python benchmarks/rates.py [--families clipped strict ...] [--rates 3e-5 1e-4 3e-4] [--seeds 0] [--report]

Each family is represented by one row of `methods.py`, with its budget and its number of updates. A run trains it at one
rate and measures it sampled at temperature 1, which is what policy gradients optimise and is less a matter of one
decision than greedy success. The rate with the highest mean over seeds is chosen; of equal ones the smaller. The same
command resumes where an earlier one stopped. Writes rates.json beside this file. Held-out tasks are not looked at.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import fmean
from typing import Any

from machine import commit
from methods import RATES, SHARED, agentq, summary
from methods_rows import ALL, BUDGET, FAMILIES, Row

from agentq.store.files import write_json

ENV = "booking"


def represented(family: str) -> Row:
    """The row that stands for a family."""
    return next(row for row in ALL if row.recipe == FAMILIES[family][0])


def measured(out: Path, family: str, rate: float, seed: int, num_tasks: int) -> float | None:
    """Success of one run on validation tasks, which is made unless it exists; None if it fails."""
    row, path = represented(family), out / ENV / f"seed{seed}" / f"rate-{family}-{rate:g}"
    assert row.recipe is not None
    if not summary(path):
        held_out = ("--eval.split=validation", f"--eval.num_tasks={num_tasks}", "--eval.temperature=1")
        told = (f"--env={ENV}", f"--seed={seed}", f"--out={path}", f"--train.learning_rate={rate:g}")
        agentq(
            path, "train", row.recipe, "--json", *SHARED, f"--run.max_env_steps={BUDGET}", *row.words, *held_out, *told
        )
    found = summary(path)
    return None if found is None else found.rate


def chosen(success: dict[str, list[float]]) -> float:
    """The rate with the highest mean success; of equal ones the smallest."""
    return float(min(success, key=lambda rate: (-fmean(success[rate]), float(rate))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--rates", type=float, nargs="+", default=[3e-5, 1e-4, 3e-4])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--tasks", type=int, default=200, help="validation tasks; default: %(default)s")
    parser.add_argument("--out", type=Path, default=Path("runs/rates"))
    parser.add_argument("--report", action="store_true", help="run nothing, show what is chosen")
    args = parser.parse_args()
    found: dict[str, Any] = json.loads(RATES.read_text()) if RATES.exists() else {}
    for family in [] if args.report else args.families:
        runs = {
            f"{rate:g}": [measured(args.out, family, rate, seed, args.tasks) for seed in args.seeds]
            for rate in args.rates
        }
        success = {rate: [each for each in own if each is not None] for rate, own in runs.items()}
        success = {rate: own for rate, own in success.items() if own}
        if success:
            row = represented(family).name
            about = {"row": row, "env": ENV, "tasks": args.tasks, "seeds": args.seeds, "commit": commit()}
            found[family] = {"learning_rate": chosen(success), "success": success, **about}
            write_json(RATES, found)
    for family, about in found.items():
        tried = ", ".join(f"{rate}: {100 * fmean(own):.1f} %" for rate, own in about["success"].items())
        print(f"{family} ({about['row']}): {about['learning_rate']:g} of {tried}")


if __name__ == "__main__":
    main()
