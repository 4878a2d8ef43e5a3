"""PPO: a value head on the policy's hidden state before each action, generalized advantages, PPO's clip per token.

Source: Schulman et al. 2017, arXiv:1707.06347. For language-model agents: Chen et al. 2025, arXiv:2502.01600,
appendix C.5: no value gradient into the policy, values in [0, 1], discount 1, lambda 1 (smaller values diverged there).
The head is trained in each step beside the policy (`learn.value_head`). With `policy_gradient.values` ridge, which is
ours, it is fitted to each round's returns by ridge regression, after it has given that round's values, so it never
values episodes that it was fitted to; in the first round every value is the round's mean return. Ours: advantages are
whitened over the round; group, tasks, batch and rounds.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save
from torch import Tensor

from agentq.credit.advantages import gae, group_relative, reward_to_go
from agentq.credit.episodes import credited, step_columns, whole
from agentq.credit.samples import sample_of
from agentq.errors import StoreError
from agentq.learn.features import features
from agentq.learn.value_head import HEAD, beside, with_bias
from agentq.recipes import policy_gradient
from agentq.recipes.recipe import Recipe, Round, collect_groups
from agentq.recipes.settings import RECIPES, Ppo
from agentq.store.durable import flaw, seal, write_whole
from agentq.types import CreditedTrajectory

RIDGE = 1.0


def credit(r: Round[Ppo]) -> list[CreditedTrajectory]:
    """Advantages by the value head at the round's start, and what the head learns from. A ridge head is fitted here."""
    episodes = whole(r.store.trajectories(r.stage))
    if not episodes:
        return []
    columns = step_columns(episodes)
    states, _ = features(r.learner, [sample_of(step.proposal) for t in episodes for step in t.steps])
    to_go = reward_to_go(columns.reward, columns.trajectory)
    trained = r.settings.policy_gradient.values == "head"
    if trained or r.number > 1:
        old = raw_values(states, r.learner.heads[HEAD].detach().cpu() if trained else _ridge(r))
    else:
        old = np.full(len(to_go), columns.returns.mean())
    guess = old.clip(0.0, 1.0)
    advantages = gae(columns.reward, guess, columns.trajectory, discount=1.0, gae_lambda=1.0)
    r.store.log(f"{r.name}/value", r.number, explained_variance=explained_variance(guess, to_go))
    if not trained:
        kept, name = _kept(r, r.number)
        write_whole(kept, save({"weight": fit(states, torch.from_numpy(to_go))}))
        r.store.set_note(name, {"files": seal(kept)})
    whitened = group_relative(advantages, np.zeros(len(advantages)), ddof=1)
    targets = np.stack([to_go, old], axis=1) if trained else None
    return policy_gradient.prepared(r, credited(episodes, whitened, values=targets))


def fit(states: Tensor, returns: Tensor) -> Tensor:
    """`[d + 1]` float64 weights of the ridge regression of `[S]` returns on `[S, d]` states; the last is the bias."""
    x = with_bias(states)
    penalty = RIDGE * torch.eye(x.shape[1], dtype=torch.float64)
    penalty[-1, -1] = 0.0
    found: Tensor = torch.linalg.solve(x.T @ x + penalty, x.T @ returns.double())
    return found


def raw_values(states: Tensor, weight: Tensor) -> np.ndarray:
    """`[S]` float64 values of the states, not clipped."""
    found: np.ndarray = (with_bias(states) @ weight.double()).numpy()
    return found


def explained_variance(guess: np.ndarray, returns: np.ndarray) -> float:
    """1 - Var(returns - values) / Var(returns); 0 if all returns are equal."""
    spread = float(np.var(returns))
    return 1.0 - float(np.var(returns - guess)) / spread if spread > 0 else 0.0


def _ridge(r: Round[Ppo]) -> Tensor:
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


def _kept(r: Round[Ppo], number: int) -> tuple[Path, str]:
    """File of the value head fitted in a round, and name of the note with its seal."""
    file = r.store.path / "checkpoints" / f"{r.name}.value-round{number}.safetensors"
    return file, f"{r.name}/round{number}/value"


RECIPE = Recipe("ppo", RECIPES["ppo"], collect_groups, credit, policy_gradient.policy_gradient(beside=beside))
