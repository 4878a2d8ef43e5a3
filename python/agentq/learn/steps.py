"""The steps of SFT and DPO: a pair's reference, the items that each step runs forward, and its loss on some of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from agentq.learn.batch import LossFn, Part, check_items
from agentq.learn.losses import dpo_loss, sequence_logps, sft_loss
from agentq.policies.adapters import at_start
from agentq.types import PreferencePair, Sample

if TYPE_CHECKING:
    from agentq.learn.learner import Learner

KEPT = 100_000  # references


def with_reference(learner: Learner, pairs: Sequence[PreferencePair]) -> list[PreferencePair]:
    """The pairs; samples whose log-probabilities are unknown (all NaN) get those of the weights before the first step.

    They are computed once and kept in `learner.reference`: all of them if all weights are trained, since they cannot be
    computed again; the newest `KEPT` with adapters.

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
        with at_start(learner.model) if learner.lora_rank else nullcontext():
            known = learner.recompute_logps(list(new.values()))
        learner.reference.update(zip(new, (sample.logps for sample in known), strict=True))

    found = {key: learner.reference[key] for key in missing}
    for old in list(learner.reference)[: -KEPT if learner.lora_rank else 0]:
        del learner.reference[old]

    def known_side(side: Sequence[Sample]) -> tuple[Sample, ...]:
        return tuple(replace(s, logps=found[_tokens(s)]) if _tokens(s) in found else s for s in side)

    return [replace(pair, chosen=known_side(pair.chosen), rejected=known_side(pair.rejected)) for pair in pairs]


def _tokens(sample: Sample) -> bytes:
    """A digest of the prompt and the tokens."""
    parts = (np.asarray(ids).tobytes() for ids in (sample.prompt_ids, sample.token_ids))
    return b"".join(sha256(part).digest() for part in parts)


def imitation_step(
    samples: Sequence[Sample], weights: Sequence[float] | None
) -> tuple[list[tuple[Sample, ...]], LossFn]:
    """Items and loss of `Learner.step_sft`."""
    check_items([(sample,) for sample in samples])
    if weights is not None and len(weights) != len(samples):
        raise ValueError(f"weights must have one entry per sample ({len(samples)}); got {len(weights)}")
    weight = torch.ones(len(samples)) if weights is None else torch.tensor(weights, dtype=torch.float32)
    num_tokens = sum(len(sample.token_ids) for sample in samples)

    def loss(part: Part, logps: Tensor) -> tuple[Tensor, Mapping[str, Tensor | float]]:
        rows = [row for (row,) in part.samples]  # an item that occurs twice in a step counts twice
        mask, w = part.action_mask[rows], weight[list(part.items)].to(logps.device)
        return sft_loss(logps[rows], mask, weights=w, normalizer=num_tokens), {}

    return [(sample,) for sample in samples], loss


def preference_step(
    pairs: Sequence[PreferencePair],
    replay: Sequence[Sample],
    beta: float,
    label_smoothing: float,
    sft_weight: float,
) -> tuple[list[tuple[Sample, ...]], LossFn]:
    """Items and loss of `Learner.step_dpo`."""
    if not sft_weight >= 0:
        raise ValueError(f"sft_weight must be at least 0; got {sft_weight}")
    if replay and sft_weight == 0:
        raise ValueError(f"sft_weight must be greater than 0 if actions are replayed; got 0 and {len(replay)}")
    items = [*((*pair.chosen, *pair.rejected) for pair in pairs), *((sample,) for sample in replay)]
    good = [*(pair.chosen for pair in pairs), *((sample,) for sample in replay)]
    lengths = torch.tensor([sum(len(s.token_ids) for s in side) for side in good], dtype=torch.float64)
    reference = torch.tensor([[_recorded(p.chosen), _recorded(p.rejected)] for p in pairs], dtype=torch.float64)

    def loss(part: Part, logps: Tensor) -> tuple[Tensor, Mapping[str, Tensor | float]]:
        total = sequence_logps(logps, part.action_mask)
        members = part.members
        good_logps = torch.stack([total[list(rows[: len(good[i])])].sum() for i, rows in members])
        per_token = good_logps / lengths[list(part.items)].to(total.device)
        value = -sft_weight * per_token.sum() / len(items)
        at = [n for n, (i, _) in enumerate(members) if i < len(pairs)]
        if not at:
            return value, {}
        chosen = good_logps[at]
        rejected = torch.stack([total[list(members[n][1][len(good[members[n][0]]) :])].sum() for n in at])
        ref_chosen, ref_rejected = reference[[members[n][0] for n in at]].to(total.device).T
        out = dpo_loss(chosen, rejected, ref_chosen, ref_rejected, beta=beta, label_smoothing=label_smoothing)
        margins = out.chosen_rewards - out.rejected_rewards
        metrics = {
            "rewards/chosen": out.chosen_rewards,
            "rewards/rejected": out.rejected_rewards,
            "rewards/margins": margins,
            "rewards/accuracies": (margins > 0).double(),
            "logps/chosen": chosen,
            "logps/rejected": rejected,
        }
        value = value + out.loss.sum() / len(items)
        return value, {name: x.detach().sum() / len(pairs) for name, x in metrics.items()}

    return items, loss


def _recorded(side: Sequence[Sample]) -> float:
    """log pi_b of one side, in nats, as recorded."""
    logps = np.concatenate([np.asarray(sample.logps, dtype=np.float64) for sample in side])
    if len(logps) != sum(len(sample.token_ids) for sample in side) or not np.isfinite(logps).all():
        raise ValueError(
            "a pair must have a recorded, finite log-probability for every action token; got "
            f"{int(np.isfinite(logps).sum())} for {sum(len(s.token_ids) for s in side)} tokens; "
            "recompute_reference gives them"
        )
    return float(logps.sum())
