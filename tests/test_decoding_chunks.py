"""Branches of many rows in one step, which the core computes in several chunks."""

from __future__ import annotations

import numpy as np
import torch

from agentq.policies import llama
from agentq.policies.columns import Growth, SharedColumns
from agentq.policies.prefix import PrefixCache
from agentq.policies.trial import plain_logits
from tests.test_small_llama import SHAPES, model_of


@torch.inference_mode()
def test_a_row_of_branches_is_computed_in_one_chunk() -> None:
    model = model_of(*SHAPES[0])
    columns = SharedColumns(model, PrefixCache(0))
    assert isinstance(columns.llama, llama.SmallLlama)
    prompts = [np.arange(1 + i, 5 + i, dtype=np.int32) for i in range(40)]
    rows = [columns.begin(prompt) for prompt in prompts]
    columns.forward([Growth(row) for row in rows])
    tokens = list(range(60, 67))  # 40 times 7 are 280: the token after the first chunk is in the middle of a row
    found = columns.forward([Growth(row, tokens, [0] * 7) for row in rows])
    want = torch.stack([plain_logits(model, np.append(prompt, t))[-1] for prompt in prompts for t in tokens])
    torch.testing.assert_close(found, want, atol=2e-5, rtol=2e-5)
