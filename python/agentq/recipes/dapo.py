"""DAPO: GRPO with clip-higher, the mean over all tokens of the step, and no groups with equal returns.

Source: Yu et al. 2025, arXiv:2503.14476: clip 0.2 / 0.28, token-level loss, dynamic sampling (groups whose returns are
all equal are replaced by groups of other tasks), no KL. Ours: at most three times `run.num_tasks` tasks are tried, and
overlong answers are not penalised; group, tasks, batch and rounds.
"""

from __future__ import annotations

import numpy as np

from agentq.credit.advantages import collapsed
from agentq.credit.episodes import whole
from agentq.recipes import policy_gradient
from agentq.recipes.recipe import Round, collect_rollouts
from agentq.recipes.settings import Family

MAX_TRIED = 3  # times run.num_tasks


def dynamic_sampling(r: Round[Family]) -> None:
    """Collect rollout groups in waves until `run.num_tasks` of them have both successes and failures."""
    size, wanted, every = r.settings.run.group_size, r.settings.run.num_tasks, r.tasks(up_to=MAX_TRIED)
    tried = wanted
    while True:
        collect_rollouts(r, every[:tried], size)
        tasks = {task.seed for task in every[:tried]}
        mine = (t for t in r.store.trajectories(r.stage) if t.task.seed in tasks)  # a resumed run may hold later waves
        episodes = whole(mine)
        groups = [t.task.seed for t in episodes]
        equal = collapsed([t.return_ for t in episodes], groups)
        teaching = len(np.unique(np.array(groups)[~equal]))
        if teaching >= wanted or tried == len(every):
            return
        tried = min(len(every), tried + wanted - teaching)


RECIPE = policy_gradient.recipe("dapo", collect=dynamic_sampling)
