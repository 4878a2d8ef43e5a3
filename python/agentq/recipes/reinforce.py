"""REINFORCE: the return less the mean return of the round, strictly on-policy, one optimiser step a round.

Source: Williams 1992, Machine Learning 8, 229-256. The baseline over all tasks and all defaults are ours.
"""

from __future__ import annotations

import numpy as np

from agentq.credit.advantages import group_relative
from agentq.credit.episodes import StepColumns
from agentq.recipes import policy_gradient


def advantages(c: StepColumns, ddof: int | None) -> np.ndarray:
    """`[S]`: the trajectory's return less the mean of all."""
    own: np.ndarray = group_relative(c.returns, np.zeros(len(c.returns)), ddof=ddof)[c.trajectory]
    return own


RECIPE = policy_gradient.recipe(
    "reinforce",
    advantages=advantages,
    settings=policy_gradient.words(ratio="none", average="constant"),  # the gradient of a trajectory's log-probability
    min_group=1,
    defaults=("--run.group_size=1", "--run.num_tasks=240", "--train.batch_size=240", "--run.num_rounds=10"),
)
