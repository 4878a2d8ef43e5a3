"""Supervised fine-tuning (SFT) on every action of a stage's demonstrations, with weight 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentq.credit.episodes import whole
from agentq.credit.samples import sample_of
from agentq.recipes.recipe import Recipe, Round, collect_demonstrations
from agentq.recipes.settings import Training
from agentq.types import Sample

if TYPE_CHECKING:
    from agentq.learn.learner import Learner, Metrics


def credit(r: Round[Training]) -> list[Sample]:
    """The actions of all whole episodes of the stage. Success is not checked."""
    return [sample_of(step.proposal) for t in whole(r.store.trajectories(r.stage)) for step in t.steps]


def loss(learner: Learner, batch: list[Sample], settings: Training) -> Metrics:
    """One optimiser step on the mean negative log-likelihood of the batch's action tokens."""
    return learner.step_sft(batch)


RECIPE = Recipe("sft", Training, collect_demonstrations, credit, loss)
