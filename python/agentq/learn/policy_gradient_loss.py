"""The policy-gradient loss of REINFORCE, RLOO, LOOP, GRPO, DAPO, GSPO and PPO, its averaging and KL. Pure functions.

A row is one action (one turn) of a trajectory; a sequence is all rows of a trajectory. Losses are sums over tokens with
one weight per row, divided by a normalizer of the whole step, so they do not depend on how the step is split.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from agentq.learn.losses import weighted_mean

Level = Literal["token", "turn", "sequence"]
MAX_LOG_RATIO = 20.0  # in nats; a larger exponential may be infinite, with a NaN gradient


class PolicyGradientLoss(NamedTuple):
    """`loss`, a scalar with gradient; the rest detached scalars with the same averaging, so all add up over parts of a
    step.

    `ratio` before clipping; `clip_low`, `clip_high`: share of tokens whose ratio is past that bound, without gradient.
    """

    loss: Tensor
    ratio: Tensor
    clip_low: Tensor
    clip_high: Tensor


def policy_gradient_loss(
    logps: Tensor,
    old_logps: Tensor | None,
    advantages: Tensor,
    action_mask: Tensor,
    *,
    ratio: Level = "token",
    geometric_mean: bool = False,
    trajectories: Tensor | None = None,
    clip: tuple[float, float] | None = (0.2, 0.2),
    dual_clip: float | None = None,
    importance_weights: Tensor | None = None,
    weights: Tensor | None = None,
    normalizer: float | Tensor | None = None,
) -> PolicyGradientLoss:
    """Clipped policy-gradient loss.

        loss = - sum_s weights[s] * sum_t w[s,t] * min(rho A, clip(rho, 1 - low, 1 + high) A)[s,t] / normalizer

    rho = pi / pi_old of the token, or the product over its turn or sequence, which all its tokens then share; averaged
    per sequence, that is one term per sequence. A should then be one number per unit; otherwise a token is credited
    with the mean over its unit. min(rho A, clip(rho) A) is min(rho A, g(A)) with LOOP's g(A) = (1 + high) A or (1 -
    low) A. A log-ratio beyond 20 nats counts as 20 and has no gradient, as in verl.

    Args:
        logps: `[S, T]` log pi of each token, in nats. Here and in every `[S, T]` below, any value, even
            NaN, where action_mask is 0.
        old_logps: `[S, T]` under the policy before the step's updates, by the learner itself; no gradient. None: logps,
            strictly on-policy (REINFORCE), without clipping.
        advantages: `[S]` one per row, or `[S, T]`; no gradient.
        action_mask: `[S, T]`, 1 where the token is the policy's own.
        ratio: "token" (PPO, GRPO), "turn" (LOOP's), "sequence" (LOOP's bandit; GSPO with geometric_mean).
        geometric_mean: the unit's ratio to the power 1 / its number of tokens (GSPO; it clips at about 3e-4).
        trajectories: `[S]` int, the sequence of each row, all of whose rows must be here; None: each row is one.
            Used if ratio is "sequence".
        clip: (low, high), each at least 0: (eps, eps) is PPO's, (0.2, 0.28) DAPO's clip-higher, `reciprocal_clip` the
            released LOOP's. None: no clipping.
        dual_clip: the loss of a negative advantage is at most this times -A; greater than 1. None: no bound.
        importance_weights: `[S, T]` w, as `truncated_importance_weights` gives; None: 1.
        weights: `[S]`, and normalizer, as `averaging` gives; None: 1 each, and the action tokens here.

    Raises:
        ValueError: if a shape does not fit or clip, dual_clip, ratio or the normalizer is out of range.

    Source: Schulman et al. 2017, arXiv:1707.06347, eq. 7; Chen et al. 2025, arXiv:2502.01600, eqs. 4-5; Yu et al. 2025,
    arXiv:2503.14476, eq. 10 (DAPO); Zheng et al. 2025, arXiv:2507.18071, eqs. 5 and 7 (GSPO); Ye et al. 2020,
    arXiv:1912.09729 (dual clip).
    """
    if clip is not None and not min(clip) >= 0:
        raise ValueError(f"clip must be two numbers of at least 0; got {clip}")
    if dual_clip is not None and not dual_clip > 1:
        raise ValueError(f"dual_clip must be greater than 1; got {dual_clip}")
    if advantages.shape not in (logps.shape[:1], logps.shape):
        raise ValueError(f"advantages must be [S] or [S, T] of {list(logps.shape)}; got {list(advantages.shape)}")
    if importance_weights is not None and importance_weights.shape != logps.shape:
        raise ValueError(f"importance_weights must be {list(logps.shape)}; got {list(importance_weights.shape)}")
    mask = action_mask.bool()
    adv = advantages.detach().double()
    adv = adv[:, None].expand(logps.shape) if adv.ndim == 1 else torch.where(mask, adv, 0.0)
    old = logps.detach() if old_logps is None else old_logps.detach()
    rho = _ratios(logps, old, mask, ratio, trajectories, geometric_mean)
    bounded = _clipped(rho, adv, clip, dual_clip)
    objective = bounded * adv
    if importance_weights is not None:
        objective = objective * torch.where(mask, importance_weights.detach().double(), 0.0)

    def mean(values: Tensor) -> Tensor:
        return weighted_mean(values, action_mask, weights=weights, normalizer=normalizer)

    with torch.no_grad():
        shares = mean(rho), mean((bounded > rho).double()), mean((bounded < rho).double())
    return PolicyGradientLoss(-mean(objective), *shares)


def reciprocal_clip(epsilon: float) -> tuple[float, float]:
    """`clip` of the released LOOP code, whose ratio stays in [1 / (1 + epsilon), 1 + epsilon]; its epsilon is 0.1.

    The paper's g, like PPO, has 1 - epsilon below: for A = -1 and ratio 0.7 it gives -0.9, this one -0.909091.
    """
    if not epsilon >= 0:
        raise ValueError(f"epsilon must be at least 0; got {epsilon}")
    return epsilon / (1.0 + epsilon), epsilon


def averaging(
    num_tokens: Tensor,
    mode: Literal["token", "sequence", "constant"],
    *,
    trajectories: Tensor | None = None,
    constant: float = 1.0,
) -> tuple[Tensor, float]:
    """(weights `[S]`, normalizer) of a whole step, for any loss here; a part of it takes its rows of the weights.

        token:     mean over all tokens of the step                     weight 1             / all tokens
        sequence:  mean over sequences of the mean over their tokens    weight 1 / |seq|     / sequences
        constant:  mean over sequences of the sum over tokens/constant  weight 1 / constant  / sequences

    Args:
        num_tokens: `[S]` action tokens of each row of the step, at least 1 each.
        mode: "token" (DAPO), "sequence" (GRPO, LOOP, GSPO) or "constant" (Dr. GRPO: constant is the longest allowed).
        trajectories: `[S]` int, the sequence of each row; None: each row is one.
        constant: greater than 0.

    Raises:
        ValueError: if a shape does not fit or a number is out of range.
    """
    if mode not in ("token", "sequence", "constant"):
        raise ValueError(f"mode must be 'token', 'sequence' or 'constant'; got {mode!r}")
    if num_tokens.ndim != 1 or len(num_tokens) == 0 or not (num_tokens >= 1).all():
        raise ValueError(f"num_tokens must be [S] of at least 1 each; got {num_tokens.tolist()}")
    if not constant > 0:
        raise ValueError(f"constant must be greater than 0; got {constant}")
    lengths = num_tokens.double()
    if mode == "token":
        return torch.ones_like(lengths), float(lengths.sum())
    unit = _units(trajectories, lengths)
    sequences = float(unit.max() + 1)
    if mode == "constant":
        return torch.full_like(lengths, 1.0 / constant), sequences
    return 1.0 / _over(lengths, unit), sequences


def truncated_importance_weights(
    old_logps: Tensor,
    sampler_logps: Tensor,
    action_mask: Tensor,
    *,
    cap: float = 2.0,
    ratio: Level = "token",
    trajectories: Tensor | None = None,
    drop: bool = False,
) -> Tensor:
    """`[S, T]` weights, without gradient, that correct for an engine whose numbers differ from the learner's.

        w = min(pi_old / pi_sampler, cap), or with drop 0 where that exceeds cap;  0 where action_mask is 0

    Args:
        old_logps: `[S, T]` by the learner before the step's updates.
        sampler_logps: `[S, T]` recorded by the engine for the same weights. A token it did not report (NaN) is an
            error: mask it.
        action_mask: `[S, T]`, 1 where the token is the policy's own.
        cap: greater than 0. A product over a sequence grows with its length: exp(0.012 * 100) is 3.3.
        ratio: "token", or the product over the turn or the sequence.
        trajectories: `[S]` int, as in `policy_gradient_loss`.

    Raises:
        ValueError: if a shape does not fit, cap is not positive or a log-probability of an action token is not finite.

    Source: Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy RL training" (truncated);
    Liu et al. 2025, "When speed kills stability" (masked).
    """
    if not cap > 0:
        raise ValueError(f"cap must be greater than 0; got {cap}")
    mask = action_mask.bool()
    w = _ratios(old_logps.detach(), sampler_logps.detach(), mask, ratio, trajectories, geometric_mean=False)
    if not (torch.isfinite(old_logps) & torch.isfinite(sampler_logps))[mask].all():
        raise ValueError("old_logps and sampler_logps must be finite at every action token; got nan or inf")
    w = torch.where(w > cap, 0.0, w) if drop else w.clamp(max=cap)
    return torch.where(mask, w, 0.0)


def kl_estimate(logps: Tensor, ref_logps: Tensor, estimator: Literal["k1", "k2", "k3"]) -> Tensor:
    """KL(pi || ref) of each token sampled from pi, in nats; shapes equal, no gradient to ref_logps.

        r = log pi - log ref;    k1 = r,    k2 = r^2 / 2,    k3 = exp(-r) - 1 + r

    As values, k1 and k3 have the right mean, and k3 is never negative. Gradients differ. For one token's KL, on-policy
    and in expectation (sg is detached):

        added to the loss     k2: right.  k1: 0.  k3: that of KL(ref || pi); right only times pi / sg(pi)
        taken off the reward  sg(k1): right.  k2, k3: wrong

    A loss omits the effect of a token on the KL of later tokens; k1 in the rewards includes it through reward-to-go.

    Raises:
        ValueError: if the shapes differ or the estimator is unknown.

    Source: Schulman 2020, "Approximating KL divergence"; the gradients: Tang and Munos 2025, arXiv:2506.09477.
    """
    if logps.shape != ref_logps.shape:
        raise ValueError(
            f"logps and ref_logps must have one shape; got {list(logps.shape)} and {list(ref_logps.shape)}"
        )
    r = logps - ref_logps.detach()
    if estimator == "k1":
        return r
    if estimator == "k2":
        return 0.5 * r.square()
    if estimator == "k3":
        return torch.expm1(-r) + r
    raise ValueError(f"estimator must be 'k1', 'k2' or 'k3'; got {estimator!r}")


def _clipped(rho: Tensor, adv: Tensor, clip: tuple[float, float] | None, dual_clip: float | None) -> Tensor:
    """The clipped ratio: no gradient where a bound replaced it, full gradient exactly on the bound."""
    up = rho if clip is None else rho.clamp(max=1.0 + clip[1])
    down = rho if clip is None else rho.clamp(min=1.0 - clip[0])
    down = down if dual_clip is None else down.clamp(max=dual_clip)
    return torch.where(adv > 0, up, torch.where(adv < 0, down, rho))


def _ratios(
    logps: Tensor, old: Tensor, mask: Tensor, level: str, trajectories: Tensor | None, geometric_mean: bool
) -> Tensor:
    """`[S, T]` float64: each token's ratio, or that of its turn or sequence; masked entries have no effect."""
    if logps.ndim != 2 or logps.shape != old.shape or logps.shape != mask.shape:
        shapes = [list(x.shape) for x in (logps, old, mask)]
        raise ValueError(f"log-probabilities and action_mask must have one shape [S, T]; got {shapes}")
    if level not in ("token", "turn", "sequence"):
        raise ValueError(f"ratio must be 'token', 'turn' or 'sequence'; got {level!r}")
    if level == "token" and geometric_mean:
        raise ValueError("geometric_mean must go with ratio 'turn' or 'sequence'; got 'token'")
    log_ratio = torch.where(mask, logps, 0.0).double() - torch.where(mask, old, 0.0).double()
    if level != "token":
        total, count = log_ratio.sum(dim=1), mask.sum(dim=1).double()
        if level == "sequence":
            unit = _units(trajectories, total)
            total, count = _over(total, unit), _over(count, unit)
        total = total / count.clamp(min=1) if geometric_mean else total
        log_ratio = total[:, None].expand(logps.shape)
    return log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


def _units(trajectories: Tensor | None, rows: Tensor) -> Tensor:
    """`[S]` the sequence of each row as 0, 1, .."""
    if trajectories is None:
        return torch.arange(len(rows), device=rows.device)
    if trajectories.shape != rows.shape:
        raise ValueError(f"trajectories must have one entry per row ({len(rows)}); got {list(trajectories.shape)}")
    unit: Tensor = torch.unique(trajectories.to(rows.device), return_inverse=True)[1]
    return unit


def _over(values: Tensor, unit: Tensor) -> Tensor:
    """`[S]` the sum over each row's sequence."""
    return torch.zeros_like(values).index_add(0, unit, values)[unit]
