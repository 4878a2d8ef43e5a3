"""Tree-GRPO: rollouts branch at random turns of earlier ones; each is compared within its task and within its tree.

Source: Ji et al. 2025, arXiv:2509.21240, released defaults: two trees, each expanded at two random turns in one round,
so six rollouts (of which `run.group_size` is the setting). Ours: every leaf is trained on, a tree of one rollout has no
intra-tree part, clip 0.2, no KL; batch, tasks and rounds.
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
    """`TREES` rollouts from the root, the rest from random turns of them."""
    collect_branches(r, TREES, r.settings.run.group_size, at_random(TREES))


def credit(r: Round[TreeGrpo]) -> list[CreditedTrajectory]:
    """Inter-tree and intra-tree advantages, `credit.trees.tree_grpo`."""
    advantages = partial(tree_grpo, ddof=policy_gradient.ddof(r))
    items = credited_branches(list(r.store.trees(r.stage)), advantages)
    return policy_gradient.prepared(r, items)


RECIPE = Recipe("tree_grpo", TreeGrpo, collect, credit, policy_gradient.policy_gradient())
