"""A method of your own in one file: GRPO whose baseline is the group's median.

    agentq train examples/median_baseline.py --env booking --out runs/median

A recipe has a name, settings, and functions that collect a round, credit it and compute the loss. Here
`policy_gradient.recipe` brings all of them except the advantages; `agentq.recipes.recipe.Recipe` takes each part.
"""

from __future__ import annotations

import numpy as np

from agentq.config import Contests, TrainOnSampled
from agentq.credit.episodes import StepColumns
from agentq.recipes import policy_gradient
from agentq.recipes.settings import PolicyGradient


def advantages(c: StepColumns, ddof: int | None) -> np.ndarray:
    """`[S]`, one per step: the return minus the median return of its task."""
    median = {group: np.median(c.returns[c.group_of == group]) for group in np.unique(c.group_of)}
    own = c.returns - np.array([median[group] for group in c.group_of])
    return np.asarray(own[c.trajectory])


class Median(PolicyGradient):
    """What the recipe reads, with its own defaults; `agentq settings examples/median_baseline.py` lists them."""

    run: Contests = Contests(group_size=8, num_tasks=16, num_rounds=5)
    train: TrainOnSampled = TrainOnSampled(batch_size=32)


RECIPE = policy_gradient.recipe("median_baseline", Median, advantages=advantages)
