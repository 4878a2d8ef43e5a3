"""Outcome-supervised DPO: successful over failed episodes of a task, with log-probabilities summed over steps.

Source: Putta et al. 2024, arXiv:2408.07199, eq. 6 (its "DPO" baseline).
"""

from __future__ import annotations

from itertools import groupby

from agentq.credit.pairs import trajectory_pairs
from agentq.recipes.agent_q import loss, with_learners_reference
from agentq.recipes.recipe import Recipe, Round, collect_groups
from agentq.recipes.settings import OutcomeDpo
from agentq.types import PreferencePair, Sample

MAX_PAIRS_PER_TASK = 2  # ours; m successes and n failures make m * n pairs, which overlap


def credit(r: Round[OutcomeDpo]) -> list[PreferencePair | Sample]:
    """At most `MAX_PAIRS_PER_TASK` trajectory pairs per task, drawn with the run's seed."""
    # ordered by seed; the tasks of one seed may differ in the instruction, which some environments tell at reset
    by_task = groupby(r.store.trajectories(r.stage), key=lambda trajectory: trajectory.task.seed)
    seed = r.settings.run.seed
    pairs = [p for _, own in by_task for p in trajectory_pairs(list(own), max_pairs=MAX_PAIRS_PER_TASK, seed=seed)]
    return with_learners_reference(r, pairs)


RECIPE = Recipe("outcome_dpo", OutcomeDpo, collect_groups, credit, loss)
