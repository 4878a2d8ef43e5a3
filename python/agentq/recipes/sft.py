"""Supervised fine-tuning (SFT): every action of a stage's demonstrations, weight 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentq.config import Config
from agentq.credit.pairs import sample_of
from agentq.store.run import RunStore
from agentq.types import Sample

if TYPE_CHECKING:
    from agentq.learn.learner import Learner, Metrics


def items(store: RunStore, stage: str, config: Config) -> list[Sample]:
    """The actions of all episodes of the stage, success or not: a demonstration is taken at its word."""
    return [sample_of(step.proposal) for trajectory in store.trajectories(stage) for step in trajectory.steps]


def step(learner: Learner, batch: list[Sample], config: Config) -> Metrics:
    """One step down the mean negative log-likelihood of the batch's action tokens."""
    return learner.step_sft(batch)
