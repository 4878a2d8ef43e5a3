"""The steps of SFT and DPO: the items that each runs forward, and its loss on a part of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from agentq.learn.batch import LossFn, Part
from agentq.learn.losses import dpo_loss, sequence_logps, sft_loss
from agentq.types import PreferencePair, Sample


def imitation_step(
    samples: Sequence[Sample], weights: Sequence[float] | None
) -> tuple[list[tuple[Sample, ...]], LossFn]:
    """Items and loss of `Learner.step_sft`."""
    if weights is not None and len(weights) != len(samples):
        raise ValueError(f"weights must have one entry per sample ({len(samples)}); got {len(weights)}")
    weight = torch.ones(len(samples)) if weights is None else torch.tensor(weights, dtype=torch.float32)
    num_tokens = sum(len(sample.token_ids) for sample in samples)

    def loss(part: Part, logps: Tensor) -> tuple[Tensor, Mapping[str, Tensor]]:
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

    def loss(part: Part, logps: Tensor) -> tuple[Tensor, Mapping[str, Tensor]]:
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
