"""Outcome-supervised DPO: each successful episode of a task over each failed one, log-probabilities summed over steps.

Source: Putta et al. 2024, arXiv:2408.07199, eq. 6 (its "DPO" baseline).
"""

from __future__ import annotations

from itertools import groupby

from agentq.config import Config
from agentq.credit.pairs import trajectory_pairs
from agentq.recipes.agent_q import step, with_learners_reference
from agentq.recipes.recipe import Recipe, rollout_groups
from agentq.store.run import RunStore
from agentq.types import PreferencePair

__all__ = ["items", "step"]

MAX_PAIRS_PER_TASK = 2  # ours: m successes and n failures make m * n pairs, which repeat one another


def items(store: RunStore, stage: str, config: Config) -> list[PreferencePair]:
    """Trajectory pairs task by task, at most `MAX_PAIRS_PER_TASK` each, drawn by the run's seed."""
    by_task = groupby(store.trajectories(stage), key=lambda trajectory: trajectory.task)  # they come by task
    return [
        pair
        for _, episodes in by_task
        for pair in trajectory_pairs(list(episodes), max_pairs=MAX_PAIRS_PER_TASK, seed=config.run.seed)
    ]


RECIPE = Recipe(
    "outcome_dpo",
    rollout_groups(),
    lambda r: with_learners_reference(r, items(r.store, r.stage, r.config)),
    step,
    defaults=("--train.learning_rate=1e-5",),  # ours, as in the ladder
    min_group=2,
)
