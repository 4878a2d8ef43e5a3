"""What the model knows at an action, as vectors: for heads that are trained beside it, with no gradient into it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from agentq.learn.adapters import base_of
from agentq.learn.attention import tree_attention_of
from agentq.learn.batch import plan_step
from agentq.learn.learner import Learner
from agentq.learn.logps import predictor_states
from agentq.types import Sample


def features(learner: Learner, samples: Sequence[Sample]) -> tuple[Tensor, Tensor]:
    """(before, after), both `[N, d]` float32 on the CPU: last hidden states under the present weights.

    `before`: at the prompt's last token, before the action: what a value function reads. `after`: at the action's last
    token but one, its end token being the last: what a discriminator of actions reads.
    """
    size = base_of(learner.model).config.hidden_size
    before, after = torch.zeros(len(samples), size), torch.zeros(len(samples), size)
    items = [(sample,) for sample in samples]
    with torch.no_grad(), tree_attention_of(base_of(learner.model), enabled=learner.packed):
        limit, packed = learner.max_tokens, learner.packed
        for part in plan_step(items, max_tokens=limit, packed=packed, device=learner.device) if items else []:
            last = part.action_mask.sum(dim=1) - 1
            for batch in part.batches:
                states = predictor_states(base_of(learner.model), batch).float()
                for found, wanted in ((before, torch.zeros_like(last)), (after, last)):
                    at = torch.nonzero(batch.columns == wanted[batch.samples])[:, 0]
                    of_row = dict(zip(batch.samples[at].tolist(), batch.predicted_by[at].tolist(), strict=True))
                    for i, (row,) in zip(part.items, part.samples, strict=True):
                        if row in of_row:
                            found[i] = states[of_row[row]].cpu()
    return before, after
