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
from agentq.recipes.recipe import Recipe, Round, branched_rollouts
from agentq.searching.branching import at_random
from agentq.types import CreditedTrajectory

TREES = 2


def credit(r: Round) -> list[CreditedTrajectory]:
    """Inter-tree and intra-tree advantages, `credit.trees.tree_grpo`."""
    advantages = partial(tree_grpo, ddof=policy_gradient.ddof(r.config))
    items = credited_branches(list(r.store.trees(r.stage)), advantages)
    return policy_gradient.prepared(r, items)


RECIPE = Recipe(
    "tree_grpo",
    branched_rollouts(at_random(TREES), lambda size: TREES),
    credit,
    policy_gradient.policy_gradient(),
    defaults=(
        *policy_gradient.words(divide_by_std=True),
        *("--run.group_size=6", "--run.num_tasks=32", "--train.batch_size=64", "--run.num_rounds=10"),
    ),
    on_policy=True,
    min_group=TREES,
)
