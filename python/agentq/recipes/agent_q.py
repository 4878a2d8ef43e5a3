"""Agent Q: node-level DPO on the trees of a search, reference = the recorded behaviour log-probabilities.

Source: Putta et al. 2024, arXiv:2408.07199, eq. 5 (loss), eq. 10 (pairs).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentq.config import Config
from agentq.credit.pairs import node_pairs
from agentq.store.run import RunStore
from agentq.types import PreferencePair

if TYPE_CHECKING:
    from agentq.learn.learner import Learner, Metrics


def items(store: RunStore, stage: str, config: Config) -> list[PreferencePair]:
    """Pairs of siblings in the stage's trees whose blended values are `pairs.threshold` apart."""
    p = config.pairs
    return [
        pair
        for tree in store.trees(stage)
        for pair in node_pairs(
            tree,
            alpha=p.alpha,
            threshold=p.threshold,
            min_visits=p.min_visits,
            max_pairs_per_node=p.max_pairs_per_node,
        )
    ]


def step(learner: Learner, batch: list[PreferencePair], config: Config) -> Metrics:
    """One step down the mean DPO loss of the batch."""
    return learner.step_dpo(batch, beta=config.train.beta, sft_weight=config.train.sft_weight)
