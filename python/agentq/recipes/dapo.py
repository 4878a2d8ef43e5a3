"""DAPO: GRPO with clip-higher, the mean over all tokens of the step, and no group without variance.

Source: Yu et al. 2025, arXiv:2503.14476: clip 0.2 / 0.28, token-level loss, dynamic sampling, no KL. Ours: groups whose
returns are all equal are dropped and not replaced by new ones, nothing is done about overlong answers; group, tasks,
batch and rounds.
"""

from __future__ import annotations

from functools import partial

from agentq.credit.advantages import group_relative
from agentq.recipes import policy_gradient

RECIPE = policy_gradient.recipe(
    "dapo",
    advantages=policy_gradient.per_trajectory(partial(group_relative, ddof=1)),
    ratio="token",
    clip=(0.2, 0.28),
    average="token",
    defaults=("--run.group_size=8", "--run.num_tasks=32", "--train.batch_size=64", "--run.num_rounds=10"),
)
