"""Attacks on policies: page text that would become control, models whose distribution an engine could miss."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from architectures import ARCHITECTURES, plain_logps, sampled, worst, write_checkpoint
from attack import attack

from agentq.errors import ModelError
from agentq.policies.engine import TransformersEngine

EXACT = "at most 1e-5 nats or refused"


def distribution(name: str, folder: Path) -> str:
    """The worst difference of a sampled token's log-probability from the model's own forward pass."""
    checkpoint = write_checkpoint(name, folder)
    try:
        engine = TransformersEngine(checkpoint)
    except ModelError:
        return EXACT
    samples = sampled(engine)
    apart = worst([sample.logps for sample in samples], plain_logps(checkpoint, samples))
    return EXACT if apart <= 1e-5 else f"{apart:.2g} nats"


for number, name in enumerate(ARCHITECTURES, 1):
    what = f"{name}: sampled log-probabilities against the model's own forward pass"
    attack(f"2.8.{number}", what, expected=EXACT)(partial(distribution, name))
