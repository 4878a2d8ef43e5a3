"""PPO: a value head on the policy's hidden state before each action, generalized advantages, PPO's clip per token.

Source: Schulman et al. 2017, arXiv:1707.06347. For language-model agents: Chen et al. 2025, arXiv:2502.01600,
appendix C.5: no value gradient into the policy, values in [0, 1], discount 1, lambda 1 (smaller values diverged there).
Ours: the head is linear (theirs: three layers). It is fitted to each round's returns by ridge regression, after it has
given that round's values, so it never values episodes that it was fitted to. In the first round every value is the
round's mean return. Advantages are whitened over the round. Group, tasks, batch and rounds.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save
from torch import Tensor

from agentq.credit.advantages import gae, group_relative, reward_to_go
from agentq.credit.episodes import credited, step_columns, whole
from agentq.credit.pairs import sample_of
from agentq.errors import StoreError
from agentq.learn.features import features
from agentq.recipes import policy_gradient
from agentq.recipes.recipe import Recipe, Round, collect_groups
from agentq.recipes.settings import RECIPES, OnPolicy
from agentq.store.durable import flaw, seal, write_whole
from agentq.types import CreditedTrajectory

RIDGE = 1.0


def credit(r: Round[OnPolicy]) -> list[CreditedTrajectory]:
    """Advantages by the previous value head. Then fits a new head to this round's returns and saves it."""
    episodes = whole(r.store.trajectories(r.stage))
    if not episodes:
        return []
    columns = step_columns(episodes)
    states, _ = features(r.learner, [sample_of(step.proposal) for t in episodes for step in t.steps])
    to_go = reward_to_go(columns.reward, columns.trajectory)
    guess = values(states, _head(r)) if r.number > 1 else np.full(len(to_go), columns.returns.mean())
    advantages = gae(columns.reward, guess, columns.trajectory, discount=1.0, gae_lambda=1.0)
    r.store.log(f"{r.name}/value", r.number, explained_variance=explained_variance(guess, to_go))
    kept, name = _kept(r, r.number)
    write_whole(kept, save({"weight": fit(states, torch.from_numpy(to_go))}))
    r.store.set_note(name, {"files": seal(kept)})
    whitened = group_relative(advantages, np.zeros(len(advantages)), ddof=1)
    return policy_gradient.prepared(r, credited(episodes, whitened))


def fit(states: Tensor, returns: Tensor) -> Tensor:
    """`[d + 1]` float64 weights of the ridge regression of `[S]` returns on `[S, d]` states; the last is the bias."""
    x = _with_bias(states)
    penalty = RIDGE * torch.eye(x.shape[1], dtype=torch.float64)
    penalty[-1, -1] = 0.0
    found: Tensor = torch.linalg.solve(x.T @ x + penalty, x.T @ returns.double())
    return found


def values(states: Tensor, weight: Tensor) -> np.ndarray:
    """`[S]` values of the states, clipped to [0, 1]."""
    found: np.ndarray = (_with_bias(states) @ weight).clamp(0.0, 1.0).numpy()
    return found


def explained_variance(guess: np.ndarray, returns: np.ndarray) -> float:
    """1 - Var(returns - values) / Var(returns); 0 if all returns are equal."""
    spread = float(np.var(returns))
    return 1.0 - float(np.var(returns - guess)) / spread if spread > 0 else 0.0


def _with_bias(states: Tensor) -> Tensor:
    return torch.cat([states.double(), torch.ones(len(states), 1, dtype=torch.float64)], dim=1)


def _head(r: Round[OnPolicy]) -> Tensor:
    """The value head fitted in the previous round."""
    file, name = _kept(r, r.number - 1)
    broken = flaw(file, (r.store.note(name) or {}).get("files", {"": "0:"}))
    if broken is not None:
        raise StoreError(
            f"{file} must be the value head of round {r.number - 1}; {broken}: restore a copy, or delete "
            f"{file.with_name(f'{r.name}.states')} to learn the rounds again"
        )
    weight: Tensor = load_file(file)["weight"]
    return weight


def _kept(r: Round[OnPolicy], number: int) -> tuple[Path, str]:
    """File of the value head fitted in a round, and name of the note with its seal."""
    file = r.store.path / "checkpoints" / f"{r.name}.value-round{number}.safetensors"
    return file, f"{r.name}/round{number}/value"


RECIPE = Recipe("ppo", RECIPES["ppo"], collect_groups, credit, policy_gradient.policy_gradient())
