"""Supervised fine-tuning (SFT): every action of a stage's demonstrations, weight 1."""

from __future__ import annotations

from agentq.config import Config
from agentq.credit.episodes import whole
from agentq.credit.pairs import sample_of
from agentq.learn.learner import Learner, Metrics
from agentq.recipes.recipe import Recipe, demonstrations
from agentq.store.run import RunStore
from agentq.types import Sample


def items(store: RunStore, stage: str, config: Config) -> list[Sample]:
    """The actions of all whole episodes of the stage, success or not: a demonstration is taken at its word."""
    return [sample_of(step.proposal) for trajectory in whole(store.trajectories(stage)) for step in trajectory.steps]


def step(learner: Learner, batch: list[Sample], config: Config) -> Metrics:
    """One step down the mean negative log-likelihood of the batch's action tokens."""
    return learner.step_sft(batch)


RECIPE = Recipe("sft", demonstrations, lambda r: items(r.store, r.stage, r.config), step)
