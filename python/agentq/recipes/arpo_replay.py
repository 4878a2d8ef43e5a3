"""ARPO with experience replay: GRPO on the same tasks every round. A stored success joins a group of failures.

Source: Lu et al. 2025, arXiv:2505.16282, released code: group 8. In a group with mean below 0.2 and standard deviation
below 0.05, the first rollout is replaced by one of the task's last 8 successes, drawn uniformly. Clip 0.2 / 0.3, no KL.
Ours: a replayed rollout keeps the log-probabilities recorded when it was sampled, so its ratio is correct and clipped
(theirs: those of the current policy, as if it were on-policy); batch, tasks and rounds.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from agentq.credit.episodes import credited, step_columns, whole, with_replay
from agentq.recipes import policy_gradient
from agentq.recipes.recipe import Recipe, Round, collect_groups, stage_of
from agentq.recipes.settings import RECIPES, Family
from agentq.types import CreditedTrajectory


def credit(r: Round[Family]) -> list[CreditedTrajectory]:
    """GRPO advantages over groups that may contain a success of an earlier round."""
    stages = [stage_of(r.name, number) for number in range(1, r.number)]
    earlier = [t for stage in stages for t in r.store.trajectories(stage) if t.success]
    episodes, replayed = with_replay(whole(r.store.trajectories(r.stage)), earlier, capacity=8, seed=r.seed)
    columns = step_columns(episodes)
    own, is_old = policy_gradient.GRPO(columns, policy_gradient.ddof(r)), np.array(replayed)[columns.trajectory]
    fresh = policy_gradient.old_logps(r, credited(episodes, np.where(is_old, 0.0, own)))
    return policy_gradient.with_reference(r, fresh + credited(episodes, np.where(is_old, own, 0.0)))


COLLECT = partial(collect_groups, again=True)
RECIPE = Recipe("arpo_replay", RECIPES["arpo_replay"], COLLECT, credit, policy_gradient.policy_gradient())
