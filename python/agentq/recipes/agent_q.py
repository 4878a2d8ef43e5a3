"""Agent Q: node-level DPO on the trees of a search, reference = the recorded behaviour log-probabilities.

Source: Putta et al. 2024, arXiv:2408.07199, eq. 5 (loss), eq. 10 (pairs). Ours: the actions on the trees' paths to
success are replayed beside the pairs (`train.sft_weight`). A pair is right for the policy that made it; pairs alone
drive actions out that other paths to success need, and what the policy no longer proposes no search finds again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from agentq.config import Config
from agentq.credit.pairs import node_pairs, tree_success_samples
from agentq.learn.learner import Learner, Metrics
from agentq.recipes.recipe import Recipe, Round, search_trees
from agentq.store.run import RunStore
from agentq.types import PreferencePair, Sample


def items(store: RunStore, stage: str, config: Config) -> list[PreferencePair | Sample]:
    """Pairs of siblings in the stage's trees whose blended values are `pairs.threshold` apart; actions to replay."""
    p = config.pairs
    found: list[PreferencePair | Sample] = []
    for tree in store.trees(stage):
        found += node_pairs(
            tree,
            alpha=p.alpha,
            threshold=p.threshold,
            min_visits=p.min_visits,
            max_pairs_per_node=p.max_pairs_per_node,
        )
        if config.train.sft_weight:
            found += tree_success_samples(tree)
    return found


def step(learner: Learner, batch: list[PreferencePair | Sample], config: Config) -> Metrics:
    """One step down the mean loss of the batch."""
    pairs = [item for item in batch if isinstance(item, PreferencePair)]
    replay = [item for item in batch if isinstance(item, Sample)]
    return learner.step_dpo(pairs, replay, beta=config.train.beta, sft_weight=config.train.sft_weight)


def with_learners_reference(r: Round, found: Sequence[PreferencePair | Sample]) -> list[PreferencePair | Sample]:
    """The items, their reference computed by the learner for the round's first weights: the loss starts at ln 2.

    The sampler's, where all of it is known, stays where these agree.
    """
    pairs = [item for item in found if isinstance(item, PreferencePair)]
    if r.agreed and all(np.isfinite(s.logps).all() for p in pairs for s in (*p.chosen, *p.rejected)):
        return list(found)
    again = iter(r.learner.recompute_reference(pairs))
    return [next(again) if isinstance(item, PreferencePair) else item for item in found]


RECIPE = Recipe("agent_q", search_trees, lambda r: with_learners_reference(r, items(r.store, r.stage, r.config)), step)
