"""Columns of a stage's episodes for `credit/advantages.py`, and its advantages back on them. Pure; knows no method."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from agentq.credit.pairs import sample_of
from agentq.types import CreditedTrajectory, Trajectory


class StepColumns(NamedTuple):
    """Labels and rewards, `[S]` one a step of any of the N episodes, all the steps of an episode in a row.

    `trajectory` counts episodes from 0; `group` is the task's seed; `anchor` is the page acted on. `returns` and
    `group_of` are `[N]`, one an episode.
    """

    reward: np.ndarray
    trajectory: np.ndarray
    group: np.ndarray
    anchor: np.ndarray
    returns: np.ndarray
    group_of: np.ndarray


def step_columns(episodes: Sequence[Trajectory]) -> StepColumns:
    """The columns of episodes, in their order."""
    steps = [(i, t, step) for i, t in enumerate(episodes) for step in t.steps]
    return StepColumns(
        reward=np.array([step.result.reward for _, _, step in steps], dtype=np.float64),
        trajectory=np.array([i for i, _, _ in steps], dtype=np.int64),
        group=np.array([t.task.seed for _, t, _ in steps], dtype=np.int64),
        anchor=np.array([step.observation.fingerprint for _, _, step in steps], dtype=np.str_),
        returns=np.array([t.return_ for t in episodes], dtype=np.float64),
        group_of=np.array([t.task.seed for t in episodes], dtype=np.int64),
    )


def credited(
    episodes: Sequence[Trajectory], advantages: np.ndarray, *, drop_below: float = 0.0
) -> list[CreditedTrajectory]:
    """The episodes with their advantages; those that would teach nothing are left out, after the baseline was taken.

    Args:
        advantages: `[S]` one a step, as in `step_columns`.
        drop_below: episodes none of whose steps has a larger absolute advantage are dropped (LOOP's filter is 0.01);
            at least 0, where only advantages of exactly 0 are.

    Raises:
        ValueError: if there is not one advantage a step, or drop_below is negative.
    """
    counts = [len(t.steps) for t in episodes]
    if len(advantages) != sum(counts):
        raise ValueError(f"advantages must have one entry a step ({sum(counts)}); got {len(advantages)}")
    if not drop_below >= 0:
        raise ValueError(f"drop_below must be at least 0; got {drop_below}")
    found = []
    for t, own in zip(episodes, np.split(np.asarray(advantages, np.float64), np.cumsum(counts)[:-1]), strict=True):
        if len(own) and np.abs(own).max() > drop_below:
            found.append(CreditedTrajectory(tuple(sample_of(step.proposal) for step in t.steps), own))
    return found


def turns_waited_for(lengths: Mapping[int, Sequence[int]], *, attempts: int, of_all: float, of_task: float) -> int:
    """LOOP's straggler cut, in turns: the fewest by which enough rollouts have ended; longer ones are left out.

    Ours: the paper waits for wall-clock order. Turns make the same cut whatever the load, on every resume.

    Args:
        lengths: for each task's seed, the turns of its rollouts that have ended so far.
        attempts: rollouts started of each task.
        of_all: share of all rollouts that must have ended, in [0, 1]; LOOP's 0.9.
        of_task: share of each task's, in [0, 1]; LOOP's 0.75, of 6 rollouts 4 (half to even, as its code rounds).

    Returns:
        A number of turns; a very large one where too few have ended yet.
    """
    if not (0 <= of_all <= 1 and 0 <= of_task <= 1):
        raise ValueError(f"of_all and of_task must be in [0, 1]; got {of_all} and {of_task}")
    each, total = round(of_task * attempts), math.ceil(of_all * attempts * len(lengths) - 1e-9)
    never = 1 << 30
    turns = [sorted(found) for found in lengths.values()]
    if any(len(found) < each for found in turns) or sum(map(len, turns)) < total:
        return never
    ended = sorted(length for found in turns for length in found)
    return max([0, *(found[each - 1] for found in turns if each), *([ended[total - 1]] if total else [])])
