"""Costs of the stages of a run: actions, tokens, time and money."""

from __future__ import annotations

from dataclasses import dataclass, fields

from agentq.policies.usage import Price, Tally, Usage
from agentq.searching.rollout import used
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
    usage, actions, recorded = Usage.from_note(note), 0, Tally()
    for tree in store.trees(stage):
        actions += int(tree.info["env_steps"])
        recorded.prompt_tokens += int(tree.info["prompt_tokens"])
        recorded.generated_tokens += int(tree.info["generated_tokens"])
    for t in store.trajectories(stage):
        for spent in (used(t), t.info.get("retried", {})):
            actions += spent.get("env_steps", 0)
            recorded.prompt_tokens += spent.get("prompt_tokens", 0)
            recorded.generated_tokens += spent.get("generated_tokens", 0)
    counted = usage.roles.pop("policy", Tally())
    policy = recorded if recorded.prompt_tokens else counted
    tokens, paid = usage.total + policy, usage.total + (counted if counted.requests else recorded)
    seconds = float(note.get("seconds", 0.0))
    return Cost(actions, tokens.prompt_tokens, tokens.generated_tokens, seconds, price.of(paid))
