"""Hidden states of the model at an action, for heads that are trained beside it; no gradient flows into it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from agentq.learn.batch import MicroBatch
from agentq.learn.learner import Learner
from agentq.learn.logps import predictor_states
from agentq.learn.trie_attention import tree_attention_of
from agentq.policies.adapters import base_of
from agentq.types import Sample


def features(learner: Learner, samples: Sequence[Sample]) -> tuple[Tensor, Tensor]:
    """(before, after), both `[N, d]` float32 on the CPU: last hidden states under the current weights.

    `before`: at the prompt's last token, for value functions. `after`: at the last token before the action's end
    token, for discriminators of actions.
    """
    size = base_of(learner.model).config.get_text_config().hidden_size
    own: dict[int, list[Tensor]] = {}
    with torch.no_grad(), tree_attention_of(base_of(learner.model), enabled=learner.packed):
        for part in learner.plan([(sample,) for sample in samples]) if samples else []:
            own |= {i: [torch.zeros(size)] * 2 for i in part.items}
            last = part.action_mask.sum(dim=1) - 1
            for batch in part.batches:
                states = learner.placed.run(_states, batch, bf16=learner.bf16)
                for which, wanted in enumerate((torch.zeros_like(last), last)):
                    at = torch.nonzero(batch.columns == wanted[batch.samples])[:, 0]
                    of_row = dict(zip(batch.samples[at].tolist(), batch.predicted_by[at].tolist(), strict=True))
                    for i, (row,) in part.members:
                        if row in of_row:
                            own[i][which] = states[of_row[row]].cpu()
    found = {i: states for of_rank in learner.ranks.gather(own) for i, states in of_rank.items()}
    both = torch.stack([torch.stack(found[i]) for i in range(len(samples))]) if samples else torch.zeros(0, 2, size)
    return both[:, 0], both[:, 1]


def _states(model: Any, batch: MicroBatch, *, bf16: bool) -> Tensor:
    with torch.autocast(batch.input_ids.device.type, torch.bfloat16, enabled=bf16):
        return predictor_states(base_of(model), batch).float()
