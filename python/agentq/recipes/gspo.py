"""GSPO: GRPO with the trajectory's ratio to the power 1 / number of tokens, clipped very narrowly.

Source: Zheng et al. 2025, arXiv:2507.18071, eqs. 5 and 7; clip 3e-4 / 4e-4 and four minibatches per round, section 5.1.
Ours: a sequence consists of all actions of a trajectory; group, tasks and rounds.
"""

from __future__ import annotations

from agentq.recipes import policy_gradient

RECIPE = policy_gradient.recipe("gspo", geometric_mean=True)
