"""How far an engine's log-probabilities are from a learner's. Policy ratios and references depend on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from agentq.errors import ConfigError
from agentq.policies.protocol import Engine, Gives, Prompt, SampleRequest
from agentq.types import Sample


@dataclass(frozen=True, slots=True)
class Agreement:
    """|recorded log-probability - recomputed log-probability| over `num_tokens` sampled tokens, in nats."""

    max: float
    mean: float
    num_tokens: int


async def probe(
    engine: Engine, prompts: Sequence[Prompt], *, k: int = 1, seed: int = 0, max_new_tokens: int = 32
) -> list[Sample]:
    """`k` samples of each prompt at temperature 1, with the engine's log-probabilities.

    Raises:
        ConfigError: if the engine does not report them.
    """
    if Gives.TOKEN_IDS | Gives.LOGPS not in engine.gives:
        raise ConfigError(f"an engine must report token ids and log-probabilities to be compared; got {engine.name}")
    asked = [SampleRequest(p, k, seed + i, 1.0, max_new_tokens, role="probe") for i, p in enumerate(prompts)]
    told = await asyncio.gather(*map(engine.sample, asked))
    return [Sample(p.ids, s.token_ids, s.logps) for p, some in zip(prompts, told, strict=True) for s in some]


def agreement(samples: Sequence[Sample], recompute: Callable[[Sequence[Sample]], Sequence[Sample]]) -> Agreement:
    """Compare recorded log-probabilities with those of `recompute`, for instance `Learner.recompute_logps` at equal
    weights.

    Raises:
        ValueError: if there is no token to compare.
    """
    told, computed = ([sample.logps for sample in some] for some in (samples, recompute(samples)))
    if not sum(map(len, told)):
        raise ValueError("there must be a token to compare; got none")
    gaps = np.abs(np.concatenate(told).astype(np.float64) - np.concatenate(computed))
    return Agreement(float(gaps.max()), float(gaps.mean()), len(gaps))
