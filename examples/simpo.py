"""A loss of your own in one file: that of SimPO (Meng et al. 2024, arXiv:2405.14734) on Agent Q's pairs.

    agentq train examples/simpo.py --env booking --out runs/simpo

SimPO needs no reference policy. With the mean log-probability of an action's tokens, the loss of a pair is

    -log sigmoid(beta * (mean log pi(chosen) - mean log pi(rejected)) - margin)

As in agentq's Agent Q, the good actions are also imitated: `- sft_weight * mean log pi`.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch.nn.functional import softplus

from agentq.config import Dpo
from agentq.credit.pairs import node_pairs
from agentq.credit.samples import tree_success_samples
from agentq.learn.batch import Part
from agentq.learn.learner import Learner, Metrics
from agentq.learn.losses import sequence_logps
from agentq.recipes import agent_q
from agentq.recipes.recipe import Recipe, Round
from agentq.recipes.settings import AgentQ
from agentq.types import PreferencePair, Sample


class Loss(Dpo):
    """The section `train`: Agent Q's, with another default and a new setting."""

    beta: float = Field(
        default=2.0, gt=0, description="Factor of the difference between the two actions' mean log-probabilities."
    )
    margin: float = Field(default=0.5, ge=0, description="Difference to aim for, after multiplication by beta.")


class SimPO(AgentQ):
    """The recipe's settings. `agentq settings examples/simpo.py` lists them."""

    train: Loss = Loss()


def credit(r: Round[SimPO]) -> list[PreferencePair | Sample]:
    """The sibling pairs of the round's trees, and the actions on their paths to success."""
    found: list[PreferencePair | Sample] = []
    for tree in r.store.trees(r.stage):  # one at a time: a tree holds every page
        found += node_pairs(tree, **agent_q.pairing(r.settings))
        if r.settings.train.sft_weight:  # with weight 0 they would only lower the mean
            found += tree_success_samples(tree)
    return found


def loss(learner: Learner, batch: list[PreferencePair | Sample], settings: SimPO) -> Metrics:
    """One optimiser step. `update` divides the batch into parts and adds up what `of_part` returns for each."""
    train = settings.train

    def of_part(part: Part, logps: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        mean = sequence_logps(logps, part.action_mask) / part.action_mask.sum(-1)  # [S], one per action
        total, right = torch.zeros_like(mean).sum(), torch.zeros_like(mean).sum()
        for good, *bad in part.samples:
            total = total - train.sft_weight * mean[good]
            for other in bad:
                total = total + softplus(train.margin - train.beta * (mean[good] - mean[other]))
                right += mean[good] > mean[other]
        return total / len(batch), {"right": right / len(batch)}  # both by the size of the whole batch

    items = [(item,) if isinstance(item, Sample) else (*item.chosen, *item.rejected) for item in batch]
    return learner.update(items, of_part)


RECIPE = Recipe("simpo", SimPO, agent_q.collect, credit, loss)
