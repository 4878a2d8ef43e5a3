"""Which critic method orders a model's own proposals best, compared with chance, and what does each cost per node?

    python benchmarks/critic.py --env booking shop --tasks 40 [--base ENGINE] [--teach TOKENS] [--json]

Nodes are the states of the expert's path on validation tasks. At each the policy proposes K actions, and the expert's
action is added if it is missing. Nodes with no other proposal are left out. The true value of a proposal is the number
of steps in which the expert finishes after it. Costs are those of the critic alone, with the policy's prompt in the
prefix cache, as in a search.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Coroutine, Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, TypeVar, get_args

from critic_forms import teach
from machine import commit, machine

from agentq import envs
from agentq.agent.actions import action_key, format_action
from agentq.agent.prompts import policy_messages
from agentq.critics.ranker import LLMRanker
from agentq.evaluation.critic import CriticAccuracy, choice_accuracy
from agentq.evaluation.stats import wilson
from agentq.model_settings import CriticMethod
from agentq.policies.engine_names import embedded_base, make_engine
from agentq.policies.model_policy import ModelPolicy
from agentq.policies.protocol import Engine, SampleRequest
from agentq.types import EnvAction, History, Split, Task

Answer = TypeVar("Answer")
AT_ONCE = 16  # nodes whose questions are asked together; their prompts fit into the prefix cache


@dataclass
class Node:
    """`steps`: the true value of each proposal, infinite without success. `first`: whether the first sample is best."""

    history: History
    proposals: list[EnvAction | None]
    best: int
    steps: list[float]
    first: bool


def found_nodes(env_name: str, n: int, k: int, engine: Engine) -> list[Node]:
    """The nodes with at least two proposals on the expert's paths of `n` tasks."""
    policy, env, found = ModelPolicy(engine), envs.make(env_name), list[Node]()
    states = expert_states(env_name, n)
    proposed = together(policy.propose(state[0], k, seed=seed) for seed, state in enumerate(states))
    for (history, wanted, task, snapshot), proposals in zip(states, proposed, strict=True):
        actions = {action_key(p.action.env_action): p.action.env_action for p in proposals}
        actions.setdefault(action_key(wanted), wanted)
        if len(actions) > 1:
            best = list(actions).index(action_key(wanted))
            steps = [steps_after(env, env_name, task, snapshot, action) for action in actions.values()]
            first = action_key(proposals[0].action.env_action) == action_key(wanted)
            found.append(Node(history, list(actions.values()), best, steps, first))
    return found


def expert_states(env_name: str, n: int) -> list[tuple[History, EnvAction, Task, Any]]:
    """(history, the expert's action, task, snapshot) at each step of the expert's episodes on `n` validation tasks."""
    env, expert, found = envs.make(env_name), envs.expert(env_name), []
    for task in envs.tasks(env_name, Split.VALIDATION, n):
        history = History(task.instruction, env.reset(task))
        while True:
            advice = expert(task, env)
            found.append((history, advice.env_action, task, env.snapshot()))
            result = env.step(advice.env_action)
            if result.terminated or result.truncated:
                break
            plan = "" if history.actions else expert.plan
            text = format_action(advice.env_action, plan=plan, thought=advice.thought, explanation=advice.explanation)
            history = history.then(text, result.observation)
    return found


def steps_after(env: Any, env_name: str, task: Task, snapshot: Any, action: EnvAction | None) -> float:
    """Steps from `action` at a snapshot to success, if the expert goes on after it; infinite if the episode fails."""
    env.restore(snapshot)
    expert, result, count = envs.expert(env_name), env.step(action), 1
    while not (result.terminated or result.truncated):
        result, count = env.step(expert(task, env).env_action), count + 1
    return count if result.success else inf


def together(questions: Iterable[Coroutine[Any, Any, Answer]]) -> list[Answer]:
    """All answers; the questions are asked at once."""

    async def main() -> list[Answer]:
        return await asyncio.gather(*questions)

    return asyncio.run(main())


def pair_accuracy(values: Sequence[Sequence[float]], steps: Sequence[Sequence[float]]) -> CriticAccuracy:
    """How often the critic orders two proposals of a node as their true values, over pairs whose true values differ."""
    n = sum(len(ordered(s)) for s in steps)
    return CriticAccuracy.of(n - sum(len(wrong(v, s)) for v, s in zip(values, steps, strict=True)), n, 0.5)


def ordered(steps: Sequence[float]) -> list[tuple[int, int]]:
    """The pairs of a node's proposals whose true values differ, the better one first."""
    pairs = [(i, j) for i in range(len(steps)) for j in range(i) if steps[i] != steps[j]]
    return [(i, j) if steps[i] < steps[j] else (j, i) for i, j in pairs]


def wrong(values: Sequence[float], steps: Sequence[float]) -> list[tuple[int, int]]:
    """Those whose better one the critic does not rank higher."""
    return [(better, worse) for better, worse in ordered(steps) if not values[better] > values[worse]]


def measure(engine: Engine, nodes: Sequence[Node], method: CriticMethod) -> dict[str, Any]:
    """Accuracy and cost of one method. The prefix cache holds the prompts of the policy alone."""
    ranker, values, cpu_s, wall_s = LLMRanker(engine, method=method), list[list[float]](), 0.0, 0.0
    before = copy(engine.usage.of("critic"))
    for start in range(0, len(nodes), AT_ONCE):
        some = nodes[start : start + AT_ONCE]
        if hasattr(engine, "prefixes"):
            engine.prefixes.clear()
        prompts = [engine.render(node.history, policy_messages, max_new_tokens=1) for node in some]
        together(engine.sample(SampleRequest(prompt, max_new_tokens=1)) for prompt in prompts)
        cpu_s, wall_s = cpu_s - time.process_time(), wall_s - time.perf_counter()
        values += together(ranker.rank(node.history, node.proposals, seed=start + i) for i, node in enumerate(some))
        cpu_s, wall_s = cpu_s + time.process_time(), wall_s + time.perf_counter()
    used, count = engine.usage.of("critic") - before, len(nodes)
    choice = choice_accuracy(values, [node.best for node in nodes])
    pairs = pair_accuracy(values, [node.steps for node in nodes])
    return {
        "choice": choice.accuracy,
        "choice_interval": [choice.low, choice.high],
        "pairs": pairs.accuracy,
        "pairs_interval": [pairs.low, pairs.high],
        "num_pairs": pairs.n,
        "requests_per_node": used.requests / count,
        "prompt_tokens_per_node": used.prompt_tokens / count,
        "new_prompt_tokens_per_node": (used.prompt_tokens - used.cached_tokens) / count,
        "generated_tokens_per_node": used.generated_tokens / count,
        "cpu_ms_per_node": 1000 * cpu_s / count,
        "wall_ms_per_node": 1000 * wall_s / count,
        "unknown_answers": ranker.stats.unknown / max(1, ranker.stats.calls),
        "fallbacks_per_node": ranker.stats.fallbacks / count,
    }


def compare(args: argparse.Namespace) -> dict[str, Any]:
    """The figures of every environment and method, for the base and, with `--teach`, for one that knows all forms."""
    base = make_engine(args.base)
    nodes = {env: found_nodes(env, args.tasks, args.proposals, base) for env in args.env}
    figures: dict[str, Any] = {}
    for env, some in nodes.items():
        first = sum(node.first for node in some)
        figures[env] = {
            "nodes": len(some),
            "proposals_per_node": sum(len(node.proposals) for node in some) / len(some),
            "chance": sum(1 / len(node.proposals) for node in some) / len(some),
            "first_sample": first / len(some),
            "first_sample_interval": list(wilson(first, len(some))),
        }
    engines = {"": base}
    if args.teach:
        with tempfile.TemporaryDirectory() as folder:
            engines[", taught"] = make_engine(teach(Path(args.base), Path(folder), args.teach))
    for label, engine in engines.items():
        for env in args.env:
            for method in args.methods:
                figures[f"{env}, {method}{label}"] = measure(engine, nodes[env], method)
    targets = {}
    for env in args.env:
        if (told := figures.get(f"{env}, pick_best")) is not None:
            low, chance = told["choice_interval"][0], figures[env]["chance"]
            targets[f"{env}: better than chance"] = {"value": low, "target": chance, "met": low > chance}
    return {"figures": figures, "targets": targets, "machine": machine("torch"), "commit": commit()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", nargs="+", default=["booking", "shop"])
    parser.add_argument("--tasks", type=int, default=40)
    parser.add_argument("--proposals", type=int, default=5)
    parser.add_argument("--methods", nargs="+", default=get_args(CriticMethod))
    parser.add_argument("--base", default=str(embedded_base()), help="the engine that proposes and ranks")
    parser.add_argument("--teach", type=int, default=0, help="tokens on which a copy of the base learns all forms")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    result = compare(args)
    if args.json:
        print(json.dumps(result))
        return
    for name, told in result["figures"].items():
        print(name)
        for key, value in told.items():
            print(f"    {key:<28}{value}")


if __name__ == "__main__":
    main()
