"""Agent Q: node-level DPO on the trees of a search, reference = the recorded behaviour log-probabilities.

Source: Putta et al. 2024, arXiv:2408.07199, eq. 5 (loss), eq. 10 (pairs). Ours: the actions on the trees' paths to
success are trained on with an SFT loss beside the pairs (`train.sft_weight`). Pairs alone suppress actions that other
paths to success need, and a search cannot find again what the policy no longer proposes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from agentq.credit.pairs import node_pairs, tree_success_samples
from agentq.learn.learner import Learner, Metrics
from agentq.recipes.agreed import agrees
from agentq.recipes.pipeline import search_settings
from agentq.recipes.recipe import Recipe, Round
from agentq.recipes.settings import AgentQ, OutcomeDpo, StepAgentImplicit
from agentq.searching.collect import Work, attempts, trees
from agentq.store.run import RunStore
from agentq.types import PreferencePair, Sample


def collect(r: Round[AgentQ]) -> None:
    """Collect one search tree per task of the round. The critic ranks its proposals."""
    p, s = r.pipeline, r.settings.search
    settings = search_settings(s, s.num_iterations, r.settings.run.seed)

    def begin() -> Work:
        critic = p.critic(s.critic, r.settings.critic.method)  # first, so its engine stays loaded
        return trees(p.make_env, p.policy(r.policy), critic, settings, kept_in=(r.store, r.stage))

    p.collect(r.stage, attempts(r.tasks()), begin, unit="trees", sessions=s.leaves_in_flight)


def items(store: RunStore, stage: str, settings: AgentQ) -> list[PreferencePair | Sample]:
    """Sibling pairs whose blended values differ by `pairs.threshold` or more, and actions to replay."""
    p = settings.pairs
    found: list[PreferencePair | Sample] = []
    for tree in store.trees(stage):
        found += node_pairs(
            tree,
            alpha=p.alpha,
            threshold=p.threshold,
            min_visits=p.min_visits,
            max_pairs_per_node=p.max_pairs_per_node,
        )
        if settings.train.sft_weight:
            found += tree_success_samples(tree)
    return found


def credit(r: Round[AgentQ]) -> list[PreferencePair | Sample]:
    """The items of the round's trees."""
    return with_learners_reference(r, items(r.store, r.stage, r.settings))


def with_learners_reference(
    r: Round[AgentQ | OutcomeDpo | StepAgentImplicit], found: Sequence[PreferencePair | Sample]
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


def loss(
    learner: Learner, batch: list[PreferencePair | Sample], settings: AgentQ | OutcomeDpo | StepAgentImplicit
) -> Metrics:
    """One optimiser step on the mean loss of the batch: DPO for the pairs, SFT for the actions to replay."""
    pairs = [item for item in batch if isinstance(item, PreferencePair)]
    replay = [item for item in batch if isinstance(item, Sample)]
    train = settings.train
    return learner.step_dpo(pairs, replay, beta=train.beta, sft_weight=train.sft_weight)


RECIPE = Recipe("agent_q", AgentQ, collect, credit, loss)
