"""Tree-GRPO: rollouts branch at random turns of earlier ones and are compared within their task and within their tree.

Source: Ji et al. 2025, arXiv:2509.21240, released defaults: two trees, each expanded at two random turns in one round,
which makes six rollouts (`run.group_size`). Ours: every leaf is trained on, a tree with one rollout has no intra-tree
part, clip 0.2, no KL; batch, tasks and rounds.
"""

from __future__ import annotations

from agentq.credit.trees import tree_grpo
from agentq.recipes import policy_gradient
from agentq.searching.branching import at_random

TREES = 2

RECIPE = policy_gradient.branch_recipe("tree_grpo", lambda _: TREES, at_random(TREES), tree_grpo)
