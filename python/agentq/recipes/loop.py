"""LOOP: leave-one-out advantages, PPO's clip per token, two epochs of mixed minibatches; no critic, no reference.

Source: Chen et al. 2025, arXiv:2502.01600, eqs. 3 and 5, algorithm 1. Group and tasks: appendix D. Clip, epochs, batch,
filter and straggler cut: the released code. Ours: the loss is divided by the number of trajectories in the step, not by
a constant 32; the cut counts turns, not seconds; rounds and learning rate (theirs: 5e-5 with LoRA of rank 16).
"""

from __future__ import annotations

from agentq.credit.advantages import leave_one_out
from agentq.recipes import policy_gradient
from agentq.searching.collect import StragglerCut

RECIPE = policy_gradient.recipe(
    "loop",
    advantages=policy_gradient.per_trajectory(leave_one_out),
    drop_below=0.01,
    cut=StragglerCut(of_all=0.9, of_task=0.75),
)
