"""ARPO, entropy-based: GRPO on rollouts that branch where the agent is less certain than at the start.

Source: Dong et al. 2025, arXiv:2507.19849: 16 rollouts, 8 of them from the root, the others branches, or fresh rollouts
if there are too few places to branch. Soft advantage estimation: plain GRPO over whole trajectories, including their
shared beginnings. Ours: the estimate of the entropy (`searching.branching.where_unsure`), the environment's own reward,
clip 0.2, no KL term, batch, tasks and rounds.
"""

from __future__ import annotations

from agentq.credit.advantages import group_relative
from agentq.credit.episodes import credited_branches
from agentq.recipes import policy_gradient
from agentq.recipes.recipe import Recipe, Round, collect_branches
from agentq.recipes.settings import ArpoEntropy
from agentq.searching.branching import where_unsure
from agentq.types import CreditedTrajectory


def collect(r: Round[ArpoEntropy]) -> None:
    """Collect half of the rollouts from the root, the others from states in which the policy was uncertain."""
    size = r.settings.run.group_size
    collect_branches(r, (size + 1) // 2, size, where_unsure)


def credit(r: Round[ArpoEntropy]) -> list[CreditedTrajectory]:
    """GRPO's advantages over all rollouts of a task."""
    trees, ddof = list(r.store.trees(r.stage)), policy_gradient.ddof(r)
    items = credited_branches(trees, lambda returns, _, tasks: group_relative(returns, tasks, ddof=ddof))
    return policy_gradient.prepared(r, items)


RECIPE = Recipe("arpo_entropy", ArpoEntropy, collect, credit, policy_gradient.policy_gradient())
