"""Leaves the thinking of sampled actions out of the loss. The model still reads it: it moves to the prompt."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from agentq.agent.thinking import CLOSED
from agentq.types import CreditedTrajectory, PreferencePair, Sample

Item = TypeVar("Item", Sample, PreferencePair, CreditedTrajectory)


def thinking_tokens(token_ids: np.ndarray, tokenizer: Any) -> int:
    """Number of an answer's tokens up to the end of its last closed thinking block; 0 without one.

    At least one token is left after it.
    """
    ids = [int(token) for token in token_ids]

    def length(n: int) -> int:
        return len(tokenizer.decode(ids[:n], skip_special_tokens=False))

    ends = [match.end() for match in CLOSED.finditer(tokenizer.decode(ids, skip_special_tokens=False))]
    return min(bisect_left(range(len(ids) + 1), ends[-1], key=length), len(ids) - 1) if ends else 0


def without_thinking(item: Item, tokenizer: Any) -> Item:
    """An item to train on without the thinking of its actions; advantages stay."""
    if isinstance(item, Sample):
        return _cut(item, thinking_tokens(item.token_ids, tokenizer))
    if isinstance(item, PreferencePair):
        chosen, rejected = (
            tuple(without_thinking(sample, tokenizer) for sample in side) for side in (item.chosen, item.rejected)
        )
        return replace(item, chosen=chosen, rejected=rejected)
    cuts = [thinking_tokens(sample.token_ids, tokenizer) for sample in item.samples]
    samples = tuple(_cut(sample, n) for sample, n in zip(item.samples, cuts, strict=True))
    reference, sampled = (
        None if known is None else tuple(logps[n:] for logps, n in zip(known, cuts, strict=True))
        for known in (item.reference, item.sampled)
    )
    return replace(item, samples=samples, reference=reference, sampled=sampled)


def _cut(sample: Sample, n: int) -> Sample:
    prompt = np.concatenate([sample.prompt_ids, sample.token_ids[:n]])
    return Sample(prompt, sample.token_ids[n:], sample.logps[n:])
