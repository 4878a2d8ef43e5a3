"""Packed batches against the plain computation: log-probabilities and gradients, however a step is cut."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from agentq.errors import ModelError
from agentq.learn import logps as logps_module
from agentq.learn.batch import plan_step
from agentq.learn.logps import action_logps, can_pack, check_head, padded
from agentq.types import Sample
from tests.learn_factory import (
    node_pairs,
    plain_logps,
    random_sample,
    sample,
    tiny_gpt2,
    tiny_llama,
    tiny_neox,
    tiny_qwen,
    trajectory_pairs,
)


def planned_logps(model: Any, samples: list[Sample], **plan: Any) -> list[torch.Tensor]:
    found: dict[int, torch.Tensor] = {}
    for part in plan_step([(s,) for s in samples], **plan):
        values = torch.stack([padded(part, b, action_logps(model, b)) for b in part.batches]).sum(dim=0)
        for i, (row,) in zip(part.items, part.samples, strict=True):
            found[i] = values[row, : int(part.action_mask[row].sum())]
    return [found[i] for i in range(len(samples))]


def shared_and_alone() -> list[Sample]:
    """Samples that share a prompt, whose prompt begins another, of one token, with the pad (and eos) id inside."""
    rng = np.random.default_rng(0)
    prompt = [5, 6, 7, 8, 9, 10]
    shared = [random_sample(rng, prompt) for _ in range(4)]
    edges = [sample([5, 6, 7], [8, 9]), sample(prompt, [1]), sample(prompt, [1, 2, 3]), sample([4], [3])]
    return [*shared, *edges, sample([3, 3, 0, 3], [3, 0, 3]), *(random_sample(rng) for _ in range(4))]


@pytest.mark.parametrize("make", [tiny_llama, tiny_qwen])
@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("max_tokens", [1, 40, 4096])
def test_action_logps_equal_the_plain_computation(
    make: Callable[[], Any], packed: bool, max_tokens: int
) -> None:
    model, samples = make(), shared_and_alone()
    with torch.no_grad():
        found = planned_logps(model, samples, max_tokens=max_tokens, packed=packed)
        for s, values in zip(samples, found, strict=True):
            torch.testing.assert_close(values, plain_logps(model, s), atol=1e-5, rtol=1e-5)


def test_action_logps_of_chunks_equal_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    model, samples = tiny_llama().double(), shared_and_alone()
    gradients = []
    for elements in (1 << 25, 5 * 64):
        monkeypatch.setattr(logps_module, "CHUNK_ELEMENTS", elements)
        model.zero_grad()
        torch.cat(planned_logps(model, samples)).sum().backward()
        gradients.append([p.grad.clone() for p in model.parameters()])
    torch.testing.assert_close(gradients[0], gradients[1], atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("make", [tiny_gpt2, tiny_neox])
def test_packed_gradient_equals_one_sequence_at_a_time(make: Callable[[], Any]) -> None:
    # Norms that stay in float64 (Llama's round to float32). GPT-2 has learned positions, NeoX rotary ones.
    model, samples = make().double(), shared_and_alone()
    weights = torch.linspace(-1, 2, len(samples), dtype=torch.float64)
    torch.stack([plain_logps(model, s).sum() for s in samples]).mul(weights).sum().backward()
    expected = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    torch.stack([x.sum() for x in planned_logps(model, samples)]).mul(weights).sum().backward()
    for p, e in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(p.grad, e, atol=1e-9, rtol=1e-9)


def test_plan_step_forwards_equal_samples_and_shared_prompts_once() -> None:
    a, b = sample([1, 2, 3], [4, 5]), sample([1, 2, 3], [6, 7, 8])
    (part,) = plan_step([(a, b), (a, b), (b, a)])
    (batch,) = part.batches
    assert part.samples == ((0, 1), (0, 1), (1, 0))
    assert batch.input_ids.tolist() == [[1, 2, 3, 4, 6, 7]]  # the last token of an action predicts nothing
    assert batch.position_ids.tolist() == [[0, 1, 2, 3, 3, 4]]
    assert batch.predictors.tolist() == [2, 3, 2, 4, 5]
    assert batch.targets.tolist() == [4, 5, 6, 7, 8]
    assert batch.num_tokens == 6
    assert batch.attention_mask is not None
    visible = ["100000", "110000", "111000", "111100", "111010", "111011"]
    assert batch.attention_mask[0, 0].int().tolist() == [[int(c) for c in row] for row in visible]


def test_plan_step_needs_no_mask_where_no_prompt_is_shared() -> None:
    rng = np.random.default_rng(0)
    for part in plan_step([(random_sample(rng),) for _ in range(6)]):
        assert all(batch.attention_mask is None for batch in part.batches)


@pytest.mark.parametrize("max_tokens", [30, 64, 200, 10_000])
def test_plan_step_keeps_the_token_budget_and_every_item(max_tokens: int) -> None:
    pairs = node_pairs(1, 8) + trajectory_pairs(2, 3)
    items = [(*p.chosen, *p.rejected) for p in pairs]
    parts = plan_step(items, max_tokens=max_tokens)
    assert sorted(i for part in parts for i in part.items) == list(range(len(items)))
    for part in parts:
        for batch in part.batches:
            # Only what cannot be cut may exceed the budget: one action after its prompt.
            assert batch.input_ids.numel() <= max_tokens or int((batch.columns == 0).sum()) == 1
        for i, rows in zip(part.items, part.samples, strict=True):
            assert [len(s.token_ids) for s in items[i]] == part.action_mask.sum(dim=1)[list(rows)].tolist()


def test_plan_step_forwards_twice_only_what_hangs_together() -> None:
    # Pairs of different nodes are parts of one batch each; one trajectory pair over the budget is one part of several.
    nodes = plan_step([(*p.chosen, *p.rejected) for p in node_pairs(1, 8)], max_tokens=120)
    assert len(nodes) > 1
    assert all(len(part.batches) == 1 for part in nodes)
    (trajectory,) = plan_step([(*p.chosen, *p.rejected) for p in trajectory_pairs(2, 3)], max_tokens=40)
    assert len(trajectory.batches) > 1


@pytest.mark.parametrize(("prompt", "tokens"), [([], [1]), ([1], [])])
def test_plan_step_refuses_empty_prompts_and_actions(prompt: list[int], tokens: list[int]) -> None:
    with pytest.raises(ValueError, match="at least one prompt and one action token"):
        plan_step([(sample(prompt, tokens),)])


def test_can_pack_only_where_the_mask_is_taken_and_attention_is_full() -> None:
    model = tiny_llama()
    assert can_pack(model)
    model.config._attn_implementation = "eager"
    assert not can_pack(model)
    model = tiny_qwen()
    assert can_pack(model)
    model.config.layer_types = ["full_attention", "sliding_attention"]
    assert not can_pack(model)


def test_check_head_refuses_logits_that_are_not_the_heads() -> None:
    model = tiny_llama()
    check_head(model)
    model.lm_head.register_forward_hook(lambda *_: None)  # a hook that changes nothing is no reason
    check_head(model)
    forward = model.forward

    def scaled(*args: Any, **kwargs: Any) -> Any:
        out = forward(*args, **kwargs)
        out.logits = out.logits * 0.5
        return out

    model.forward = scaled
    with pytest.raises(ModelError, match="logits must be its output embedding"):
        check_head(model)
