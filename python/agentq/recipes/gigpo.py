"""GiGPO: GRPO's episode advantage plus a step advantage, relative to steps of the group on the same page.

Source: Feng et al. 2025, arXiv:2505.10978, eqs. 3, 5-8, without division by the standard deviation, which was the
better setting on WebShop; discount 0.95, weight 1, group 8. Ours: no KL term (theirs: 0.01), no penalty for unreadable
actions (theirs: 0.1 of a reward of 10), tasks, batch and rounds.
"""

from __future__ import annotations

import numpy as np

from agentq.credit.advantages import gigpo
from agentq.credit.episodes import StepColumns
from agentq.recipes import policy_gradient


def advantages(c: StepColumns, ddof: int | None) -> np.ndarray:
    """`[S]` sums of episode and step advantages, see `credit.advantages.gigpo`."""
    return gigpo(c.reward, c.trajectory, c.group, c.anchor, discount=0.95, step_weight=1.0, ddof=ddof)


RECIPE = policy_gradient.recipe("gigpo", advantages=advantages)
