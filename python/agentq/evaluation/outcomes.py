"""The outcome of one evaluated task, from an episode or a search tree. Pure functions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from agentq.store.records import TERMINAL, TreeRecord
from agentq.types import Trajectory


class TaskOutcome(NamedTuple):
    """The outcome of one task. `broken`: the world broke it, so it says nothing about the agent."""

    success: bool
    return_: float
    steps: int
    env: str
    broken: bool


def of_episode(t: Trajectory) -> TaskOutcome:
    """The outcome of an episode."""
    return TaskOutcome(t.success, t.return_, len(t.steps), t.task.env, t.broken)


def of_tree(tree: TreeRecord) -> TaskOutcome:
    """The best episode in a tree: highest return, then fewest steps; zeros if none ended."""
    ends = np.flatnonzero((tree.flags & TERMINAL != 0) & ~tree.broken).tolist()
    if not ends:
        return TaskOutcome(False, 0.0, 0, tree.task.env, tree.fault is not None)
    total = {end: float(sum(tree.reward[node] for node in tree.path(end))) for end in ends}
    best = min(ends, key=lambda end: (-total[end], int(tree.depth[end])))
    return TaskOutcome(
        bool(tree.success[best]), total[best], int(tree.depth[best]), tree.task.env, tree.fault is not None
    )
