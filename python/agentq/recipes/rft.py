"""Rejection-sampling fine-tuning (RFT): SFT on the policy's own successful episodes, each distinct one once.

Source: Yuan et al. 2023, arXiv:2308.01825; the baseline of the same name in Putta et al. 2024, arXiv:2408.07199.
"""

from __future__ import annotations

from agentq.config import Config
from agentq.credit.pairs import success_samples
from agentq.recipes.recipe import Recipe, rollout_groups
from agentq.recipes.sft import step
from agentq.store.run import RunStore
from agentq.types import Sample

__all__ = ["items", "step"]


def items(store: RunStore, stage: str, config: Config) -> list[Sample]:
    """The readable actions of the stage's successful episodes, at most `rft.max_per_task` a task."""
    return success_samples(list(store.trajectories(stage)), config.rft.max_per_task)


RECIPE = Recipe(
    "rft",
    rollout_groups(),
    lambda r: items(r.store, r.stage, r.config),
    step,
    defaults=("--run.num_tasks=120", "--run.group_size=4", "--train.epochs=2"),  # ours, as in the ladder
)
