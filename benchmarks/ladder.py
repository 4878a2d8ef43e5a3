"""The paper's ladder over several seeds: success of each rung, intervals over seeds, costs, critic.

    python benchmarks/ladder.py --env booking --seeds 0 1 2 [--json] [--search.num_iterations 10 ...]

Each seed has its own run directory, made by `agentq ladder`. Rungs that do not search are measured greedily, sampled at
temperature 1 with `--attempts` episodes per task, and once at temperature 0.5. The same command resumes where an
earlier one stopped.
With --json it prints one JSON object last. Writes ENV.json next to the runs, and the outcomes of all tasks to
benchmarks/results, from which `benchmarks/results.py` makes the table with intervals over seeds.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

from machine import commit, machine
from methods import INLINE, agentq, summary
from outcomes import RESULTS, Outcomes, base_words, difference, interval, keep, of_runs, titled

from agentq.evaluation.critic import CriticAccuracy, concordance
from agentq.evaluation.stats import RungResult
from agentq.policies.engine_names import embedded_base
from agentq.store.run import RunStore

# Success in percent, Agent Q, arXiv:2408.07199; its WebShop has no rung without critic and searches with the base only.
PAPER: dict[str, dict[str, float]] = {
    "booking": {  # OpenTable, LLaMA-3-70B
        "base": 18.6,
        "rft": 67.2,
        "outcome_dpo": 71.8,
        "agent_q_no_critic": 75.2,
        "agent_q": 81.7,
        "rft_mcts": 84.3,
        "agent_q_mcts": 95.4,
    },
    "shop": {  # WebShop, xLAM-v0.1-r; outcome DPO as in its section 4
        "base": 28.6,
        "rft": 31.3,
        "outcome_dpo": 40.6,
        "agent_q": 41.5,
        "agent_q_mcts": 50.5,
    },
}
COMPARISONS = [
    ("base", "rft"),
    ("rft", "outcome_dpo"),
    ("rft", "agent_q"),
    ("outcome_dpo", "agent_q"),
    ("agent_q_no_critic", "agent_q"),
    ("base", "agent_q"),
    ("rft", "rft_mcts"),
    ("agent_q", "agent_q_mcts"),
    ("rft_mcts", "agent_q_mcts"),
]


def climb(env: str, seed: int, out: Path, settings: list[str]) -> Path:
    """Run or resume one seed in its own process; return its directory."""
    path = out / f"{env.replace('/', '-')}-seed{seed}"
    words = [f"--run.env={env}", f"--run.seed={seed}", f"--run.out={path}", *settings]
    code = subprocess.run(
        [sys.executable, "-m", "agentq", "ladder", "--json", *words], stdout=subprocess.DEVNULL
    ).returncode
    if code:
        raise SystemExit(code)
    return path


def sample(path: Path, env: str, seed: int, base: str, attempts: int) -> dict[str, dict[str, list[Path]]]:
    """Measure each rung that does not search with sampled episodes, too: by way of measuring, then rung, its runs."""
    num_tasks = json.loads((path / "config.json").read_text())["eval"]["num_tasks"]
    rungs = [row["name"] for row in json.loads((path / "summary.json").read_text())]
    found: dict[str, dict[str, list[Path]]] = {}
    for measured, (temperature, times) in {
        "sampled": (1, attempts),
        "temperature 0.5": (0.5, min(attempts, 1)),
    }.items():
        for rung in (name for name in rungs if not name.endswith("_mcts")):
            model = base if rung == "base" else str(path / "checkpoints" / rung)
            runs = [path / measured.replace(" ", "_") / f"{rung}-{n + 1}" for n in range(times)]
            for attempt, out in enumerate(runs):
                told = ("--json", INLINE, f"--env={env}", f"--out={out}", f"--seed={seed + 1000 * attempt}")
                how = (f"--eval.num_tasks={num_tasks}", f"--eval.temperature={temperature}")
                if not summary(out) and (code := agentq(out, "eval", model, *told, *how)):
                    raise SystemExit(code)
            found.setdefault(measured, {})[rung] = runs
    return found


def outcomes(store: RunStore, rung: str) -> dict[int, bool]:
    """Held-out success by task seed, without the tasks that the world broke."""
    stage = f"{rung}/eval"
    found = {t.task.seed: t.success for t in store.trajectories(stage) if not t.broken}
    found.update({tree.task.seed: bool(tree.info["succeeded"]) for tree in store.trees(stage) if tree.fault is None})
    return found


def keep_outcomes(
    env: str,
    seeds: list[int],
    paths: list[Path],
    sampled: list[dict[str, dict[str, list[Path]]]],
    settings: list[str],
    base: str,
    folder: Path,
) -> None:
    """Write the outcomes of all finished rungs to `folder`."""
    words = [*map(str, seeds), *base_words(base), *settings]
    command = " ".join(["python benchmarks/ladder.py --env", env, "--seeds", *words])
    table = titled("ladder", base)
    for seed, path, runs in zip(seeds, paths, sampled, strict=True):
        for row in map(RungResult.from_dict, json.loads((path / "summary.json").read_text())):
            how = "oracle" if row.name.endswith("_mcts") else "greedy"
            tasks = of_runs([path], f"{row.name}/eval")
            keep(Outcomes(table, env, row.name, how, seed, command, commit(), tasks, row.env_steps), folder)
            for measured, of_rung in runs.items():
                if several := of_runs(of_rung.get(row.name, ())):
                    about = (seed, command, commit(), several, row.env_steps)
                    keep(Outcomes(table, env, row.name, measured, *about), folder)


def critic_of(stores: list[RunStore]) -> CriticAccuracy | None:
    """Concordance of the critic with the results of `agent_q`'s training searches, over all seeds."""
    trees = [
        tree for s in stores for stage in s.stages() if stage.startswith("agent_q/round") for tree in s.trees(stage)
    ]
    return concordance(trees)


def report(env: str, paths: list[Path]) -> dict[str, Any]:
    """Everything that the table shows, from the runs alone."""
    paper = PAPER.get(env, {})
    rows: dict[str, list[RungResult]] = {}
    for path in paths:
        for row in json.loads((path / "summary.json").read_text()):
            rows.setdefault(row["name"], []).append(RungResult.from_dict(row))
    stores = [RunStore.read(path) for path in paths]
    figures: dict[str, Any] = {}
    for name, results in rows.items():
        low, high = interval(results)
        figures[name] = {
            "rates": [r.rate for r in results],
            "mean": fmean(r.rate for r in results),
            "n": sum(r.n for r in results),
            "low": low,
            "high": high,
            "env_steps": sum(r.env_steps for r in results),
            "tokens": sum(r.prompt_tokens + r.generated_tokens for r in results),
            "seconds": sum(r.seconds for r in results),
            "paper": paper[name] / 100 if name in paper else None,
        }
    paired = {}
    for a, b in COMPARISONS:
        if a in rows and b in rows:
            both = [(outcomes(store, b), outcomes(store, a)) for store in stores]
            paired[f"{b} - {a}"] = asdict(difference(both))
    critic = critic_of(stores)
    return {
        "figures": figures,
        "paired": paired,
        "critic_concordance": critic
        and {"accuracy": critic.accuracy, "n": critic.n, "low": critic.low, "high": critic.high},
        "targets": targets(env, figures),
        "machine": machine("torch"),
        "commit": commit(),
    }


def targets(env: str, figures: dict[str, Any]) -> dict[str, Any]:
    """What the ladder must show: a weak base, Agent Q with search at 95.4 %, gains that are not chance."""
    out: dict[str, Any] = {}
    if "base" in figures:
        base = figures["base"]
        out["base between 10 and 35 %"] = {
            "value": base["mean"],
            "target": [0.10, 0.35],
            "met": 0.10 <= base["mean"] <= 0.35,
        }
        for name, row in figures.items():
            if name != "base":
                out[f"{name} above base, disjoint intervals"] = {
                    "value": row["low"],
                    "target": base["high"],
                    "met": row["low"] > base["high"],
                }
    if env == "booking" and "agent_q_mcts" in figures:
        value = figures["agent_q_mcts"]["mean"]
        out["agent_q_mcts at 95.4 %"] = {"value": value, "target": 0.954, "met": value >= 0.954}
    order = [name for name in PAPER.get(env, {}) if name in figures]
    means = [figures[name]["mean"] for name in order]
    out["order of the paper's rungs"] = {"value": means, "target": order, "met": means == sorted(means)}
    return out


_INTERVALS = (("low", "high"), ("low_tasks", "high_tasks"))


def table(result: dict[str, Any]) -> str:
    """Markdown, for docs/experiments.md."""
    lines = [
        "| rung | success | 95 % interval | n | seeds | paper | env steps | tokens (M) | wall s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, row in result["figures"].items():
        seeds = ", ".join(f"{100 * rate:.1f}" for rate in row["rates"])
        interval = f"{100 * row['low']:.1f} - {100 * row['high']:.1f}"
        paper = "-" if row["paper"] is None else f"{100 * row['paper']:.1f}"
        lines.append(
            f"| {name} | {100 * row['mean']:.1f} % | {interval} | {row['n']} | {seeds} "
            f"| {paper} | {row['env_steps']:,} | {row['tokens'] / 1e6:.1f} | {row['seconds']:.0f} |"
        )
    for name, p in result["paired"].items():
        seeds, tasks = (f"{100 * p[low]:+.1f} to {100 * p[high]:+.1f}" for low, high in _INTERVALS)
        told = f"{seeds} over seeds, " if len(p["by_seed"]) > 1 else ""
        lines.append(f"\n{name}: {100 * p['mean']:+.1f} points ({told}{tasks} over tasks)")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="booking")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=Path("runs/ladder"))
    parser.add_argument(
        "--base", default=str(embedded_base()), help="where each seed starts; default: the embedded one"
    )
    parser.add_argument("--attempts", type=int, default=4, help="sampled episodes per task; default: %(default)s")
    parser.add_argument("--workers", type=int, default=1, help="seeds run at once, one process each")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where outcomes go; default: %(default)s")
    parser.add_argument("--json", action="store_true")
    args, settings = parser.parse_known_args()
    with ThreadPoolExecutor(args.workers) as pool:
        words = [*settings, f"--base={args.base}"]
        paths = list(pool.map(lambda seed: climb(args.env, seed, args.out, words), args.seeds))
        made = zip(paths, args.seeds, strict=True)
        sampled = list(pool.map(lambda each: sample(each[0], args.env, each[1], args.base, args.attempts), made))
    result = report(args.env, paths)
    (args.out / f"{args.env.replace('/', '-')}.json").write_text(json.dumps(result, indent=1) + "\n")
    keep_outcomes(args.env, args.seeds, paths, sampled, settings, args.base, args.results)
    print(json.dumps(result) if args.json else table(result))


if __name__ == "__main__":
    main()
