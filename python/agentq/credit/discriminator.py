"""Step rewards from a discriminator between the expert's actions and the policy's. Pure NumPy."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike


def discriminator_rewards(
    logits: ArrayLike, *, form: Literal["log_d", "gail", "airl"], limit: float = 5.0
) -> np.ndarray:
    """`[S]`: the reward of each step, from D = sigmoid(logit), the probability that the action is the expert's.

        log_d:  log D                       at most 0: an episode gains by ending early
        gail:   -log(1 - D)                 at least 0: it gains by going on
        airl:   log D - log(1 - D) = logit  of either sign

    We could not determine which of the first two StepAgent uses, so there is no default. Pass the rewards to
    `reward_to_go`, with discount 0 for each step's own reward only. `group_relative` with one label and ddof=1 whitens
    a batch.

    Args:
        logits: `[S]`, higher is more like the expert; first clipped to [-limit, limit], since D saturates (ours).
        limit: greater than 0.

    Raises:
        ValueError: if form is unknown, limit is not positive or a logit is NaN.

    Source: Ho and Ermon 2016, arXiv:1606.03476 (their D is the policy's probability); Fu et al. 2018, arXiv:1710.11248
    (airl); the signs' bias: Kostrikov et al. 2019, arXiv:1809.02925. Deng et al. 2024, arXiv:2411.03817 (StepAgent).
    """
    if form not in ("log_d", "gail", "airl"):
        raise ValueError(f"form must be 'log_d', 'gail' or 'airl'; got {form!r}")
    if not limit > 0:
        raise ValueError(f"limit must be greater than 0; got {limit}")
    logit = np.clip(np.asarray(logits, dtype=np.float64), -limit, limit)
    if np.isnan(logit).any():
        raise ValueError("logits must be numbers; got nan")
    if form == "log_d":
        return -np.logaddexp(0.0, -logit)
    if form == "gail":
        return np.logaddexp(0.0, logit)
    return logit
