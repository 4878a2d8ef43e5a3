"""How many tokens per CPU second does the transformers engine sample in a real search?

    python benchmarks/sampling.py [--trees 32] [--rollouts 3] [--json]
    python benchmarks/sampling.py --beside /other/checkout/.venv/bin/python      also by another version of agentq
    build/vllm/bin/python benchmarks/sampling.py --peers vllm   also by vLLM (make test-vllm), see sampling_peers.py
    build/vllm/bin/python benchmarks/sampling.py --peers --trees 2 --rollouts 1 --repeats 1     by all: 9 minutes

A search of `booking` with the embedded base, K = 5 and the critic is recorded: each tree's requests in their order.
Every engine then gets the same requests, all trees at once, and last the whole search again. Before any time counts,
greedy answers are compared token by token, and log-probabilities with the learner's forward pass.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import commit, machine

import agentq
from agentq import envs
from agentq.critics.ranker import LLMRanker
from agentq.learn.learner import Learner
from agentq.types import Sample, Split, Task


def first(*places: str) -> Any:
    """The first of these names that this version of agentq has."""
    for place in places:
        module, name = place.split(":")
        try:
            return getattr(import_module(f"agentq.{module}"), name)
        except (ImportError, AttributeError):
            continue
    raise ImportError(f"agentq must have one of {', '.join(places)}; got {agentq.__file__}")


ModelPolicy = first("policies.model_policy:ModelPolicy", "policies.model:ModelPolicy")
SampleRequest = first("policies.protocol:SampleRequest", "policies.protocol:Request")
Prompt = first("policies.protocol:Prompt")
TransformersEngine = first("policies.transformers_engine:TransformersEngine", "policies.engine:TransformersEngine")
run_all = first("searching.run:run_all", "search.run:run_all")
SearchSettings = first("searching.tree:SearchSettings", "search.tree:SearchSettings")
TreeSearch = first("searching.tree:TreeSearch", "search.tree:TreeSearch")

K, TEMPERATURE = 5, 0.8
PEERS = ("vllm", "continuous", "generate")  # of sampling_peers.py
BASE = Path(agentq.__file__).parent / "models" / "base"
Trace = list[list[Any]]  # the requests of each tree, in their order


class Recording:
    """`Engine` that notes what one tree asks."""

    def __init__(self, engine: Any) -> None:
        self.engine, self.requests = engine, list[Any]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    async def sample(self, request: Any) -> list[Any]:
        self.requests.append(request)
        return await self.engine.sample(request)


def search(engine: Any, tasks: Sequence[Task], rollouts: int) -> Trace:
    """Search all tasks at once; what each tree asked, by task."""
    settings, asked = SearchSettings(rollouts, K, temperature=TEMPERATURE), dict[int, list[Any]]()

    async def work(task: Task) -> None:
        own: Any = Recording(engine)
        asked[task.seed] = own.requests
        await TreeSearch(envs.make("booking"), task, ModelPolicy(own), settings, critic=LLMRanker(own)).run()

    run_all(tasks, work, in_flight=len(tasks), on_done=lambda _: None)
    return [asked[task.seed] for task in tasks]


def replay(engine: Any, trace: Trace) -> list[list[Any]]:
    """The answers to a recorded search: trees side by side, the requests of each one after another."""
    answers: list[list[list[Any]]] = [[] for _ in trace]

    async def work(tree: int) -> None:
        for request in trace[tree]:
            answers[tree].append(await engine.sample(request))

    run_all(range(len(trace)), work, in_flight=len(trace), on_done=lambda _: None)
    return [samples for tree in answers for samples in tree]


def written(trace: Trace) -> str:
    """A trace as JSON, which every version can read."""
    return json.dumps(
        [
            [[r.prompt.ids.tolist(), r.k, r.seed, r.temperature, r.max_new_tokens, r.role] for r in tree]
            for tree in trace
        ]
    )


def read(text: str) -> Trace:
    """The trace that `written` made."""
    return [
        [SampleRequest(Prompt([], np.array(ids, dtype=np.int32)), *other) for ids, *other in tree]
        for tree in json.loads(text)
    ]


def measure(trace: Trace, tasks: Sequence[Task], rollouts: int, repeats: int) -> dict[str, Any]:
    """This version's answers and its tokens per CPU second: best and median of `repeats`."""
    engine = TransformersEngine(BASE)
    greedy = [[replace(r, temperature=0.0) for r in tree[:4]] for tree in trace]
    checked = replay(engine, greedy)
    prompts = [r.prompt.ids for tree in greedy for r in tree]
    samples = [Sample(p, s.token_ids, s.logps) for p, some in zip(prompts, checked, strict=True) for s in some]
    again = Learner.from_checkpoint(BASE, learning_rate=1e-5).recompute_logps(samples)
    gap = max(float(np.abs(a.logps - b.logps).max()) for a, b in zip(samples, again, strict=True))
    figures: dict[str, Any] = {"worst_logp_gap": gap}
    for name, run in {
        "replay": lambda: replay(engine, trace),
        "search": lambda: search(engine, tasks, rollouts),
    }.items():
        rates = []
        for _ in range(repeats):
            engine.prefixes.clear()
            before, cpu = engine.usage.total.generated_tokens, time.process_time()
            run()
            rates.append((engine.usage.total.generated_tokens - before) / (time.process_time() - cpu))
        figures[f"{name}_tokens_per_cpu_s"] = {"best": max(rates), "median": float(np.median(rates))}
    figures["peak_rss_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return figures | {"greedy": [s.token_ids.tolist() for s in samples]}


def by_peer(name: str, trace: Trace, repeats: int) -> dict[str, Any]:
    """Another engine's greedy answers to the first requests of each tree, and its rate with all requests."""
    import sampling_peers

    run = sampling_peers.runner(name, BASE, replay)
    greedy = run([[replace(r, temperature=0.0, k=1) for r in tree[:4]] for tree in trace])
    return sampling_peers.rate(run, trace, repeats) | {"greedy": greedy}


def measured_by(python: str, given: Path, args: argparse.Namespace, *more: str) -> dict[str, Any]:
    """What `measure` or `by_peer` finds in a process of its own, of that interpreter."""
    words = [python, __file__, "--trace", given, "--trees", args.trees, "--rollouts", args.rollouts, *more]
    done = subprocess.run([*map(str, words), "--repeats", str(args.repeats)], stdout=subprocess.PIPE, check=True)
    found: dict[str, Any] = json.loads(
        next(line for line in done.stdout.splitlines() if line.startswith(b"{"))
    )  # vLLM writes there too
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trees", type=int, default=32)
    parser.add_argument("--rollouts", type=int, default=3, help="rollouts per tree")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--beside", metavar="PYTHON", help="interpreter of another checkout of agentq")
    parser.add_argument(
        "--peers",
        nargs="*",
        choices=PEERS,
        metavar="PEER",
        help=f"the same requests by {', '.join(PEERS)}; default: all",
    )
    parser.add_argument("--trace", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    tasks = envs.tasks("booking", Split.TRAIN, args.trees)
    if args.peer:
        print(json.dumps(by_peer(args.peer, read(args.trace.read_text()), args.repeats)))
        return
    if args.trace:
        print(json.dumps(measure(read(args.trace.read_text()), tasks, args.rollouts, args.repeats)))
        return
    with tempfile.TemporaryDirectory() as folder:
        given = Path(folder) / "trace"
        given.write_text(text := written(search(TransformersEngine(BASE), tasks, args.rollouts)))
        found = {"this": measured_by(sys.executable, given, args)}
        if args.beside:
            found["beside"] = measured_by(args.beside, given, args)
        chosen = () if args.peers is None else args.peers or PEERS
        peers = {name: measured_by(sys.executable, given, args, "--peer", name) for name in chosen}
    greedy = [found[name].pop("greedy") for name in found]
    if args.beside:
        found["equal_greedy_answers"] = {
            "equal": sum(a == b for a, b in zip(*greedy, strict=True)),
            "of": len(greedy[0]),
        }
        for part in ("replay", "search"):
            now, then = (found[name][f"{part}_tokens_per_cpu_s"]["best"] for name in ("this", "beside"))
            found[f"{part}_ratio"] = now / then
    columns = [r.k for tree in read(text) for r in tree[:4]]
    firsts = np.cumsum([0, *columns[:-1]])
    for row in peers.values():
        answers = row.pop("greedy")
        own = [greedy[0][at] for at in firsts]
        row["equal_greedy_answers"] = {"equal": sum(a == b for a, b in zip(answers, own, strict=True)), "of": len(own)}
        row["ratio"] = found["this"]["replay_tokens_per_cpu_s"]["best"] / row["tokens_per_cpu_s"]
    if peers:
        found["peers"] = peers
    about = {"machine": machine("torch", "transformers"), "commit": commit()}
    print(json.dumps(found | about, indent=None if args.json else 2))


if __name__ == "__main__":
    main()
