"""The gradient of one optimiser step, part by part.

In one process, if memory does not suffice for a forward and backward pass, the step begins again with half as many
tokens at once, and so do all later ones. The result does not depend on the number.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from agentq.errors import says_no_memory
from agentq.learn.batch import LossFn, least_tokens
from agentq.learn.logps import backward
from agentq.learn.trie_attention import tree_attention_of
from agentq.policies.adapters import base_of
from agentq.policies.placement import release
from agentq.types import Sample

if TYPE_CHECKING:
    from agentq.learn.learner import Learner, Metrics


def gradient(learner: Learner, items: Sequence[Sequence[Sample]], loss_fn: LossFn) -> Metrics:
    """Give the trained weights this rank's gradient; returns its share of the step's metrics."""
    while True:
        try:
            return _gradient(learner, items, loss_fn)
        except Exception as error:
            least, n = least_tokens(items), learner.max_tokens
            if not says_no_memory(error) or learner.ranks.size > 1 or n <= least:
                raise
            learner.max_tokens = max(n // 2, least)
        # after the block, which holds what the pass had in memory
        release(learner.device)
        told = f"a step must have memory for {n} tokens at once; it has not, and goes on with {learner.max_tokens}"
        print(f"agentq: {told}", file=sys.stderr)


def _gradient(learner: Learner, items: Sequence[Sequence[Sample]], loss_fn: LossFn) -> Metrics:
    learner.optimizer.zero_grad(set_to_none=True)
    own: Metrics = {"loss": 0.0, "num_tokens": 0.0}
    with tree_attention_of(base_of(learner.model), enabled=learner.packed):
        for part in learner.plan(items):
            loss, metrics = backward(part, loss_fn, learner.logps_of)
            num_tokens = sum(batch.num_tokens for batch in part.batches)
            add(own, {"loss": loss, "num_tokens": num_tokens, **metrics})
    return own


def add(totals: Metrics, metrics: Mapping[str, Tensor | float]) -> None:
    """Add metrics of a part, or of a rank, to those of others."""
    for name, value in metrics.items():
        totals[name] = totals.get(name, 0.0) + float(value)
