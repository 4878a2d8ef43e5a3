"""Outcome-supervised DPO: each successful episode of a task over each failed one, log-probabilities summed over steps.

Source: Putta et al. 2024, arXiv:2408.07199, eq. 6 (its "DPO" baseline).
"""

from __future__ import annotations

from itertools import groupby

from agentq.config import Config
from agentq.credit.pairs import trajectory_pairs
from agentq.recipes.agent_q import step
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
