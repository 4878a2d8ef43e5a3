"""How well does agentq read chat models' answers?

    python benchmarks/models.py [--only answers] [--json]

`answers`: a scripted OpenAI-compatible server answers as twelve kinds of model do (`answer_styles.py`). Of the answers
in which a person reads a command, which share does the policy read, and how many does it read as another command?
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from answer_server import answering
from answer_styles import SETS, StyledAnswer, answers
from machine import commit, machine, target

from agentq.policies.model_policy import ModelPolicy
from agentq.policies.openai_engine import OpenAIEngine
from agentq.types import Action, History, Observation

PARTS = ("answers",)


def read_all(asked: Sequence[StyledAnswer]) -> list[Action]:
    """What the policy reads in each answer, requested over HTTP."""
    with answering([(each.text, each.cut) for each in asked]) as url:
        engine = OpenAIEngine(url)
        policy = ModelPolicy(engine)

        async def ask() -> list[Action]:
            histories = [History(f"answer {number}", Observation("heading Home")) for number in range(len(asked))]
            proposed = await asyncio.gather(*(policy.propose(history, 1, seed=0) for history in histories))
            return [proposal.action for (proposal,) in proposed]

        try:
            return asyncio.run(ask())
        finally:
            engine.close()


def verdict(asked: StyledAnswer, action: Action) -> str:
    """`read`, `missed`, `refused` (rightly) or `wrong`."""
    found = action.env_action
    if found is None:
        return "refused" if asked.expected is None else "missed"
    return "read" if (found.command.value, found.element, found.text) == asked.expected else "wrong"


def table(asked: Sequence[StyledAnswer], verdicts: Sequence[str], by: str) -> dict[str, dict[str, Any]]:
    """Counts by an attribute of the answers, and over all of them."""
    names = [str(getattr(each, by)) for each in asked]
    found = {}
    for name in (*dict.fromkeys(names), "all"):
        rows = [(each, v) for each, v, own in zip(asked, verdicts, names, strict=True) if name in (own, "all")]
        readable, count = sum(each.expected is not None for each, _ in rows), Counter(v for _, v in rows)
        found[name] = {"answers": len(rows), "readable": readable, "read": count["read"], "wrong": count["wrong"]}
        found[name]["share"] = count["read"] / readable if readable else None
    return found


def measure_answers() -> dict[str, Any]:
    """Results by style and by set, and the number of mends by kind."""
    asked = [each for name in SETS for each in answers(name)]
    actions = read_all(asked)
    verdicts = [verdict(each, action) for each, action in zip(asked, actions, strict=True)]
    return {
        "styles": table(asked, verdicts, "style"),
        "sets": table(asked, verdicts, "set"),
        "mended": dict(Counter(name for action in actions for name in action.mended).most_common()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PARTS, nargs="+", default=list(PARTS))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    figures: dict[str, Any] = {}
    targets: dict[str, Any] = {}
    if "answers" in args.only:
        figures["answers"] = measure_answers()
        whole = figures["answers"]["styles"]["all"]
        targets["answers: share read"] = target(whole["share"], 0.95)
        targets["answers: read as another command"] = target(whole["wrong"], 0, at_most=True)
    if args.json:
        print(json.dumps({"figures": figures, "targets": targets, "machine": machine("openai"), "commit": commit()}))
        return
    for part in ("styles", "sets"):
        print(f"| {part[:-1]} | answers | readable | read | wrong | share |\n|---|---|---|---|---|---|")
        for name, row in figures["answers"][part].items():
            share = "-" if row["share"] is None else f"{100 * row['share']:.1f} %"
            print(f"| {name} | {row['answers']} | {row['readable']} | {row['read']} | {row['wrong']} | {share} |")
        print()
    print("mended:", ", ".join(f"{name} {count}" for name, count in figures["answers"]["mended"].items()))


if __name__ == "__main__":
    main()
