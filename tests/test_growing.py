"""Rows that grow past their room, of a model none of whose norms is like another."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from agentq.policies import columns, llama
from agentq.policies.prefix import PrefixCache
from agentq.policies.trial import plain_logits
from tests.test_small_llama import SHAPES, model_of


@pytest.mark.parametrize("most", [llama.SMALL, 0], ids=["core", "torch"])
@torch.inference_mode()
def test_a_row_that_outgrows_its_room_has_the_logits_of_a_plain_forward_pass(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llama, "SMALL", most)
    monkeypatch.setattr(columns, "ROOM", 2)
    model = model_of(*SHAPES[1])
    for name, weight in model.named_parameters():
        if "norm" in name:
            weight.copy_(0.5 + torch.rand_like(weight))
    shared, prompt = columns.SharedColumns(model, PrefixCache(0)), np.arange(3, 33, dtype=np.int32)
    row = shared.begin(prompt)
    shared.forward([columns.Growth(row)])
    branches = [prompt]
    for tokens, parents in (([1, 2], [0, 0]), ([3, 4], [0, 1]), ([5, 6], [1, 0]), ([7, 8], [0, 1])):
        branches = [np.append(branches[parent], token) for token, parent in zip(tokens, parents, strict=True)]
        found = shared.forward([columns.Growth(row, tokens, parents)])
        want = torch.stack([plain_logits(model, branch)[-1] for branch in branches])
        torch.testing.assert_close(found, want, atol=2e-5, rtol=2e-5)
