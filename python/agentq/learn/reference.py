"""Log-probabilities under the initial policy of a run: the reference of a KL term."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from agentq.learn.learner import Learner
from agentq.policies.adapters import at_start
from agentq.policies.placement import release
from agentq.types import Sample


def reference_logps(learner: Learner, start: Path | str, samples: Sequence[Sample]) -> list[np.ndarray]:
    """`[T]` float32 in nats for each sample, under the checkpoint that the learner began with.

    With adapters the learner still has those weights; otherwise `start` is loaded for this call, in float32 as the
    learner is, since autocast computes norms and sums of layers in the type of the weights.
    """
    if learner.lora_rank:
        with at_start(learner.model):
            return [sample.logps for sample in learner.recompute_logps(samples)]
    other = Learner.from_checkpoint(
        start,
        device=str(learner.device),
        learning_rate=1.0,
        bf16=learner.bf16,
        gradient_checkpointing=learner.gradient_checkpointing,
        shard=learner.ranks.size > 1,
    )
    found = [sample.logps for sample in other.recompute_logps(samples)]
    del other
    release(learner.device)
    return found
