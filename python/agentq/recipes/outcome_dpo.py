"""Outcome-supervised DPO: each successful episode of a task over each failed one, log-probabilities summed over steps.

Source: Putta et al. 2024, arXiv:2408.07199, eq. 6 (its "DPO" baseline).
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from agentq.config import Config
from agentq.credit.pairs import trajectory_pairs
from agentq.store.run import RunStore
from agentq.types import PreferencePair

if TYPE_CHECKING:
    from agentq.learn.learner import Learner, Metrics

MAX_PAIRS_PER_TASK = 2  # ours: m successes and n failures make m * n pairs, which repeat one another


def items(store: RunStore, stage: str, config: Config) -> list[PreferencePair]:
    """Trajectory pairs task by task, at most `MAX_PAIRS_PER_TASK` each, drawn by the run's seed."""
    by_task = groupby(store.trajectories(stage), key=lambda trajectory: trajectory.task)  # they come by task
    return [
        pair
        for _, episodes in by_task
        for pair in trajectory_pairs(list(episodes), max_pairs=MAX_PAIRS_PER_TASK, seed=config.run.seed)
    ]


def step(learner: Learner, batch: list[PreferencePair], config: Config) -> Metrics:
    """One step down the mean loss of the batch."""
    return learner.step_dpo(batch, beta=config.train.beta, sft_weight=config.train.sft_weight)
