"""How often does the critic rank the expert's action first among a model's own proposals, compared with chance?

    python benchmarks/critic.py --env booking --tasks 40 [--base DIR] [--json]

On validation tasks. At every state of the expert's path the policy proposes K actions, and the expert's action is added
if it is missing. States with no other proposal are left out. The policy's own first sample is the baseline.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Coroutine, Iterable
from pathlib import Path
from typing import Any, TypeVar

from machine import commit, machine

from agentq import envs
from agentq.agent.actions import action_key, format_action
from agentq.critics.ranker import LLMRanker
from agentq.evaluation.critic import choice_accuracy
from agentq.evaluation.stats import wilson
from agentq.policies.engine_names import embedded_base
from agentq.policies.model_policy import ModelPolicy
from agentq.policies.transformers_engine import TransformersEngine
from agentq.types import EnvAction, History, Split

Answer = TypeVar("Answer")


def expert_states(env_name: str, n: int) -> list[tuple[History, EnvAction]]:
    """(history, the expert's action) at each step of the expert's episodes on `n` validation tasks."""
    env, expert, found = envs.make(env_name), envs.expert(env_name), []
    for task in envs.tasks(env_name, Split.VALIDATION, n):
        history = History(task.instruction, env.reset(task))
        while True:
            advice = expert(task, env)
            found.append((history, advice.env_action))
            result = env.step(advice.env_action)
            if result.terminated or result.truncated:
                break
            plan = "" if history.actions else expert.plan
            text = format_action(advice.env_action, plan=plan, thought=advice.thought, explanation=advice.explanation)
            history = history.then(text, result.observation)
    return found


def together(questions: Iterable[Coroutine[Any, Any, Answer]]) -> list[Answer]:
    """All answers; the questions are asked at once."""

    async def main() -> list[Answer]:
        return await asyncio.gather(*questions)

    return asyncio.run(main())


def measure(env_name: str, n: int, k: int, base: Path) -> dict[str, Any]:
    """The critic's accuracy, the policy's own, and chance."""
    engine = TransformersEngine(base)
    states = expert_states(env_name, n)
    histories = [history for history, _ in states]
    policy = ModelPolicy(engine)
    proposed = together(policy.propose(history, k, seed=seed) for seed, history in enumerate(histories))
    asked, listed, right, first_right = [], [], [], 0
    for (history, wanted), proposals in zip(states, proposed, strict=True):
        actions = {action_key(p.action.env_action): p.action.env_action for p in proposals}
        actions.setdefault(action_key(wanted), wanted)
        if len(actions) < 2:
            continue
        asked.append(history)
        listed.append(list(actions.values()))
        right.append(list(actions).index(action_key(wanted)))
        first_right += action_key(proposals[0].action.env_action) == action_key(wanted)
    ranker = LLMRanker(engine)
    ranks = together(ranker.rank(h, p, seed=seed) for seed, (h, p) in enumerate(zip(asked, listed, strict=True)))
    critic = choice_accuracy(ranks, right)
    low, high = wilson(first_right, len(asked))
    better = {"value": critic.low, "target": critic.chance, "met": critic.low > critic.chance}
    return {
        "figures": {
            "critic_accuracy": critic.accuracy,
            "critic_interval": [critic.low, critic.high],
            "n": critic.n,
            "chance": critic.chance,
            "first_sample_accuracy": first_right / len(asked),
            "first_sample_interval": [low, high],
            "unknown_answers": ranker.stats.unknown / max(1, ranker.stats.calls),
        },
        "targets": {"better than chance": better},
        "machine": machine("torch"),
        "commit": commit(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="booking")
    parser.add_argument("--tasks", type=int, default=40)
    parser.add_argument("--proposals", type=int, default=5)
    parser.add_argument("--base", type=Path, default=embedded_base())
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    result = measure(args.env, args.tasks, args.proposals, args.base)
    if args.json:
        print(json.dumps(result))
    else:
        for name, value in result["figures"].items():
            print(f"{name:<24}{value}")


if __name__ == "__main__":
    main()
