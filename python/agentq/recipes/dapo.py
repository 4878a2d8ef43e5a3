"""DAPO: GRPO with clip-higher, the mean over all tokens of the step, and no groups with equal returns.

Source: Yu et al. 2025, arXiv:2503.14476: clip 0.2 / 0.28, token-level loss, dynamic sampling (groups whose returns are
all equal are replaced by groups of other tasks), no KL. Ours: at most three times `run.num_tasks` tasks are tried, and
overlong answers are not penalised; group, tasks, batch and rounds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from agentq.credit.advantages import collapsed
from agentq.credit.episodes import whole
from agentq.recipes import policy_gradient
from agentq.recipes.recipe import Round, collect_rollouts
from agentq.recipes.settings import Family
from agentq.types import Task, Trajectory

MAX_TRIED = 3  # times run.num_tasks


def dynamic_sampling(r: Round[Family]) -> None:
    """Collect rollout groups in waves until `run.num_tasks` of them have both successes and failures."""
    size, every = r.settings.run.group_size, r.tasks(up_to=MAX_TRIED)
    tried, more = 0, r.settings.run.num_tasks
    while more > tried:
        tried = more
        collect_rollouts(r, every[:tried], size)
        more = _tried_next(r, every, tried, list(r.store.trajectories(r.stage)))


def tried(r: Round[Family], episodes: list[Trajectory]) -> list[Trajectory]:
    """Those of the tasks that one process would have tried; a run that was merged from shards has more."""
    every, last, more = r.tasks(up_to=MAX_TRIED), 0, r.settings.run.num_tasks
    while more > last:
        last, more = more, _tried_next(r, every, more, episodes)
    tasks = {task.seed for task in every[:last]}
    return [t for t in episodes if t.task.seed in tasks]


def _tried_next(r: Round[Family], every: Sequence[Task], tried: int, episodes: list[Trajectory]) -> int:
    """How many tasks are to be tried after the first `tried`, which are enough if `run.num_tasks` of them teach."""
    tasks = {task.seed for task in every[:tried]}
    mine = [t for t in whole(episodes) if t.task.seed in tasks]
    groups = [t.task.seed for t in mine]
    equal = collapsed([t.return_ for t in mine], groups)
    teaching = len(np.unique(np.array(groups)[~equal]))
    return min(len(every), tried + max(0, r.settings.run.num_tasks - teaching))


RECIPE = policy_gradient.recipe("dapo", collect=dynamic_sampling, of=tried)
