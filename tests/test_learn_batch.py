"""Packed batches against the plain computation: log-probabilities and gradients, however a step is cut."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from transformers import Gemma2Config, Gemma2ForCausalLM, MptConfig, MptForCausalLM

from agentq.errors import ModelError
from agentq.learn import logps as logps_module
from agentq.learn.batch import plan_step
from agentq.learn.logps import action_logps, can_pack, check_forward, padded
from agentq.learn.trie_attention import tree_attention_of
from agentq.policies.adapters import base_of, with_adapters
from agentq.types import Sample
from tests.learn_factory import (
    SIZES,
    agent_samples,
    exact,
    node_pairs,
    plain_logps,
    random_sample,
    sample,
    tiny_gpt2,
    tiny_llama,
    tiny_neox,
    tiny_qwen,
    tiny_windowed,
    trajectory_pairs,
)


def planned_logps(model: Any, samples: list[Sample], **plan: Any) -> list[torch.Tensor]:
    """By sample, as planned."""
    found: dict[int, torch.Tensor] = {}
    with tree_attention_of(base_of(model)) if plan.get("packed", True) else nullcontext():
        for part in plan_step([(s,) for s in samples], **plan):
            values = torch.stack([padded(part, b, action_logps(model, b)) for b in part.batches]).sum(dim=0)
            for i, (row,) in zip(part.items, part.samples, strict=True):
                found[i] = values[row, : int(part.action_mask[row].sum())]
    return [found[i] for i in range(len(samples))]


def awkward() -> list[Sample]:
    """Samples that share a prompt, begin one another, of one token, with the pad (and eos) id inside; one twice."""
    rng = np.random.default_rng(0)
    prompt = [5, 6, 7, 8, 9, 10]
    shared = [random_sample(rng, prompt) for _ in range(4)]
    edges = [sample([5, 6, 7], [8, 9]), sample(prompt, [1]), sample(prompt, [1, 2, 3]), sample([4], [3])]
    # One text cut at three places: as many samples, one path.
    edges += [sample([5, 6], [7, 8, 9]), sample([5], [6, 7, 8, 9]), sample(prompt, [1, 2, 4])]
    return [*shared, *edges, edges[2], sample([3, 3, 0, 3], [3, 0, 3]), *(random_sample(rng) for _ in range(4))]


def gradient(model: Any, values: list[torch.Tensor], weights: torch.Tensor) -> dict[str, torch.Tensor]:
    model.zero_grad()
    torch.stack([x.sum() for x in values]).mul(weights).sum().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def check_gradients(model: Any, samples: list[Sample], tolerance: float, **plan: Any) -> None:
    """Packed against one sequence at a time: relative error of the whole gradient and of each tensor."""
    weights = torch.linspace(-1, 2, len(samples), dtype=next(model.parameters()).dtype)
    want = gradient(model, [plain_logps(model, s) for s in samples], weights)
    found = gradient(model, planned_logps(model, samples, **plan), weights)
    assert want.keys() == found.keys()
    largest = max(float(g.norm()) for g in want.values())
    for name, grad in found.items():
        assert float((grad - want[name]).norm()) <= tolerance * max(float(want[name].norm()), 1e-3 * largest), name


@pytest.mark.parametrize("make", [tiny_llama, tiny_qwen])
@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("max_tokens", [1, 40, 4096])
def test_action_logps_equal_the_plain_computation(make: Callable[[], Any], packed: bool, max_tokens: int) -> None:
    model, samples = make(), awkward()
    with torch.no_grad():
        found = planned_logps(model, samples, max_tokens=max_tokens, packed=packed)
        for s, values in zip(samples, found, strict=True):
            torch.testing.assert_close(values, plain_logps(model, s), atol=1e-5, rtol=1e-5)


def test_action_logps_of_chunks_equal_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    model, samples = exact(tiny_llama()), awkward()
    gradients = []
    for elements in (1 << 25, 5 * 64):
        monkeypatch.setattr(logps_module, "CHUNK_ELEMENTS", elements)
        model.zero_grad()
        torch.cat(planned_logps(model, samples)).sum().backward()
        gradients.append([p.grad.clone() for p in model.parameters()])
    torch.testing.assert_close(gradients[0], gradients[1], atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("max_tokens", [1, 60, 4096])
@pytest.mark.parametrize("make", [tiny_gpt2, tiny_neox, tiny_llama, tiny_qwen])
def test_packed_gradient_equals_one_sequence_at_a_time(make: Callable[[], Any], max_tokens: int) -> None:
    check_gradients(exact(make()), awkward(), 1e-9, max_tokens=max_tokens)


@pytest.mark.parametrize("history", ["compact", "append"])
@pytest.mark.parametrize("data", ["path", "mcts"])
@pytest.mark.parametrize("make", [tiny_llama, tiny_qwen])
@pytest.mark.parametrize("lora_rank", [0, 2])
def test_packed_gradient_of_an_agents_samples(make: Callable[[], Any], history: str, data: str, lora_rank: int) -> None:
    model, samples = make(), agent_samples(history, data)
    if lora_rank:
        model = with_adapters(model, lora_rank, seed=0)
        torch.manual_seed(1)
        for name, p in model.named_parameters():
            if "lora_B" in name:  # 0 at first: the other factor would have no gradient
                torch.nn.init.normal_(p, std=0.3)
    check_gradients(model, samples, 1e-5)
    check_gradients(exact(model), samples, 1e-9)


def test_plan_step_forwards_equal_samples_and_shared_prompts_once() -> None:
    a, b = sample([1, 2, 3], [4, 5]), sample([1, 2, 3], [6, 7, 8])
    (part,) = plan_step([(a, b), (a, b), (b, a)])
    (batch,) = part.batches
    assert part.samples == ((0, 1), (0, 1), (1, 0))
    assert batch.input_ids.tolist() == [[1, 2, 3, 4, 6, 7]]  # the last token of an action predicts nothing
    assert batch.position_ids.tolist() == [[0, 1, 2, 3, 3, 4]]
    assert batch.predictors.tolist() == [2, 3, 4, 5]  # the prompt's last token predicts two
    assert batch.predicted_by.tolist() == [0, 0, 1, 2, 3]
    assert batch.targets.tolist() == [4, 6, 5, 7, 8]
    assert batch.samples.tolist() == [0, 1, 0, 1, 1]
    assert batch.columns.tolist() == [0, 0, 1, 1, 2]
    assert batch.num_tokens == 6


def test_plan_step_merges_a_conversation_that_is_only_appended_to() -> None:
    # Four turns as four samples, each prompt the one before with the action and a page: one sequence, no token twice,
    # and what the environment said is no target.
    prompt, samples = [10, 11], []
    for turn in range(4):
        action = [20 + turn, 30 + turn, 3]
        samples.append(sample(prompt, action))
        prompt = [*prompt, *action, 40 + turn, 50 + turn]
    (part,) = plan_step([tuple(samples)])
    (batch,) = part.batches
    assert batch.input_ids.tolist() == [[*samples[-1].prompt_ids.tolist(), 23, 33]]
    assert batch.num_tokens == 2 + 4 * 3 + 3 * 2 - 1
    assert batch.targets.tolist() == [t for s in samples for t in s.token_ids.tolist()]
    assert part.action_mask.sum() == 4 * 3
    assert batch.tree is not None
    assert batch.tree.cascade[1] == []  # plain causal attention


@pytest.mark.parametrize("max_tokens", [30, 64, 200, 10_000])
@pytest.mark.parametrize("packed", [True, False])
def test_plan_step_keeps_the_token_budget_and_every_item(max_tokens: int, packed: bool) -> None:
    pairs = node_pairs(1, 8) + trajectory_pairs(2, 3)
    items = [(*p.chosen, *p.rejected) for p in pairs]
    parts = plan_step(items, max_tokens=max_tokens, packed=packed)
    assert sorted(i for part in parts for i in part.items) == list(range(len(items)))
    longest = max(len(s.prompt_ids) + len(s.token_ids) - 1 for item in items for s in item)
    for part in parts:
        assert all(batch.input_ids.numel() <= max(max_tokens, longest * 5 // 4) for batch in part.batches)
        assert len(part.items) == 1 or len(part.batches) == 1
        for i, rows in zip(part.items, part.samples, strict=True):
            assert [len(s.token_ids) for s in items[i]] == part.action_mask.sum(dim=1)[list(rows)].tolist()
        predicted = sum(len(batch.targets) for batch in part.batches)
        assert predicted == int(part.action_mask.sum())


def test_plan_step_counts_the_padding_of_rows() -> None:
    # an episode of twenty short pages and one long page: in one batch, 21 rows of 1000 tokens
    short, long = [sample([turn], [1] * 30) for turn in range(20)], sample(list(range(60)) * 16, [1] * 41)
    (part,) = plan_step([(*short, long)], max_tokens=1600, packed=False)
    assert [tuple(batch.input_ids.shape) for batch in part.batches] == [(20, 30), (1, 1000)]


def test_plan_step_puts_what_has_much_in_common_together() -> None:
    # Four nodes of 10 + 3 * 2 fed tokens, three pairs each, in turns; a budget for two nodes.
    nodes = [[sample([n, *range(10, 19)], [20 + i, 1, 2]) for i in range(3)] for n in range(4)]
    items = [(node[i], node[j]) for i, j in ((0, 1), (0, 2), (1, 2)) for node in nodes]
    parts = plan_step(items, max_tokens=32)
    assert [part.batches[0].num_tokens for part in parts] == [32, 32]
    assert [sorted(part.items) for part in parts] == [[0, 1, 4, 5, 8, 9], [2, 3, 6, 7, 10, 11]]


def test_plan_step_cuts_between_conversations_rather_than_inside_one() -> None:
    task, episodes = list(range(10)), []
    for episode in range(3):
        turns = [*task, *range(10 + 90 * episode, 100 + 90 * episode)]  # 100 tokens, of which 10 are everyone's
        episodes += [sample(turns[:end], turns[end : end + 10]) for end in range(10, 100, 10)]
    parts = plan_step([(s,) for s in episodes], max_tokens=150)  # one and a half conversations
    assert [part.batches[0].num_tokens for part in parts] == [99, 99, 99]


def test_plan_step_forwards_twice_only_what_one_item_cannot_do_without() -> None:
    nodes = plan_step([(*p.chosen, *p.rejected) for p in node_pairs(1, 8)], max_tokens=120)
    assert len(nodes) > 1
    assert all(len(part.batches) == 1 for part in nodes)
    for part in plan_step([(*p.chosen, *p.rejected) for p in trajectory_pairs(2, 3)], max_tokens=40):
        assert len(part.batches) > 1


@pytest.mark.parametrize(("prompt", "tokens"), [([], [1]), ([1], [])])
def test_plan_step_refuses_empty_prompts_and_actions(prompt: list[int], tokens: list[int]) -> None:
    with pytest.raises(ValueError, match="at least one prompt and one action token"):
        plan_step([(sample(prompt, tokens),)])


def tiny_gemma() -> Any:
    """Half its layers see a window, and scores are capped."""
    return Gemma2ForCausalLM(Gemma2Config(**SIZES, head_dim=8, attn_implementation="eager")).eval()


def tiny_mpt() -> Any:
    """A bias by the distance in the row, not by position ids."""
    return MptForCausalLM(MptConfig(d_model=32, n_heads=4, n_layers=2, vocab_size=64, max_seq_len=64)).eval()


@pytest.mark.parametrize("make", [tiny_llama, tiny_qwen, tiny_gpt2, tiny_neox])
def test_can_pack_plain_attention_whatever_computes_it(make: Callable[[], Any]) -> None:
    model = make()
    assert can_pack(model)
    model.config._attn_implementation = "eager"
    assert can_pack(model)
    assert model.config._attn_implementation == "eager"
    model.config.layer_types = ["full_attention", "linear_attention"]
    assert not can_pack(model)


@pytest.mark.parametrize("make", [tiny_windowed, tiny_gemma, tiny_mpt])
def test_can_pack_nothing_else(make: Callable[[], Any]) -> None:
    assert not can_pack(make())


def test_can_pack_believes_what_it_sees() -> None:
    # A model that says it takes positions and does not.
    model = tiny_llama()
    forward = model.model.forward
    model.model.forward = lambda position_ids=None, **kwargs: forward(**kwargs)
    assert not can_pack(model)


def test_check_forward_refuses_logits_that_are_not_the_heads() -> None:
    model = tiny_llama()
    check_forward(model)
    model.lm_head.register_forward_hook(lambda *_: None)  # a hook that changes nothing is no reason
    check_forward(model)
    forward = model.forward

    def scaled(*args: Any, **kwargs: Any) -> Any:
        out = forward(*args, **kwargs)
        out.logits = out.logits * 0.5
        return out

    model.forward = scaled
    with pytest.raises(ModelError, match="logits must be its output embedding"):
        check_forward(model)
