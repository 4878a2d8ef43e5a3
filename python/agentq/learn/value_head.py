"""A value head: linear in the policy's hidden state before an action, trained beside the policy by the clipped loss.

    V(h) = w . x(h) + b,    x(h): last hidden state at the prompt's last token

No gradient flows through x into the policy, as in Chen et al. 2025, arXiv:2502.01600, appendix C.5. Ours: the head is
linear (theirs: three layers) and begins at 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from agentq.learn.batch import Part
from agentq.learn.features import features
from agentq.learn.learner import Learner
from agentq.learn.losses import value_loss
from agentq.policies.adapters import base_of
from agentq.types import CreditedTrajectory

HEAD = "value_head"
CLIP = 0.2  # of the change of a value in a round, as in the code of PPO2


def new_head(learner: Learner) -> Tensor:
    """`[d + 1]` float32 zeros: weights and bias of a head for the learner's model."""
    return torch.zeros(base_of(learner.model).config.get_text_config().hidden_size + 1)


def with_bias(states: Tensor) -> Tensor:
    """`[S, d + 1]` float64: the states and a column of ones."""
    return torch.cat([states.double(), torch.ones(len(states), 1, dtype=torch.float64, device=states.device)], dim=1)


def beside(
    learner: Learner, batch: Sequence[CreditedTrajectory]
) -> Callable[[Part], tuple[Tensor, Mapping[str, Tensor]]]:
    """The value loss of a part of a step, the mean over all turns of the step, with the metric `value_loss`.

        mean(1/2 * max((V - G)^2, (clip(V, V_old - 0.2, V_old + 0.2) - G)^2))

    G and V_old are `CreditedTrajectory.values`. The states are those of the weights before the step.
    """
    states, _ = features(learner, [sample for item in batch for sample in item.samples])
    x = with_bias(states.to(learner.device))
    first = [0]
    for item in batch:
        first.append(first[-1] + len(item.samples))
    told = torch.cat([torch.from_numpy(item.values) for item in batch if item.values is not None]).to(x)

    def loss(part: Part) -> tuple[Tensor, Mapping[str, Tensor]]:
        at = [turn for i in part.items for turn in range(first[i], first[i + 1])]
        returns, old = told[at, :1], told[at, 1:]
        values = (x[at] @ learner.heads[HEAD].double())[:, None]
        found = value_loss(values, returns, torch.ones_like(values), old_values=old, clip=CLIP, normalizer=len(x))
        return found, {"value_loss": found.detach()}

    return loss
