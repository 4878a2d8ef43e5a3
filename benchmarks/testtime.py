"""What is search at test time worth without the checker? The ways to choose an episode, at equal numbers of calls.

    python benchmarks/testtime.py [--env booking] [--base MODEL] [--calls 100] [--search.num_proposals 3]

For each seed an RFT model is trained from the base with the recipe's settings, at the rate that `rates.py` chose if it
did, and measured greedily; with --untrained the base itself is. Then `agentq eval --search` measures it by each way to
choose (`eval.chosen_by all`), each with so many sampled actions per task. Further words are settings of that command.
The same command resumes where an earlier one stopped. Writes the outcomes of all tasks to benchmarks/results, from
which `results.py` makes the table with intervals over seeds.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import get_args

import results
from machine import commit
from methods import INLINE, agentq, rate, summary
from outcomes import RESULTS, Outcomes, base_words, keep, of_runs, titled

from agentq.eval_settings import ChosenBy
from agentq.policies.engine_names import embedded_base

MOST_EPISODES = 1000  # the calls end first


def measure(
    out: Path, env: str, seed: int, calls: int, num_tasks: int, base: str, first: str, more: tuple[str, ...]
) -> dict[str, dict[str, float]]:
    """Success by task of each row, for one seed. `first` is the row that does not search, rft or base."""
    title = titled(env, base)
    greedy, searched = (out / f"{title}-{what}-seed{seed}" for what in (first, f"{first}-calls{calls}"))
    common = (f"--env={env}", f"--seed={seed}", f"--eval.num_tasks={num_tasks}", "--json", INLINE)
    if first == "base":
        words, model = ("eval", base), base
    else:
        how = ("--eval.measure_base=false", "--train.devices=", *rate(title, "rft"))
        words, model = ("train", "rft", f"--base={base}", *how), str(greedy / "checkpoints" / "rft")
    if not summary(greedy) and agentq(greedy, *words, *common, f"--out={greedy}"):
        raise SystemExit(f"{first} failed; see {greedy}.log")
    ways = (f"--eval.max_calls={calls}", f"--eval.num_iterations={MOST_EPISODES}", "--eval.chosen_by=all", *more)
    if not summary(searched) and agentq(searched, "eval", model, "--search", *common, *ways, f"--out={searched}"):
        raise SystemExit(f"search failed; see {searched}.log")
    rows = {way: of_runs([searched], f"{way}/eval") for way in get_args(ChosenBy)}
    return {first: of_runs([greedy]), **rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="booking")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--calls", type=int, default=100, help="actions sampled per task; default: %(default)s")
    parser.add_argument("--tasks", type=int, default=200, help="held-out tasks; default: %(default)s")
    parser.add_argument(
        "--base",
        metavar="MODEL",
        default=str(embedded_base()),
        help="where training starts; default: the embedded base",
    )
    parser.add_argument("--untrained", action="store_true", help="measure the base itself, without RFT")
    parser.add_argument("--judge", metavar="MODEL", help="the judge and critic; default: the base")
    parser.add_argument("--out", type=Path, default=Path("runs/testtime"))
    parser.add_argument("--results", type=Path, default=RESULTS, help="where outcomes go; default: %(default)s")
    args, settings = parser.parse_known_args()
    more = (*settings, "--base", args.judge or args.base)
    at, table = commit(), titled("testtime", args.base)  # before anything is written
    models = base_words(args.base)
    models += ["--judge", args.judge] if args.judge else []
    models += ["--untrained"] if args.untrained else []
    command = " ".join(
        ["python benchmarks/testtime.py --env", args.env, "--calls", str(args.calls), *models, *settings]
    )
    first = "base" if args.untrained else "rft"
    for seed in args.seeds:
        for row, tasks in measure(args.out, args.env, seed, args.calls, args.tasks, args.base, first, more).items():
            how = f"{args.calls} calls"
            keep(Outcomes(table, args.env, row, how, seed, command, at, tasks), args.results)
    found = [each for each in results.read(args.results) if each.table == table and each.env == args.env]
    print("\n\n".join(map(results.markdown, results.tables(found))))


if __name__ == "__main__":
    main()
