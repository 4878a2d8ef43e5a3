"""Log-probabilities under the policy that training began with: the reference of DPO and of a KL term."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from agentq.types import PreferencePair, Sample

if TYPE_CHECKING:
    from agentq.learn.learner import Learner


def reference_logps(learner: Learner, start: Path | str, samples: Sequence[Sample]) -> list[np.ndarray]:
    """`[T]` float32 in nats for each sample, under the checkpoint that the learner began with.

    With adapters the learner itself has those weights, below the adapters; else `start` is loaded beside it for this
    call.
    """
    if learner.lora_rank:
        with learner.model.disable_adapter():
            return [sample.logps for sample in learner.recompute_logps(samples)]
    other = type(learner).from_checkpoint(
        start,
        device=str(learner.device),
        learning_rate=1.0,
        bf16=learner.bf16,
        gradient_checkpointing=learner.gradient_checkpointing,
        shard=learner.ranks.size > 1,
    )
    return [sample.logps for sample in other.recompute_logps(samples)]


def with_reference(learner: Learner, pairs: Sequence[PreferencePair]) -> list[PreferencePair]:
    """The pairs; samples whose log-probabilities are unknown (all NaN) get those of the weights before the first step.

    They are computed once and kept in `learner.reference`.

    Raises:
        ValueError: if all weights are trained, they have changed, and the learner has not seen such a sample before.
    """
    sides = [side for pair in pairs for side in (pair.chosen, pair.rejected)]
    missing = {_tokens(s): s for side in sides for s in side if len(s.logps) and np.isnan(s.logps).all()}
    new = {key: sample for key, sample in missing.items() if key not in learner.reference}
    if new and learner.step_count and not learner.lora_rank:
        raise ValueError(
            "the reference of a pair must be computed before the first step; got "
            f"{len(new)} actions without it after {learner.step_count} steps: "
            "call pairs = learner.recompute_reference(pairs) on all pairs before training"
        )
    if new:
        with learner.model.disable_adapter() if learner.lora_rank else nullcontext():
            known = learner.recompute_logps(list(new.values()))
        learner.reference.update(zip(new, (sample.logps for sample in known), strict=True))

    def known_side(side: Sequence[Sample]) -> tuple[Sample, ...]:
        return tuple(replace(s, logps=learner.reference[_tokens(s)]) if _tokens(s) in missing else s for s in side)

    return [replace(pair, chosen=known_side(pair.chosen), rejected=known_side(pair.rejected)) for pair in pairs]


def _tokens(sample: Sample) -> tuple[bytes, bytes]:
    return np.asarray(sample.prompt_ids).tobytes(), np.asarray(sample.token_ids).tobytes()
