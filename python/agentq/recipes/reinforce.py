"""REINFORCE: return minus the round's mean return, strictly on-policy, one optimiser step per round.

Source: Williams 1992, Machine Learning 8, 229-256. The baseline over all tasks and all defaults are ours.
"""

from __future__ import annotations

import numpy as np

from agentq.credit.advantages import group_relative
from agentq.credit.episodes import StepColumns
from agentq.recipes import policy_gradient


def advantages(c: StepColumns, ddof: int | None) -> np.ndarray:
    """`[S]`: the trajectory's return minus the mean over all trajectories."""
    own: np.ndarray = group_relative(c.returns, np.zeros(len(c.returns)), ddof=ddof)[c.trajectory]
    return own


RECIPE = policy_gradient.recipe("reinforce", advantages=advantages)
