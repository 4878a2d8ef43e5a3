"""The outcome of one evaluated task, from an episode or a search tree. Pure functions."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from agentq.store.records import TERMINAL, TreeRecord
from agentq.types import Step, StepResult, Trajectory


class TaskOutcome(NamedTuple):
    """The outcome of one task. `broken`: the world broke it, so it says nothing about the agent.

    `scenario`: see `Task`.
    """

    success: bool
    return_: float
    steps: int
    env: str
    broken: bool
    scenario: str = ""


def of_episode(t: Trajectory) -> TaskOutcome:
    """The outcome of an episode."""
    return TaskOutcome(t.success, t.return_, len(t.steps), t.task.env, t.broken, t.task.scenario)


def of_tree(tree: TreeRecord) -> TaskOutcome:
    """The outcome of the episode at `best_end`; zeros if no episode ended.

    Where the checker did not tell the search, its verdict on the episode that was chosen.
    """
    of = (tree.task.env, tree.fault is not None, tree.task.scenario)
    if (found := tree.info.get("checked")) is not None:
        return TaskOutcome(found["success"], found["return"], found["steps"], of[0], found["broken"], of[2])
    end = best_end(tree)
    if not tree.flags[end] & TERMINAL and not tree.success[end]:
        return TaskOutcome(False, 0.0, 0, *of)
    return TaskOutcome(bool(tree.success[end]), _return(tree, end), int(tree.depth[end]), *of)


def best_end(tree: TreeRecord) -> int:
    """The last node of the best episode: a success, then the highest return, then the fewest steps.

    If no episode ended, the end of the most visited path (ties: the critic's better rank).
    """
    ends = np.flatnonzero(((tree.flags & TERMINAL != 0) | tree.success) & ~tree.broken).tolist()
    if ends:
        return min(ends, key=lambda end: (not tree.success[end], -_return(tree, end), int(tree.depth[end])))
    node = 0
    while tried := [child for child in tree.children(node).tolist() if tree.visit_count[child]]:
        node = max(tried, key=lambda child: (int(tree.visit_count[child]), -child))
    return node


def counted_end(tree: TreeRecord) -> int:
    """The last node of the episode that counts: the chosen one where the checker did not tell the search.

    Else `best_end`; also for records of versions that did not keep the end of the chosen episode.
    """
    found = tree.info.get("checked", {})
    return int(found["end"]) if "end" in found else best_end(tree)


def judged(tree: TreeRecord) -> bool:
    """Whether a judge told the search of success, so that `tree.success` has the judge's verdicts."""
    return "checked" in tree.info and "answers" not in tree.info  # the checker tells the episodes of a vote


def solved(tree: TreeRecord) -> bool:
    """Whether the task counts as solved: by any episode, or the chosen one where the checker did not tell."""
    found = tree.info.get("checked")
    return bool(tree.success.any() if found is None else found["success"])


def best_episode(tree: TreeRecord) -> Trajectory:
    """The episode that ends at `best_end`. Its success is whether any episode of the tree solved the task."""
    return _episode(tree, best_end(tree), success=bool(tree.success.any()))


def counted_episode(tree: TreeRecord) -> Trajectory:
    """The episode at `counted_end`, with the checker's verdict on it; `best_episode` where all verdicts are its own."""
    found = tree.info.get("checked", {})
    if "end" not in found:
        return best_episode(tree)
    return replace(_episode(tree, counted_end(tree), success=solved(tree)), return_=found["return"])


def _episode(tree: TreeRecord, end: int, *, success: bool) -> Trajectory:
    path = tree.path(end)
    steps = []
    for before, node in pairwise(path):
        page, proposal, after = tree.observation[before], tree.proposal[node], tree.observation[node]
        assert page is not None and proposal is not None and after is not None  # it was executed
        result = StepResult(
            after,
            float(tree.reward[node]),
            terminated=bool(tree.flags[node] & TERMINAL),
            success=bool(tree.success[node]),
            error_kind=tree.error_kind[node],
        )
        steps.append(Step(page, proposal, result))
    return Trajectory(tree.task, tuple(steps), sum(step.result.reward for step in steps), success)


def _return(tree: TreeRecord, end: int) -> float:
    return float(sum(tree.reward[node] for node in tree.path(end)))
