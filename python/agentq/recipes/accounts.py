"""Costs of the stages of a run: actions, tokens, time and money; what its judge said in vain; and a hash of what the
model read first."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

from agentq.critics.judge import NO_RUBRIC
from agentq.policies.usage import LISTENERS, Price, Tally, Usage
from agentq.searching.rollout import used
from agentq.status import StageDisplay
from agentq.store.run import RunStore


@dataclass(slots=True)
class Cost:
    """Cost of a stage: executed actions, model tokens, wall seconds, and money by the prices in the settings."""

    env_steps: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    seconds: float = 0.0
    money: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


def cost_of(store: RunStore, stage: str, price: Price) -> Cost:
    """Cost of a stage, over all its interruptions.

    The policy's tokens are counted from the records, which survive a killed process. If the records have no token ids
    (text-only engines), the engine's own counts are used.
    """
    note = store.note(stage) or {}
    usage, spent = Usage.from_note(note), [tree.info for tree in store.trees(stage, nodes=())]
    for t in store.trajectories(stage):
        spent += [used(t), t.info.get("retried", {}), t.info.get("repeats", {})]
    actions, prompt, generated = (
        sum(int(each.get(name, 0)) for each in spent) for name in ("env_steps", "prompt_tokens", "generated_tokens")
    )
    recorded = Tally(prompt_tokens=prompt, generated_tokens=generated)
    counted = usage.roles.pop("policy", Tally())
    policy = recorded if recorded.prompt_tokens else counted
    tokens, paid = usage.total + policy, usage.total + (counted if counted.requests else recorded)
    seconds = float(note.get("seconds", 0.0))
    return Cost(actions, tokens.prompt_tokens, tokens.generated_tokens, seconds, price.of(paid))


@contextmanager
def own_searches(store: RunStore, stage: str) -> Iterator[None]:
    """Within the block, the stage's note also counts what each `agentq.search` uses."""
    last = store.note(stage) or {}

    def add(usage: Usage, seconds: float) -> None:
        nonlocal last
        with store.transaction():
            note = store.note(stage) or {}
            spent = note if "usage" in note else last  # the recipe may have replaced the note
            total = {"seconds": spent.get("seconds", 0.0) + seconds, **(Usage.from_note(spent) + usage).to_note()}
            last = note | total
            store.set_note(stage, last)

    LISTENERS.append(add)
    try:
        yield
    finally:
        LISTENERS.remove(add)


def say_unread(status: StageDisplay, name: str, note: Mapping[str, Any]) -> None:
    """Say so if most of the judge's answers in a stage with this note had no rubric."""
    usage = Usage.from_note(note)
    asked, unread = usage.of("judge").requests, usage.faults[NO_RUBRIC]
    if 2 * unread > asked:
        status.say(
            f"{name}: {unread} of {asked} answers of the judge had no rubric and count as failures. A model that "
            "thinks needs --critic.max_new_tokens 1024 or more; --eval.chosen_by majority asks no judge"
        )


def first_prompt(store: RunStore, stage: str) -> str:
    """16 hex digits of the token ids of the first prompt of a stage's first task; empty if the engine tells none.

    They follow from task, prompt, chat template and tokenizer, and not from what was sampled.
    """
    episode, tree = next(store.trajectories(stage), None), next(store.trees(stage), None)
    proposals = [step.proposal for step in episode.steps] if episode else tree.proposal[1:] if tree else []
    first = proposals[0] if proposals else None
    if first is None or not len(first.prompt_ids):
        return ""
    return hashlib.sha256(first.prompt_ids.astype("<i4").tobytes()).hexdigest()[:16]
