"""What several rounds of a method bring: held-out success after each round, over several seeds.

    python benchmarks/rounds.py [--env booking] [--recipe agent_q] [--rounds 4] [--seeds 0 1 2] [--train.epochs 2 ...]

Each seed is one run of `agentq train`. It grows by a round and is measured after it on the same tasks: greedily,
and with `--attempts` sampled episodes per task. The same command resumes where an earlier one stopped. Outcomes go to
benchmarks/results, for `benchmarks/results.py`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from machine import commit
from methods import ATTEMPTS, MEASURED, agentq, measure, runs_of, summary
from outcomes import RESULTS, Outcomes, base_words, keep, of_runs, titled

from agentq.policies.engine_names import embedded_base
from agentq.store.run import TRAJECTORY, RunStore


def grow(path: Path, recipe: str, seed: int, args: argparse.Namespace, settings: list[str]) -> None:
    """Add a round after the other, each with its measurements. Raises SystemExit if a command fails."""
    env, also = f"--env={args.env}", [word for word in settings if word.startswith(("--eval.", "--model."))]
    measured = measured_rounds(path, recipe)
    for number in range(measured, args.rounds + 1):
        words = (env, f"--base={args.base}", f"--run.num_rounds={number}", f"--seed={seed}", "--json", *settings)
        if number > measured and (code := agentq(path, "train", recipe, *words, f"--out={path}")):
            raise SystemExit(code)
        model = path / "checkpoints" / recipe if number else args.base
        sampled = sampled_after(path, number, args.attempts)
        if code := measure(sampled, model, seed, env, *MEASURED["sampled"], *also):
            raise SystemExit(code)


def sampled_after(path: Path, number: int, attempts: int) -> list[Path]:
    """The runs that measure the model after a round. The next round removes the model."""
    return runs_of(path.with_name(f"{path.name}-after{number}-sampled"), attempts)


def measured_rounds(path: Path, recipe: str) -> int:
    """Number of rounds after which the run has been measured, each time on as many tasks."""
    if not (path / "summary.json").exists():
        return 0
    stage = f"{recipe}/eval"
    with RunStore.read(path) as store:
        sizes = [store.count(s, TRAJECTORY) for s in store.stages() if s == stage or s.startswith(f"{stage}/")]
    return sizes.count(max(sizes))


def stage_after(recipe: str, number: int, rounds: int) -> str:
    """The stage that holds the measurement after a round, of a run with so many; 0: of the base."""
    if number == 0:
        return "base/eval"
    return f"{recipe}/eval" if number == rounds else f"{recipe}/eval/round{number}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="booking")
    parser.add_argument("--recipe", default="agent_q")
    parser.add_argument("--rounds", type=int, default=4, help="default: %(default)s")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument(
        "--base", default=str(embedded_base()), help="where each seed starts; default: the embedded one"
    )
    parser.add_argument(
        "--attempts", type=int, default=ATTEMPTS, help="sampled episodes per task; default: %(default)s"
    )
    parser.add_argument("--out", type=Path, default=Path("runs/rounds"))
    parser.add_argument("--results", type=Path, default=RESULTS, help="where outcomes go; default: %(default)s")
    args, settings = parser.parse_known_args()
    command = " ".join(
        ["python benchmarks/rounds.py --env", args.env, "--recipe", args.recipe, *base_words(args.base), *settings]
    )
    for seed in args.seeds:
        path = args.out / f"{args.env.replace('/', '-')}-{args.recipe}-seed{seed}"
        grow(path, args.recipe, seed, args, settings)
        rounds = measured_rounds(path, args.recipe)
        for number in range(args.rounds + 1):
            row, table = f"{args.recipe} after {number}" if number else "base", titled("rounds", args.base)
            found = {"greedy": of_runs([path], stage_after(args.recipe, number, rounds))}
            sampled = sampled_after(path, number, args.attempts)
            if sampled and all(map(summary, sampled)):
                found["sampled"] = of_runs(sampled)
            for how, tasks in found.items():
                keep(Outcomes(table, args.env, row, how, seed, command, commit(), tasks), args.results)
                print(f"seed {seed}, {row}, {how}: {sum(tasks.values()) / len(tasks):.1%} of {len(tasks)}", flush=True)


if __name__ == "__main__":
    main()
