"""ARPO, entropy-based: GRPO on rollouts that branch where the agent is less certain than at the start.

Source: Dong et al. 2025, arXiv:2507.19849: 16 rollouts, 8 of them from the root, the others branches, or fresh rollouts
if there are too few places to branch. Soft advantage estimation: plain GRPO over whole trajectories, including their
shared beginnings. Ours: the estimate of the entropy (`searching.branching.where_unsure`), the environment's own reward,
clip 0.2, no KL term, batch, tasks and rounds.
"""

from __future__ import annotations

import numpy as np

from agentq.credit.advantages import group_relative
from agentq.recipes import policy_gradient
from agentq.searching.branching import where_unsure


def advantages(returns: np.ndarray, trees: np.ndarray, tasks: np.ndarray, *, ddof: int | None) -> np.ndarray:
    """GRPO's, over all rollouts of a task."""
    return group_relative(returns, tasks, ddof=ddof)


RECIPE = policy_gradient.branch_recipe("arpo_entropy", lambda size: (size + 1) // 2, where_unsure, advantages)
