"""Expert iteration (EI): every round, SFT on all successes of the policy's own rollout groups.

Source: Anthony et al. 2017, arXiv:1705.08439; for language-model agents with outcome reward as in Chen et al. 2025,
arXiv:2502.01600, appendix C: the tasks and rollouts of LOOP, those with return 1 kept. Ours: actions that success did
not need are left out, as in RFT.
"""

from __future__ import annotations

from agentq.credit.pairs import success_samples
from agentq.recipes.recipe import Recipe, Round, rollout_groups
from agentq.recipes.sft import step
from agentq.types import Sample


def credit(r: Round) -> list[Sample]:
    """The actions of every distinct successful episode."""
    return success_samples(list(r.store.trajectories(r.stage)))


RECIPE = Recipe(
    "ei",
    rollout_groups(),
    credit,
    step,
    # groups and tasks: LOOP's, appendix D; temperature 1 as there; rounds: ours
    defaults=("--search.temperature=1", "--run.group_size=6", "--run.num_tasks=40", "--run.num_rounds=10"),
)
