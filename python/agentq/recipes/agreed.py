"""Whether a sampler's log-probabilities may replace the learner's, probed in each round."""

from __future__ import annotations

import numpy as np

from agentq.credit.pairs import sample_of
from agentq.policies.agreement import agreement
from agentq.recipes.recipe import Round
from agentq.recipes.settings import Training
from agentq.types import Proposal

PROBE = 32  # number of sampled actions compared per round


def agrees(r: Round[Training], tolerance: float) -> bool:
    """Whether a round's sampler and the learner, at the same weights, agree within `tolerance` on average.

    The difference is logged. False if the round has no sampled actions to compare.
    """
    sampled = [p for p in _proposals(r) if len(p.token_ids) and np.isfinite(p.logps).all()]
    if not sampled:
        return False
    probe = [sample_of(sampled[i]) for i in np.linspace(0, len(sampled) - 1, min(PROBE, len(sampled))).astype(int)]
    found = agreement(probe, r.learner.recompute_logps)
    agreed = found.mean <= tolerance
    figures = {"logp_difference/mean": found.mean, "logp_difference/max": found.max, "num_tokens": found.num_tokens}
    r.store.log(f"{r.name}/agreement", r.number, **figures, recomputed=float(not agreed))
    return agreed


def _proposals(r: Round[Training]) -> list[Proposal]:
    """The proposals in the round's episodes and trees."""
    episodes = [step.proposal for t in r.store.trajectories(r.stage) for step in t.steps]
    return episodes + [p for tree in r.store.trees(r.stage) for p in tree.proposal if p is not None]
