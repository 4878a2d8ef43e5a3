"""GRPO: returns standardised within the group, PPO's clip per token, mean over each trajectory's tokens.

Source: Shao et al. 2024, arXiv:2402.03300, section 4.1; clip 0.2 and one epoch as commonly implemented. Ours: no KL
term (theirs: 0.04; in LOOP's ablation, arXiv:2502.01600 table 1, none is better), group, tasks, batch and rounds.
"""

from __future__ import annotations

from agentq.recipes import policy_gradient

RECIPE = policy_gradient.recipe("grpo")
