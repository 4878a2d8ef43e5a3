"""Losses: pure functions, tensors in, tensors out. They know nothing of models, batches or optimisers."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid


class DPOLoss(NamedTuple):
    """`loss` `[B]`, with gradient; `chosen_rewards`, `rejected_rewards` `[B]` detached, all in nats."""

    loss: Tensor
    chosen_rewards: Tensor
    rejected_rewards: Tensor


def sft_loss(
    logps: Tensor, action_mask: Tensor, *, weights: Tensor | None = None, normalizer: float | Tensor | None = None
) -> Tensor:
    """Negative log-likelihood of the action tokens, a scalar.

        loss = - sum_b weights[b] * sum_t action_mask[b, t] * logps[b, t] / normalizer

    Args:
        logps: `[B, T]` log-probability of each token, in nats; where action_mask is 0 any value, NaN included.
        action_mask: `[B, T]`, 1 where the token is the policy's own and is trained on.
        weights: `[B]` one a sequence; None is 1 each.
        normalizer: what the sum is divided by, > 0. None: the number of action tokens here, so the unweighted loss is
            the mean over tokens. A caller that splits a step passes the number of the whole step to every part.

    Raises:
        ValueError: if a shape does not fit or the normalizer is not positive (no action token at all).
    """
    if logps.shape != action_mask.shape or logps.ndim != 2:
        raise ValueError(
            f"logps and action_mask must both be [B, T]; got {list(logps.shape)} and {list(action_mask.shape)}"
        )
    if weights is not None and weights.shape != logps.shape[:1]:
        raise ValueError(f"weights must have one entry a sequence ({logps.shape[0]}); got {list(weights.shape)}")
    total = action_mask.sum() if normalizer is None else normalizer
    if not total > 0:
        raise ValueError(f"normalizer must be greater than 0; got {float(total)}")
    by_sequence = sequence_logps(logps, action_mask)
    return -(by_sequence if weights is None else by_sequence * weights).sum() / total


def sequence_logps(logps: Tensor, action_mask: Tensor) -> Tensor:
    """`[B]` float64: each sequence's sum over its action tokens, in nats; other entries have no effect."""
    return torch.where(action_mask.bool(), logps, torch.zeros_like(logps)).sum(dim=-1, dtype=torch.float64)


def dpo_loss(
    policy_chosen: Tensor,
    policy_rejected: Tensor,
    ref_chosen: Tensor,
    ref_rejected: Tensor,
    *,
    beta: float,
    label_smoothing: float = 0.0,
) -> DPOLoss:
    """Direct preference optimization loss of each pair.

        margin = beta * [(log pi(a_w|h) - log ref(a_w|h)) - (log pi(a_l|h) - log ref(a_l|h))]
        loss   = -(1 - label_smoothing) * log sigmoid(margin) - label_smoothing * log sigmoid(-margin)

    Args:
        policy_chosen: `[B]` log-probability of the chosen action a_w given its history h under the policy, in nats,
            summed over the action's tokens only (a trajectory: over all its actions).
        policy_rejected: `[B]` the same for the rejected action a_l.
        ref_chosen: `[B]` the same for a_w under the reference policy; no gradient flows.
        ref_rejected: `[B]` the same for a_l.
        beta: weight of the implicit KL term, > 0; larger stays closer to the reference.
        label_smoothing: probability that a label is the wrong way round, in [0, 0.5).

    Returns:
        Loss and implicit rewards `beta * (log pi - log ref)`, detached, all `[B]`, in nats.
        Not averaged: the caller decides how pairs are weighted.

    Raises:
        ValueError: if beta or label_smoothing is out of range or the four shapes differ.

    Source: Rafailov et al. 2023, arXiv:2305.18290, eq. 7; label_smoothing: Mitchell 2023, "conservative DPO", eq. 3.
    """
    if not beta > 0:
        raise ValueError(f"beta must be greater than 0; got {beta}")
    if not 0.0 <= label_smoothing < 0.5:
        raise ValueError(f"label_smoothing must be in [0, 0.5); got {label_smoothing}")
    shapes = [list(x.shape) for x in (policy_chosen, policy_rejected, ref_chosen, ref_rejected)]
    if any(shape != shapes[0] or len(shape) != 1 for shape in shapes):
        raise ValueError(f"the four log-probabilities must have one shape [B]; got {shapes}")
    chosen_rewards = beta * (policy_chosen - ref_chosen.detach())
    rejected_rewards = beta * (policy_rejected - ref_rejected.detach())
    margin = chosen_rewards - rejected_rewards
    loss = -(1.0 - label_smoothing) * logsigmoid(margin) - label_smoothing * logsigmoid(-margin)
    return DPOLoss(loss, chosen_rewards.detach(), rejected_rewards.detach())
