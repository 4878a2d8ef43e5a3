"""Tree-GRPO: rollouts branch at random turns of earlier ones and are compared within their task and within their tree.

Source: Ji et al. 2025, arXiv:2509.21240, released defaults: two trees, each expanded at two random turns in one round,
which makes six rollouts (`run.group_size`). Ours: every leaf is trained on, a tree with one rollout has no intra-tree
part, clip 0.2, no KL; batch, tasks and rounds.
"""

from __future__ import annotations

from functools import partial

from agentq.credit.episodes import credited_branches
from agentq.credit.trees import tree_grpo
from agentq.recipes import policy_gradient
from agentq.recipes.recipe import Recipe, Round, collect_branches
from agentq.recipes.settings import TreeGrpo
from agentq.searching.branching import at_random
from agentq.types import CreditedTrajectory

TREES = 2


def collect(r: Round[TreeGrpo]) -> None:
    """Collect `TREES` rollouts from the root, and the rest from random turns of these."""
    collect_branches(r, TREES, r.settings.run.group_size, at_random(TREES))


def credit(r: Round[TreeGrpo]) -> list[CreditedTrajectory]:
    """Inter-tree and intra-tree advantages, see `credit.trees.tree_grpo`."""
    advantages = partial(tree_grpo, ddof=policy_gradient.ddof(r))
    items = credited_branches(list(r.store.trees(r.stage)), advantages)
    return policy_gradient.prepared(r, items)


RECIPE = Recipe("tree_grpo", TreeGrpo, collect, credit, policy_gradient.policy_gradient())
