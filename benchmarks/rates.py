"""Chooses the learning rate of each family of methods by success on validation tasks. `methods.py` then uses it.

    python benchmarks/rates.py [--table all] [--base MODEL] [--families clipped strict ...] [--rates 3e-5 1e-4 3e-4]

Each family is represented by one row of a table of `methods.py`, with its budget and its number of updates. A run
trains it at one rate and measures it sampled at temperature 1, which is what policy gradients optimise and is less a
matter of one decision than greedy success. The rate with the highest mean over seeds is chosen; of equal ones the
smaller. The same command resumes where an earlier one stopped. Writes rates.json beside this file: by environment and
base, by family. Held-out tasks are not looked at. --report runs nothing.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

from machine import commit
from methods import INLINE, RATES, SHARED, Place, agentq, known_rates, summary
from methods_rows import FAMILIES, TABLES, Row, Table

from agentq.policies.engine_names import embedded_base
from agentq.store.files import write_json


def represented(family: str, table: Table) -> Row | None:
    """The row that stands for a family in a table, if it has one that begins with the base."""
    rows = {row.recipe: row for row in reversed(table.rows) if not row.start}
    return next((rows[recipe] for recipe in FAMILIES[family] if recipe in rows), None)


def measured(place: Place, row: Row, family: str, rate: float, seed: int, num_tasks: int) -> float | None:
    """Success of one run on validation tasks, which is made unless it exists; None if it fails."""
    table, path = place.table, place.out / place.title / f"seed{seed}" / f"rate-{family}-{rate:g}"
    assert row.recipe is not None
    if not summary(path):
        held_out = ("--eval.split=validation", f"--eval.num_tasks={num_tasks}", "--eval.temperature=1")
        told = (f"--env={table.env}", f"--seed={seed}", f"--out={path}", f"--base={place.base}", *table.more)
        words = (*SHARED, f"--run.max_env_steps={table.budget}", *place.words(row), f"--train.learning_rate={rate:g}")
        agentq(path, "train", row.recipe, "--json", INLINE, *words, *held_out, *told)
    found = summary(path)
    return None if found is None else found.rate


def chosen(success: dict[str, list[float]]) -> float:
    """The rate with the highest mean success; of equal ones the smallest."""
    return float(min(success, key=lambda rate: (-fmean(success[rate]), float(rate))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", choices=TABLES, default="all", help="default: %(default)s")
    parser.add_argument("--base", type=Path, metavar="MODEL", default=embedded_base(), help="where training starts")
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--rates", type=float, nargs="+", default=[3e-5, 1e-4, 3e-4])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--tasks", type=int, default=200, help="validation tasks; default: %(default)s")
    parser.add_argument("--jobs", type=int, default=2, help="runs at once, one process with one thread each")
    parser.add_argument("--out", type=Path, default=Path("runs/rates"))
    parser.add_argument("--report", action="store_true", help="run nothing, show what is chosen")
    args = parser.parse_args()
    place = Place(args.out, TABLES[args.table], args.base)
    rows = {family: row for family in args.families if (row := represented(family, place.table))}
    todo = [] if args.report else list(product(rows, args.rates, args.seeds))
    with ThreadPoolExecutor(args.jobs) as pool:
        found = list(pool.map(lambda job: measured(place, rows[job[0]], *job, args.tasks), todo))
    success: dict[str, dict[str, list[float]]] = {}
    for (family, rate, _), own in zip(todo, found, strict=True):
        if own is not None:
            success.setdefault(family, {}).setdefault(f"{rate:g}", []).append(own)
    known: dict[str, Any] = known_rates()
    for family, tried in success.items():
        about = {"row": rows[family].name, "tasks": args.tasks, "seeds": args.seeds, "commit": commit()}
        known.setdefault(place.title, {})[family] = {"learning_rate": chosen(tried), "success": tried, **about}
    if success:
        write_json(RATES, known)
    for title, families in known.items():
        for family, about in families.items():
            each = ", ".join(f"{rate}: {100 * fmean(own):.1f} %" for rate, own in about["success"].items())
            print(f"{title}, {family} ({about['row']}): {about['learning_rate']:g} of {each}")


if __name__ == "__main__":
    main()
