"""GRPO: returns standardised within the group, PPO's clip a token, mean over each trajectory's tokens.

Source: Shao et al. 2024, arXiv:2402.03300, section 4.1; clip 0.2 and one epoch as its common implementations. Ours: no
KL term (theirs: 0.04; LOOP's ablation, arXiv:2502.01600 table 1, finds none better), group, tasks, batch and rounds.
"""

from __future__ import annotations

from agentq.credit.advantages import group_relative
from agentq.recipes import policy_gradient

RECIPE = policy_gradient.recipe(
    "grpo",
    advantages=policy_gradient.per_trajectory(group_relative),
    settings=policy_gradient.words(divide_by_std=True),
    defaults=("--run.group_size=8", "--run.num_tasks=32", "--train.batch_size=64", "--run.num_rounds=10"),
)
