"""Rejection-sampling fine-tuning (RFT): SFT on the policy's own distinct successful episodes.

Source: Yuan et al. 2023, arXiv:2308.01825; the baseline of the same name in Putta et al. 2024, arXiv:2408.07199.
"""

from __future__ import annotations

from agentq.credit.samples import success_samples
from agentq.recipes.recipe import Recipe, Round, collect_groups
from agentq.recipes.settings import Rft
from agentq.recipes.sft import loss
from agentq.types import Sample


def credit(r: Round[Rft]) -> list[Sample]:
    """The readable actions of the stage's successful episodes, at most `rft.max_per_task` per task."""
    return success_samples(list(r.store.trajectories(r.stage)), r.settings.rft.max_per_task)


RECIPE = Recipe("rft", Rft, collect_groups, credit, loss)
