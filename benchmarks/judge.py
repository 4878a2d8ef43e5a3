"""How often does the outcome judge agree with the sites' own checkers, on finished episodes of validation tasks?

    python benchmarks/judge.py [--judge ENGINE] [--tasks 200] [--log FILE] [--json]

Episodes are the base policy's, sampled, and the expert's, half as many. Those that ended with STOP are judged by a
model that is asked for a rubric (`OutcomeJudge`) and by a rule that understands nothing: the final page contains all
words of the instruction that have a digit, except at most one (a second choice, a highest price). The checker is the
ground truth.
"""

from __future__ import annotations

import argparse
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from critic import together
from machine import commit, machine

from agentq import envs
from agentq.agent.actions import format_action, history_text
from agentq.critics.judge import OutcomeJudge
from agentq.evaluation.stats import wilson
from agentq.policies.engine_names import EMBEDDED, embedded_base, make_engine
from agentq.policies.model_policy import ModelPolicy
from agentq.searching.rollout import RolloutSettings, rollout
from agentq.types import History, Split, Task

SITES = ("booking", "shop")
_NUMBERED = re.compile(r"\S*\d\S*")


@dataclass(frozen=True, slots=True)
class Episode:
    """The end of an episode, and the verdict of the site's checker."""

    source: str
    end: History
    success: bool


def by_policy(site: str, tasks: list[Task], policy: ModelPolicy) -> list[Episode]:
    """The policy's episodes that ended with STOP."""
    settings = RolloutSettings(temperature=0.8)
    found = []
    for t in together(rollout(envs.make(site), task, policy, settings) for task in tasks):
        if t is not None and t.steps[-1].result.terminated:
            texts = tuple(history_text(step.proposal.action) for step in t.steps)
            end = History(t.task.instruction, t.steps[-1].result.observation, texts)
            found.append(Episode("policy", end, t.success))
    return found


def by_expert(site: str, tasks: list[Task]) -> list[Episode]:
    """The expert's episodes."""
    env, expert, found = envs.make(site), envs.expert(site), []
    for task in tasks:
        history = History(task.instruction, env.reset(task))
        while True:
            advice = expert(task, env)
            result = env.step(advice.env_action)
            history = history.then(format_action(advice.env_action, thought=advice.thought), result.observation)
            if result.terminated or result.truncated:
                break
        found.append(Episode("expert", history, result.success))
    return found


def by_numbers(end: History) -> bool:
    """The verdict of the rule."""
    shown = set(end.observation.text.split())
    return sum(word not in shown for word in _NUMBERED.findall(end.instruction)) <= 1


def table(said: list[bool], truth: list[bool]) -> dict[str, Any]:
    """Agreement, approved failures per failures, refused successes per successes, each with Wilson's interval."""
    pairs = list(zip(said, truth, strict=True))
    counts = {
        "agreement": (sum(a == b for a, b in pairs), len(pairs)),
        "false_positives": (sum(a and not b for a, b in pairs), sum(not b for b in truth)),
        "false_negatives": (sum(b and not a for a, b in pairs), sum(truth)),
    }
    return {
        name: {"count": k, "n": n, "share": k / n, "interval": list(wilson(k, n))} if n else {"count": 0, "n": 0}
        for name, (k, n) in counts.items()
    }


def measure(site: str, n: int, policy: ModelPolicy, judge: OutcomeJudge) -> dict[str, Any]:
    """Both judges on one site."""
    tasks = envs.tasks(site, Split.VALIDATION, n)
    episodes = [*by_policy(site, tasks, policy), *by_expert(site, tasks[: n // 2])]
    truth = [episode.success for episode in episodes]
    judgements = together(judge.judge(episode.end) for episode in episodes)
    return {
        "episodes": len(episodes),
        "of_the_policy": sum(episode.source == "policy" for episode in episodes),
        "successes": sum(truth),
        "answers_without_a_rubric": sum(not judgement.findings for judgement in judgements),
        "model": table([judgement.success for judgement in judgements], truth),
        "numbers": table([by_numbers(episode.end) for episode in episodes], truth),
        "always_no": table([False] * len(truth), truth),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--judge", default=EMBEDDED, metavar="ENGINE", help="default: the embedded base")
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--log", type=Path, help="append the result to this file")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    policy = ModelPolicy(make_engine(embedded_base()))
    judge = OutcomeJudge(policy.engine if args.judge == EMBEDDED else make_engine(args.judge))
    figures = {site: measure(site, args.tasks, policy, judge) for site in SITES}
    better = [figures[site]["model"]["agreement"] for site in SITES]
    floor = [figures[site]["always_no"]["agreement"]["share"] for site in SITES]
    targets = {
        f"{site}: better than no": {"value": a["interval"][0], "target": b, "met": a["interval"][0] > b}
        for site, a, b in zip(SITES, better, floor, strict=True)
    }
    result = {"judge": args.judge, "figures": figures, "targets": targets}
    result |= {"machine": machine("torch"), "commit": commit()}
    if args.log:
        with args.log.open("a") as log:
            log.write(json.dumps(result) + "\n")
    if args.json:
        print(json.dumps(result))
        return
    for site, found in figures.items():
        print(f"{site}: {found['episodes']} episodes, {found['of_the_policy']} of the policy, ", end="")
        print(f"{found['successes']} successes, {found['answers_without_a_rubric']} answers without a rubric")
        for who in ("model", "numbers", "always_no"):
            print(f"  {who:<10}" + "".join(f"{name}: {_share(row)}   " for name, row in found[who].items()))


def _share(row: dict[str, Any]) -> str:
    if not row["n"]:
        return "-"
    low, high = row["interval"]
    return f"{row['count']}/{row['n']} {100 * row['share']:.1f} % ({100 * low:.1f} - {100 * high:.1f})"


if __name__ == "__main__":
    main()
