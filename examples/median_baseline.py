"""A method of your own in one file: GRPO whose baseline is the group's median.

    agentq train examples/median_baseline.py --env booking --out runs/median

A recipe is a name, how a round is collected, what is credited, a loss and defaults. Here the family of REINFORCE brings
all of them but the advantages; `agentq.recipes.recipe.Recipe` takes the parts one by one.
"""

from __future__ import annotations

import numpy as np

from agentq.credit.episodes import StepColumns
from agentq.recipes import policy_gradient


def advantages(c: StepColumns, ddof: int | None) -> np.ndarray:
    """`[S]`, one a step: the return less the median return of its task."""
    median = {group: np.median(c.returns[c.group_of == group]) for group in np.unique(c.group_of)}
    own = c.returns - np.array([median[group] for group in c.group_of])
    return np.asarray(own[c.trajectory])


RECIPE = policy_gradient.recipe(
    "median_baseline",
    advantages=advantages,
    settings=policy_gradient.words(ratio="token", clip=(0.2, 0.2)),
    defaults=("--run.group_size=8", "--run.num_tasks=16", "--train.batch_size=32", "--run.num_rounds=5"),
)
