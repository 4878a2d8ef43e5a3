"""Converts a stage's episodes to columns for `credit/advantages.py` and puts advantages back on them. Pure functions.

Every function here omits episodes that the world broke, before any baseline is taken.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from agentq.credit.samples import sample_of
from agentq.errors import ConfigError
from agentq.store.records import TreeRecord
from agentq.types import CreditedTrajectory, Trajectory


def whole(episodes: Iterable[Trajectory]) -> list[Trajectory]:
    """The episodes that the world did not break, in their order."""
    return [t for t in episodes if not t.broken]


class StepColumns(NamedTuple):
    """Labels and rewards `[S]`, one per step of the N episodes; the steps of an episode are consecutive.

    `trajectory` counts episodes from 0; `group` is the task's seed; `anchor` is the page acted on. `returns` and
    `group_of` are `[N]`, one per episode.
    """

    reward: np.ndarray
    trajectory: np.ndarray
    group: np.ndarray
    anchor: np.ndarray
    returns: np.ndarray
    group_of: np.ndarray


def step_columns(episodes: Sequence[Trajectory]) -> StepColumns:
    """The columns of whole episodes, in their order."""
    episodes = whole(episodes)
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
    episodes: Sequence[Trajectory],
    advantages: np.ndarray,
    *,
    drop_below: float = 0.0,
    values: np.ndarray | None = None,
) -> list[CreditedTrajectory]:
    """Whole episodes with their advantages. Episodes with negligible advantages are dropped.

    Args:
        advantages: `[S]` one per step, as in `step_columns`.
        drop_below: drop episodes in which no step has a larger absolute advantage (0.01 in LOOP); at least 0, which
            drops only episodes whose advantages are all exactly 0.
        values: `[S, 2]`, see `CreditedTrajectory`.

    Raises:
        ConfigError: if there is not one finite advantage per step: they come from a method of your own.
        ValueError: if drop_below is negative.
    """
    episodes = whole(episodes)
    counts = [len(t.steps) for t in episodes]
    advantages = np.asarray(advantages, np.float64)
    if advantages.shape != (sum(counts),):
        raise ConfigError(
            f"advantages must have one entry per step ({sum(counts)}); got an array of shape {list(advantages.shape)}"
        )
    if not np.isfinite(advantages).all():
        raise ConfigError("advantages must be finite; got nan or inf")
    if not drop_below >= 0:
        raise ValueError(f"drop_below must be at least 0; got {drop_below}")

    def by_episode(steps: np.ndarray) -> list[np.ndarray]:
        return np.split(steps, np.cumsum(counts))[:-1]  # the last is empty

    found = []
    targets = [None] * len(episodes) if values is None else by_episode(values)
    for t, own, target in zip(episodes, by_episode(advantages), targets, strict=True):
        if len(own) and np.abs(own).max() > drop_below:
            samples = tuple(sample_of(step.proposal) for step in t.steps)
            found.append(CreditedTrajectory(samples, own, values=target))
    return found


def turns_waited_for(
    lengths: Mapping[int, Sequence[int]],
    *,
    attempts: int,
    of_all: float,
    of_task: float,
    broken: Mapping[int, int] | None = None,
) -> int:
    """LOOP's straggler cut: the smallest number of turns within which enough rollouts have ended.

    Longer rollouts are left out. Ours: the paper cuts by wall-clock time. A cut by turns does not depend on the load
    and is the same after a resume. Rollouts that the world broke are not waited for.

    Args:
        lengths: per task seed, the turns of its rollouts that have ended so far.
        attempts: number of rollouts started per task.
        of_all: share of all rollouts that must have ended, in [0, 1]; 0.9 in LOOP.
        of_task: share of each task's rollouts, in [0, 1]; 0.75 in LOOP: 4 of 6 (rounded half to even, as in its code).
        broken: per task seed, the number of its rollouts that the world broke.

    Returns:
        A number of turns; a very large one if too few rollouts have ended yet.
    """
    if not (0 <= of_all <= 1 and 0 <= of_task <= 1):
        raise ValueError(f"of_all and of_task must be in [0, 1]; got {of_all} and {of_task}")
    left = {seed: attempts - (broken or {}).get(seed, 0) for seed in lengths}
    total = math.ceil(of_all * sum(left.values()) - 1e-9)
    never = 1 << 30
    turns = [(sorted(found), round(of_task * left[seed])) for seed, found in lengths.items()]
    if any(len(found) < each for found, each in turns) or sum(len(found) for found, _ in turns) < total:
        return never
    ended = sorted(length for found, _ in turns for length in found)
    return max([0, *(found[each - 1] for found, each in turns if each), *([ended[total - 1]] if total else [])])


class Turns:
    """The turns of each finished rollout so far, for `turns_waited_for`."""

    def __init__(self, seeds: Iterable[int], episodes: Iterable[Trajectory] = ()) -> None:
        self.lengths: dict[int, list[int]] = {seed: [] for seed in seeds}
        self.broken: Counter[int] = Counter()
        for t in episodes:
            self.add(t)

    def add(self, t: Trajectory) -> None:
        """Count an episode that has ended."""
        if t.broken:
            self.broken[t.task.seed] += 1
        else:
            self.lengths[t.task.seed].append(len(t.steps))

    def waited_for(self, *, attempts: int, of_all: float, of_task: float) -> int:
        """The cut of `turns_waited_for` at present."""
        return turns_waited_for(self.lengths, attempts=attempts, of_all=of_all, of_task=of_task, broken=self.broken)


def with_replay(
    episodes: Sequence[Trajectory],
    successes: Sequence[Trajectory],
    *,
    capacity: int,
    seed: int,
    mean_below: float = 0.2,
    std_below: float = 0.05,
) -> tuple[list[Trajectory], list[bool]]:
    """The episodes. In each task whose rollouts failed alike, an earlier success replaces the first episode.

    Args:
        episodes: episodes of any tasks.
        successes: the buffer of earlier successes, oldest first; only the last `capacity` of each task are used.
        seed: determines, with the task, the draw from the task's buffer.
        mean_below: replace only if the group's mean return is lower than this, in reward units,
        std_below: and its (population) standard deviation is lower than this.

    Returns:
        The whole episodes and, for each, whether it was replayed.

    Source: Lu et al. 2025, arXiv:2505.16282, released code (`apply_replay`).
    """
    if capacity < 1:
        raise ValueError(f"capacity must be at least 1; got {capacity}")
    found = whole(episodes)
    episodes, replayed = list(found), [False] * len(found)
    groups: dict[int, list[int]] = {}
    for i, t in enumerate(episodes):
        groups.setdefault(t.task.seed, []).append(i)
    earlier: dict[int, list[Trajectory]] = {}
    for t in successes:
        earlier.setdefault(t.task.seed, []).append(t)
    for task, group in groups.items():
        returns = [episodes[i].return_ for i in group]
        buffer = earlier.get(task, [])[-capacity:]
        if buffer and np.mean(returns) < mean_below and np.std(returns) < std_below:
            drawn = int(np.random.default_rng([seed, task]).integers(len(buffer)))
            found[group[0]], replayed[group[0]] = buffer[drawn], True
    return found, replayed


def credited_branches(
    trees: Sequence[TreeRecord], advantages: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
) -> list[CreditedTrajectory]:
    """The rollouts of branched trees as whole trajectories. A shared prefix is in each and gets each one's credit.

    Rollouts with advantage 0 are left out; those that the world broke have no end.

    Args:
        trees: one per task, as `searching.branching.branched` makes them.
        advantages: computes `[R]` from the rollouts' returns, trees and tasks, all `[R]`.
    """
    trees = [tree for tree in trees if not tree.broken[0]]
    ends = [(tree, end) for tree in trees for end in tree.info["ends"]]
    returns = np.array([value for tree in trees for value in tree.info["returns"]], dtype=np.float64)
    labels = np.array([label for tree in trees for label in tree.info["trees"]], dtype=np.int64)
    tasks = np.array([tree.task.seed for tree, _ in ends], dtype=np.int64)
    found = []
    for (tree, end), own in zip(ends, advantages(returns, labels, tasks).tolist(), strict=True):
        proposals = [tree.proposal[node] for node in tree.path(end)[1:]]
        samples = tuple(sample_of(proposal) for proposal in proposals if proposal is not None)
        if own:
            found.append(CreditedTrajectory(samples, np.full(len(samples), own)))
    return found


class Branches(NamedTuple):
    """The rollouts of branched trees as one forest, whose nodes are those of all trees, one tree after the other."""

    parent: np.ndarray  # [n] int64: as in `credit.trees`
    ends: np.ndarray  # [R] int64: the node where each rollout ended
    returns: np.ndarray  # [R] float64
    paths: list[np.ndarray]  # [R]: the nodes of each rollout after the root, in order


def credited_forest(
    trees: Sequence[TreeRecord], advantages: Callable[[Branches], Sequence[np.ndarray]]
) -> list[CreditedTrajectory]:
    """The rollouts of branched trees as whole trajectories, with credit by node.

    Rollouts whose advantages are all 0 are left out; those that the world broke have no end.

    Args:
        trees: as in `credited_branches`.
        advantages: computes the advantages of each rollout's steps, one array per rollout.
    """
    trees = [tree for tree in trees if not tree.broken[0]]
    starts = np.cumsum([0, *(len(tree) for tree in trees)])
    parents = [np.where(tree.parent < 0, -1, tree.parent + start) for tree, start in zip(trees, starts, strict=False)]
    rollouts = [(tree, start, end) for tree, start in zip(trees, starts, strict=False) for end in tree.info["ends"]]
    if not rollouts:
        return []
    branches = Branches(
        np.concatenate(parents).astype(np.int64),
        np.array([start + end for _, start, end in rollouts], dtype=np.int64),
        np.array([value for tree in trees for value in tree.info["returns"]], dtype=np.float64),
        [start + np.array(tree.path(end)[1:], dtype=np.int64) for tree, start, end in rollouts],
    )
    found = []
    for (tree, _, end), own in zip(rollouts, advantages(branches), strict=True):
        proposals = [tree.proposal[node] for node in tree.path(end)[1:]]
        if np.any(own):
            samples = tuple(sample_of(proposal) for proposal in proposals if proposal is not None)
            found.append(CreditedTrajectory(samples, own))
    return found
