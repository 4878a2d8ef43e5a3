"""What stages of a run used: actions, tokens, time and money. Reads notes and records; owns neither."""

from __future__ import annotations

from dataclasses import dataclass, fields

from agentq.policies.usage import Price, Tally, Usage
from agentq.store.run import RunStore


@dataclass(slots=True)
class Cost:
    """What a stage used: executed actions, model tokens, wall seconds, and money by the settings' prices."""

    env_steps: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    seconds: float = 0.0
    money: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


def cost_of(store: RunStore, stage: str, price: Price) -> Cost:
    """What a stage used, over all its interruptions.

    The policy's tokens are those of the records, which also a killed process leaves; where these have none (text-only
    engines), those that the engine counted.
    """
    note = store.note(stage) or {}
    usage, actions, recorded = Usage.from_note(note), 0, Tally()
    for tree in store.trees(stage):
        actions += int(tree.info["env_steps"])
        recorded.prompt_tokens += int(tree.info["prompt_tokens"])
        recorded.generated_tokens += int(tree.info["generated_tokens"])
    for t in store.trajectories(stage):
        actions += len(t.steps)
        recorded.prompt_tokens += sum(len(step.proposal.prompt_ids) for step in t.steps)
        recorded.generated_tokens += sum(len(step.proposal.token_ids) for step in t.steps)
    counted = usage.roles.pop("policy", Tally())
    policy = recorded if recorded.prompt_tokens else counted
    tokens, paid = usage.total + policy, usage.total + (counted if counted.requests else recorded)
    seconds = float(note.get("seconds", 0.0))
    return Cost(actions, tokens.prompt_tokens, tokens.generated_tokens, seconds, price.of(paid))
