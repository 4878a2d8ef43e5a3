"""RLOO: return minus the mean of the task's other rollouts, strictly on-policy, one optimiser step per round.

Source: Ahmadian et al. 2024, arXiv:2402.14740; group and tasks as LOOP's RLOO (Chen et al. 2025, arXiv:2502.01600,
appendix D). The number of rounds is ours.
"""

from __future__ import annotations

from agentq.credit.advantages import leave_one_out
from agentq.recipes import policy_gradient

RECIPE = policy_gradient.recipe("rloo", advantages=policy_gradient.per_trajectory(leave_one_out))
