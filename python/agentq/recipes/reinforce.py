"""REINFORCE: the return less the mean return of the round, strictly on-policy, one optimiser step a round.

Source: Williams 1992, Machine Learning 8, 229-256. The baseline over all tasks and all defaults are ours.
"""

from __future__ import annotations

import numpy as np

from agentq.credit.advantages import group_relative
from agentq.recipes import policy_gradient

RECIPE = policy_gradient.recipe(
    "reinforce",
    advantages=policy_gradient.per_trajectory(lambda returns, _: group_relative(returns, np.zeros_like(returns))),
    ratio=None,
    average="constant",  # the sum over a trajectory's tokens: the gradient of its log-probability
    min_group=1,
    defaults=("--run.group_size=1", "--run.num_tasks=240", "--train.batch_size=240", "--run.num_rounds=10"),
)
