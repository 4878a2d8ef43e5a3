"""Agent Q: node-level DPO on the trees of a search, reference = the recorded behaviour log-probabilities.

Source: Putta et al. 2024, arXiv:2408.07199, eq. 5 (loss), eq. 10 (pairs). Ours: the actions on the trees' paths to
success are trained on with an SFT loss beside the pairs (`train.sft_weight`). Pairs alone suppress actions that other
paths to success need, and a search cannot find again what the policy no longer proposes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from agentq.credit.pairs import node_pairs
from agentq.credit.samples import tree_success_samples
from agentq.recipes.pipeline import search_settings
from agentq.recipes.recipe import Recipe, Round, agrees
from agentq.recipes.resources import searches
from agentq.recipes.settings import AgentQ, Preferring
from agentq.searching.collect import attempts
from agentq.store.run import TREE
from agentq.types import PreferencePair, Sample

if TYPE_CHECKING:
    from agentq.learn.learner import Learner, Metrics


def collect(r: Round[AgentQ]) -> None:
    """Collect one search tree per task of the round. The critic ranks its proposals.

    The stage's note tells by which settings pairs are taken.
    """
    s = r.settings.search
    settings = search_settings(s, s.num_iterations, r.settings.run.seed)
    settings = replace(settings, max_unreadable=r.settings.run.max_unreadable)
    job = partial(searches, policy=r.policy, critic=r.settings.critic, settings=settings, stage=r.stage)
    r.pipeline.collect(r.stage, attempts(r.tasks()), job, kind=TREE, sessions=s.leaves_in_flight)
    r.store.set_note(r.stage, {**(r.store.note(r.stage) or {}), "pairs": pairing(r.settings)})


def credit(r: Round[AgentQ]) -> list[PreferencePair | Sample]:
    """Sibling pairs whose blended values differ by `pairs.threshold` or more, and actions to replay."""
    found: list[PreferencePair | Sample] = []
    for tree in r.store.trees(r.stage):
        found += node_pairs(tree, **pairing(r.settings))
        if r.settings.train.sft_weight:
            found += tree_success_samples(tree)
    return with_learners_reference(r, found)


def pairing(settings: AgentQ) -> dict[str, Any]:
    """The arguments of `node_pairs`. Without a critic, values are the search's alone."""
    p = settings.pairs
    return {
        "alpha": p.alpha if settings.critic.model != "none" else 1.0,
        "threshold": p.threshold,
        "min_visits": p.min_visits,
        "max_pairs_per_node": p.max_pairs_per_node,
    }


def with_learners_reference(
    r: Round[Preferring], found: Sequence[PreferencePair | Sample]
) -> list[PreferencePair | Sample]:
    """The items with reference log-probabilities by the learner at the round's first weights. The loss starts at ln 2.

    The sampler's log-probabilities are reused if all are known and they agree with the learner's.
    """
    pairs = [item for item in found if isinstance(item, PreferencePair)]
    known = all(np.isfinite(s.logps).all() for p in pairs for s in (*p.chosen, *p.rejected))
    if agrees(r, r.settings.train.logp_tolerance) and known:
        return list(found)
    again = iter(r.learner.recompute_reference(pairs))
    return [next(again) if isinstance(item, PreferencePair) else item for item in found]


def loss(learner: Learner, batch: list[PreferencePair | Sample], settings: Preferring) -> Metrics:
    """One optimiser step on the mean loss of the batch: DPO for the pairs, SFT for the actions to replay."""
    pairs = [item for item in batch if isinstance(item, PreferencePair)]
    replay = [item for item in batch if isinstance(item, Sample)]
    train = settings.train
    return learner.step_dpo(pairs, replay, beta=train.beta, sft_weight=train.sft_weight)


RECIPE = Recipe("agent_q", AgentQ, collect, credit, loss)
