"""Selection rules at one budget of rollouts, and several leaves of a tree at once, with the embedded base.

    python benchmarks/selection.py rules [--tasks 40] [--seeds 0 1 2] [--envs booking shop] [--no-critic] [--report]
    python benchmarks/selection.py leaves [--tasks 5] [--envs booking chromium/booking] [--json]

rules: each rule searches the same validation tasks, whole trees. A row is a run directory, and the same command resumes
where an earlier one stopped. --report runs nothing. leaves: wall time to the first success of one task with 1, 2, 4 and
8 leaves in flight, with a policy that is mostly right and takes 50 ms per call.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
from machine import commit, machine

from agentq import envs
from agentq.config import Selection
from agentq.critics.ranker import LLMRanker
from agentq.evaluation.stats import paired_difference, wilson
from agentq.policies.engine_names import embedded_base, make_engine
from agentq.policies.model_policy import ModelPolicy
from agentq.policies.scripted import ScriptedPolicy
from agentq.searching.collect import attempts, collect, inline
from agentq.searching.collect import trees as searches
from agentq.searching.selection import SearchSettings
from agentq.searching.tree import TreeSearch
from agentq.store.records import TreeRecord
from agentq.store.run import RunStore
from agentq.types import History, Proposal, Split

RULES: tuple[Selection, ...] = get_args(Selection)
ITERATIONS, PROPOSALS, TEMPERATURE = 8, 5, 0.8  # those of a training search
LEAVES = (1, 2, 4, 8)
CALL_S = 0.05  # of the policy in `leaves`: a small model on a GPU


def search(env: str, rule: Selection, seed: int, tasks: int, out: Path, policy: Any, critic: Any) -> None:
    """Search the tasks that a row's directory lacks."""
    settings = SearchSettings(ITERATIONS, PROPOSALS, TEMPERATURE, seed=seed, selection=rule)
    identity = {"env": env, "rule": rule, "seed": seed, "budget": [ITERATIONS, PROPOSALS, TEMPERATURE]}
    identity |= {"critic": critic is not None}
    with RunStore.open(out / f"{env}-{rule}-{seed}", identity) as store:
        found = attempts(envs.tasks(env, Split.VALIDATION, tasks))
        work = searches(lambda: envs.make(env), policy, critic, settings)
        collect(store, "search", found, inline(work), in_flight=32, on_item=lambda *_: None)


def row(env: str, rule: Selection, seeds: Sequence[int], tasks: int, out: Path) -> list[TreeRecord]:
    """The trees of a rule, seed after seed, in the order of the tasks; fewer if some are missing."""
    trees: list[TreeRecord] = []
    wanted = [task.seed for task in envs.tasks(env, Split.VALIDATION, tasks)]
    for seed in seeds:
        path = out / f"{env}-{rule}-{seed}"
        if path.exists():
            with RunStore.read(path) as store:
                known = {tree.task.seed: tree for tree in store.trees("search")}
            trees += [known[at] for at in wanted if at in known]
    return trees


def figures(trees: Sequence[TreeRecord], base: Sequence[TreeRecord], seed: int = 0) -> dict[str, Any]:
    """Compare a rule with the default on the same tasks: successes per rollout, bootstrap interval over tasks."""
    won = [bool(tree.info["succeeded"]) for tree in trees]
    low, high = wilson(sum(won), len(won))
    wins = np.array([float(tree.success.sum()) for tree in trees])
    rollouts = np.array([tree.info["iterations"] for tree in trees], dtype=float)
    drawn = np.random.default_rng(seed).integers(len(trees), size=(2000, len(trees)))
    ratio = wins[drawn].sum(1) / rollouts[drawn].sum(1)
    found: dict[str, Any] = {
        "n": len(trees),
        "solved": sum(won) / len(won),
        "interval": [low, high],
        "rollouts": int(rollouts.sum()),
        "successes_per_rollout": float(wins.sum() / rollouts.sum()),
        "successes_per_rollout_interval": np.quantile(ratio, [0.025, 0.975]).tolist(),
        "env_steps_per_rollout": float(sum(tree.info["env_steps"] for tree in trees) / rollouts.sum()),
    }
    if len(base) == len(trees):
        against = paired_difference(won, [bool(tree.info["succeeded"]) for tree in base])
        found["against_ucb1"] = [against.diff, against.low, against.high, against.p_value]
    return found


def rules(args: argparse.Namespace) -> dict[str, Any]:
    """Search with every rule on every environment and seed, then report the existing results."""
    if not args.report:
        engine = make_engine(embedded_base())
        policy, critic = ModelPolicy(engine), None if args.no_critic else LLMRanker(engine)
        for seed in args.seeds:
            for env in args.envs or ("booking", "shop"):
                for rule in RULES:
                    begun = time.monotonic()
                    search(env, rule, seed, args.tasks, args.out, policy, critic)
                    print(f"{env} {rule} seed {seed}: {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
    found: dict[str, Any] = {}
    print("| site | rule | n | solved (95 %) | successes per rollout (95 %) | solved - ucb1 (95 %), p |")
    print("| --- | --- | --- | --- | --- | --- |")
    for env in args.envs or ("booking", "shop"):
        base = row(env, "ucb1", args.seeds, args.tasks, args.out)
        for rule in RULES:
            if trees := row(env, rule, args.seeds, args.tasks, args.out):
                found[f"{env}/{rule}"] = figures(trees, base)
                print(_line(env, rule, found[f"{env}/{rule}"]))
    return found


def _line(env: str, rule: str, f: dict[str, Any]) -> str:
    each, (low, high), (least, most) = f["successes_per_rollout"], f["interval"], f["successes_per_rollout_interval"]
    diff = f.get("against_ucb1")
    compared = "" if diff is None or rule == "ucb1" else "{:+.1%} ({:+.1%} to {:+.1%}), {:.2f}".format(*diff)
    solved = f"{f['solved']:.1%} ({low:.1%} to {high:.1%})"
    return f"| {env} | {rule} | {f['n']} | {solved} | {each:.3f} ({least:.3f} to {most:.3f}) | {compared} |"


class Slow(ScriptedPolicy):
    """Mostly the expert's next action; every call takes CALL_S."""

    async def propose(self, history: History, k: int, *, seed: int, temperature: float = 1.0) -> list[Proposal]:
        """See `Policy.propose`."""
        await asyncio.sleep(CALL_S)
        return await super().propose(history, k, seed=seed, temperature=temperature)


def leaves(args: argparse.Namespace) -> dict[str, Any]:
    """Wall seconds to the first success, task by task, by environment and number of leaves."""
    found: dict[str, Any] = {}
    for env in args.envs or ("booking", "chromium/booking"):
        tasks = envs.tasks(env, Split.VALIDATION, args.tasks)
        policy = Slow(mostly_right(env, tasks))
        for n in LEAVES:
            settings = SearchSettings(64, 4, stop_on_success=True, leaves_in_flight=n, seed=1)
            trees = []
            for task in tasks:
                session = envs.make(env)
                trees.append(asyncio.run(TreeSearch(session, task, policy, settings).run()))
                session.close()
            found[f"{env}/{n}"] = {
                "seconds": [round(tree.info["seconds"], 2) for tree in trees],
                "rollouts": [tree.info["iterations"] for tree in trees],
                "succeeded": [tree.info["succeeded"] for tree in trees],
            }
            seconds = [tree.info["seconds"] for tree in trees]
            print(
                f"{env} {n} leaves: {np.mean(seconds):.2f} s to a success ({min(seconds):.2f} to {max(seconds):.2f}), "
                f"{np.mean([tree.info['iterations'] for tree in trees]):.1f} rollouts, "
                f"{sum(tree.info['succeeded'] for tree in trees)} of {len(trees)} succeeded",
                flush=True,
            )
    return found


def mostly_right(env: str, tasks: Sequence[Any]) -> Any:
    """A policy's function: the expert's next action 9 times in 10."""
    site = env.removeprefix("chromium/")
    scripts = {task.instruction: expert_texts(site, task.seed) for task in tasks}

    def act(history: History, rng: np.random.Generator) -> tuple[str, float]:
        script, turn = scripts[history.instruction], len(history.actions)
        right = rng.random() < 0.9 and turn < len(script)
        return (script[turn] if right else f"COMMANDS: {rng.choice(['STOP', 'SCROLL DOWN', 'GOTO /'])}"), -0.5

    return act


def expert_texts(site: str, seed: int) -> list[str]:
    """The expert's commands for a task, in order."""
    task, session, expert, texts = envs.task_from_seed(site, seed), envs.make(site), envs.expert(site), list[str]()
    session.reset(task)
    while True:
        action = expert(task, session).env_action
        texts.append(f"COMMANDS: {action}")
        if session.step(action).terminated:
            return texts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("rules", "leaves"))
    parser.add_argument("--tasks", type=int, default=0, help="validation tasks per seed; default: 40, for leaves 5")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--envs", nargs="+")
    parser.add_argument("--out", type=Path, default=Path("runs/selection"))
    parser.add_argument("--no-critic", action="store_true", help="best_first is breadth-first then")
    parser.add_argument("--report", action="store_true", help="run nothing, show the existing results")
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    args = parser.parse_args()
    args.tasks = args.tasks or {"rules": 40, "leaves": 5}[args.what]
    found = rules(args) if args.what == "rules" else leaves(args)
    if args.json:
        print(json.dumps({"figures": found, "machine": machine("torch", "playwright"), "commit": commit()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
