"""Losses as pure functions of tensors, independent of models, batches and optimisers."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus


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
        logps: `[B, T]` log-probability of each token, in nats; any value, even NaN, where action_mask is 0.
        action_mask: `[B, T]`, 1 where the token is the policy's own and is trained on.
        weights: `[B]` one per sequence; None is 1 each.
        normalizer: divisor of the sum, > 0. None: the number of action tokens here, so the unweighted loss is the mean
            over tokens. A caller that splits a step passes the number of the whole step to every part.

    Raises:
        ValueError: if a shape does not fit or the normalizer is not positive (no action token at all).
    """
    return -weighted_mean(logps, action_mask, weights=weights, normalizer=normalizer)


def weighted_mean(
    values: Tensor, action_mask: Tensor, *, weights: Tensor | None = None, normalizer: float | Tensor | None = None
) -> Tensor:
    """The mean that every loss here uses, a float64 scalar.

        sum_b weights[b] * sum_t action_mask[b, t] * values[b, t] / normalizer

    Arguments and errors as in `sft_loss`; `policy_gradient_loss.averaging` gives the weights and normalizer of other
    means.
    """
    if values.shape != action_mask.shape or values.ndim != 2:
        raise ValueError(
            f"values and action_mask must both be [B, T]; got {list(values.shape)} and {list(action_mask.shape)}"
        )
    if weights is not None and weights.shape != values.shape[:1]:
        raise ValueError(f"weights must have one entry per sequence ({values.shape[0]}); got {list(weights.shape)}")
    total = action_mask.sum() if normalizer is None else normalizer
    if not total > 0:
        raise ValueError(f"normalizer must be greater than 0; got {float(total)}")
    by_sequence = sequence_logps(values, action_mask)
    return (by_sequence if weights is None else by_sequence * weights).sum() / total


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
    loss_type: Literal["sigmoid", "ipo"] = "sigmoid",
    lengths: tuple[Tensor, Tensor] | None = None,
) -> DPOLoss:
    """Direct preference optimization loss of each pair.

        margin  = beta * [(log pi(a_w|h) - log ref(a_w|h)) / |a_w| - (log pi(a_l|h) - log ref(a_l|h)) / |a_l|]
        sigmoid = -(1 - label_smoothing) * log sigmoid(margin) - label_smoothing * log sigmoid(-margin)
        ipo     = (margin / beta - 1 / (2 * beta))^2

    |a| is 1 unless lengths are given.

    Args:
        policy_chosen: `[B]` log-probability of the chosen action a_w given its history h under the policy, in nats,
            summed over the action's tokens only (a trajectory: over all its actions).
        policy_rejected: `[B]` the same for the rejected action a_l.
        ref_chosen: `[B]` the same for a_w under the reference policy; no gradient flows.
        ref_rejected: `[B]` the same for a_l.
        beta: weight of the implicit KL term, > 0; larger stays closer to the reference.
        label_smoothing: probability that a label is wrong, in [0, 0.5); 0 with "ipo".
        loss_type: "ipo" pulls the margin to 1/2 and no further; "sigmoid" always increases it.
        lengths: `[B]` tokens of a_w and of a_l, at least 1: log-ratios are then means over tokens (length-normalised
            DPO, usual for IPO). None: sums.

    Returns:
        Loss and implicit rewards `beta * (log pi - log ref) / |a|`, detached, all `[B]`, in nats.
        Not averaged: the caller decides how pairs are weighted.

    Raises:
        ValueError: if beta, label_smoothing or a length is out of range or the shapes differ.

    Source: Rafailov et al. 2023, arXiv:2305.18290, eq. 7; label_smoothing: Mitchell 2023, "conservative DPO", eq. 3;
    ipo: Azar et al. 2023, arXiv:2310.12036, eq. 17, beta is their tau; lengths: Lambert et al. 2024, arXiv:2411.15124.
    """
    if not beta > 0:
        raise ValueError(f"beta must be greater than 0; got {beta}")
    if not 0.0 <= label_smoothing < 0.5:
        raise ValueError(f"label_smoothing must be in [0, 0.5); got {label_smoothing}")
    if loss_type not in ("sigmoid", "ipo"):
        raise ValueError(f"loss_type must be 'sigmoid' or 'ipo'; got {loss_type!r}")
    if loss_type == "ipo" and label_smoothing > 0:
        raise ValueError(f"label_smoothing must be 0 with loss_type 'ipo'; got {label_smoothing}")
    columns = (policy_chosen, policy_rejected, ref_chosen, ref_rejected, *(lengths or ()))
    shapes = [list(x.shape) for x in columns]
    if any(shape != shapes[0] or len(shape) != 1 for shape in shapes):
        raise ValueError(f"log-probabilities and lengths must have one shape [B]; got {shapes}")
    if lengths is not None and not all((length >= 1).all() for length in lengths):
        raise ValueError(f"lengths must be at least 1; got {min(int(length.min()) for length in lengths)}")
    chosen_rewards = beta * (policy_chosen - ref_chosen.detach()) / (1 if lengths is None else lengths[0])
    rejected_rewards = beta * (policy_rejected - ref_rejected.detach()) / (1 if lengths is None else lengths[1])
    margin = chosen_rewards - rejected_rewards
    if loss_type == "ipo":
        loss = ((margin - 0.5) / beta).square()
    else:
        loss = -(1.0 - label_smoothing) * logsigmoid(margin) - label_smoothing * logsigmoid(-margin)
    return DPOLoss(loss, chosen_rewards.detach(), rejected_rewards.detach())


def discriminator_loss(logits: Tensor, is_expert: Tensor, *, label_smoothing: float = 0.0) -> Tensor:
    """`[B]` cross-entropy of a discriminator D = sigmoid(logit) between expert and policy actions; not averaged.

        loss = -y log D - (1 - y) log(1 - D),    y = 1 - label_smoothing for the expert's, label_smoothing for others

    Args:
        logits: `[B]`, higher is more like the expert.
        is_expert: `[B]`, 1 where the action is the expert's.
        label_smoothing: in [0, 0.5); above 0, saturation of D costs loss (ours).

    Raises:
        ValueError: if the shapes differ or label_smoothing is out of range.

    Source: Ho and Ermon 2016, arXiv:1606.03476 (their D is the policy's probability); Deng et al. 2024,
    arXiv:2411.03817 (StepAgent).
    """
    if logits.shape != is_expert.shape or logits.ndim != 1:
        raise ValueError(f"logits and is_expert must both be [B]; got {list(logits.shape)} and {list(is_expert.shape)}")
    if not 0.0 <= label_smoothing < 0.5:
        raise ValueError(f"label_smoothing must be in [0, 0.5); got {label_smoothing}")
    target = torch.where(is_expert.bool(), 1.0 - label_smoothing, label_smoothing)
    return softplus(logits) - target * logits


def value_loss(
    values: Tensor,
    returns: Tensor,
    action_mask: Tensor,
    *,
    old_values: Tensor | None = None,
    clip: float | None = None,
    weights: Tensor | None = None,
    normalizer: float | Tensor | None = None,
) -> Tensor:
    """Half the squared error of a value function, a scalar.

        loss = weighted_mean(1/2 * max((V - G)^2, (clip(V, V_old - clip, V_old + clip) - G)^2))

    Args:
        values: `[B, T]` V of each token (or `[B, 1]`, of each action), in reward units; masked as in `sft_loss`.
        returns: `[B, T]` G, such as `gae` plus the old values; no gradient.
        action_mask: `[B, T]`, 1 where there is a value to learn.
        old_values: `[B, T]` before the step's updates, no gradient; with clip only.
        clip: at least 0: no gain from a step of more than this. None: the plain squared error.

    Raises:
        ValueError: if a shape does not fit, clip comes without old_values or old_values without clip, or as `sft_loss`.

    Source: Schulman et al. 2017's code (PPO2), not the paper; the half as there.
    """
    if (clip is None) != (old_values is None):
        raise ValueError(f"clip and old_values must come together; got clip {clip}")
    if returns.shape != values.shape or (old_values is not None and old_values.shape != values.shape):
        raise ValueError(f"returns and old_values must be {list(values.shape)} as values; got {list(returns.shape)}")
    mask = action_mask.bool()
    target, v = torch.where(mask, returns.detach(), 0.0), torch.where(mask, values, 0.0)
    error = (v - target).square()
    if clip is not None and old_values is not None:
        if not clip >= 0:
            raise ValueError(f"clip must be at least 0; got {clip}")
        old = torch.where(mask, old_values.detach(), 0.0)
        error = torch.maximum(error, (old + (v - old).clamp(-clip, clip) - target).square())
    return 0.5 * weighted_mean(error, action_mask, weights=weights, normalizer=normalizer)
