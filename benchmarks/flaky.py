"""What faults of the world do to training: `booking` of which one step in twenty fails, told as what it is or not.

    python benchmarks/flaky.py [--base MODEL] [--seeds 0 1 2] [--jobs 2] [--recipe agent_q] [--run.num_tasks 60 ...]

Each row trains on the same tasks of `flaky_env.py`, and its model is measured on `booking` itself, greedily and with
`--attempts` sampled episodes per task:

- clean: no step fails.
- faults: a failed step raises, as a browser or a server that is lost does. Nothing is learnt from it.
- failures: a failed step ends the episode without success, which is what a program that hides the fault teaches.

The same command resumes where an earlier one stopped. Outcomes go to benchmarks/results, for `benchmarks/results.py`.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

from machine import commit
from methods import ATTEMPTS, INLINE, MEASURED, agentq, measure, runs_of, summary, training
from outcomes import RESULTS, Outcomes, base_words, keep, of_runs, titled
from results import markdown, tables

from agentq.policies.engine_names import embedded_base

ROWS = ("clean", "faults", "failures")
FILE = Path(__file__).with_name("flaky_env.py")


def make(path: Path, row: str, seed: int, args: argparse.Namespace, settings: list[str]) -> int:
    """Train a row and measure it on the site itself; return the exit code of what failed, or 0."""
    if not summary(path):
        told = (f"--env={FILE}:{row}", f"--base={args.base}", f"--out={path}", "--eval.measure_base=false", *settings)
        if code := agentq(path, "train", args.recipe, INLINE, "--json", f"--seed={seed}", "--eval.num_tasks=1", *told):
            return code
    model, words = path / "checkpoints" / args.recipe, ("--env=booking", f"--eval.num_tasks={args.held_out}")
    for how, runs in measured(path, args.attempts).items():
        if code := measure(runs, model, seed, *words, *MEASURED[how]):
            return code
    return 0


def measured(path: Path, attempts: int) -> dict[str, list[Path]]:
    """The runs that measure a row's model, by how they do."""
    found = {"greedy": 1, "sampled": attempts} if attempts else {"greedy": 1}
    names = {"greedy": "eval", "sampled": "sampled"}
    return {how: runs_of(path.with_name(f"{path.name}-{names[how]}"), number) for how, number in found.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", type=Path, metavar="MODEL", default=embedded_base(), help="where training starts")
    parser.add_argument("--recipe", default="agent_q")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--jobs", type=int, default=2, help="runs at once, one process with one thread each")
    parser.add_argument(
        "--attempts", type=int, default=ATTEMPTS, help="sampled episodes per task; default: %(default)s"
    )
    parser.add_argument("--held-out", type=int, default=200, help="tasks; default: %(default)s")
    parser.add_argument("--out", type=Path, default=Path("runs/flaky"))
    parser.add_argument("--results", type=Path, default=RESULTS, help="where outcomes go; default: %(default)s")
    args, settings = parser.parse_known_args()
    table = titled(f"flaky-{args.recipe}", args.base)
    paths = {(row, seed): args.out / table / f"{row}-seed{seed}" for seed, row in product(args.seeds, ROWS)}
    with ThreadPoolExecutor(args.jobs) as pool:
        codes = list(pool.map(lambda job: make(paths[job], *job, args, settings), paths))
    words = ["python benchmarks/flaky.py --seeds", *map(str, args.seeds), *base_words(args.base), *settings]
    found = []
    for (row, seed), code in zip(paths, codes, strict=True):
        path = paths[row, seed]
        if code:
            print(f"failed, see its log: {path}", file=sys.stderr)
            continue
        steps = training(path, args.recipe)["env_steps"]
        for how, runs in measured(path, args.attempts).items():
            tasks = of_runs(runs)
            found.append(Outcomes(table, "booking", row, how, seed, " ".join(words), commit(), tasks, steps))
            keep(found[-1], args.results)
    print("\n\n".join(map(markdown, tables(found))))
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
