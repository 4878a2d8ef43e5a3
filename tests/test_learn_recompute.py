"""Gradient checkpointing with packed batches: the gradient of the plain pass, by less memory."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from agentq.errors import ModelError
from agentq.learn.batch import plan_step
from agentq.learn.learner import Learner
from agentq.learn.logps import action_logps
from agentq.learn.recompute import recompute_layers
from agentq.learn.trie_attention import tree_attention_of
from tests.learn_factory import (
    agent_samples,
    exact,
    gradients,
    plain_logps,
    sample,
    tiny_gpt2,
    tiny_llama,
    tiny_neox,
    tiny_qwen,
    tiny_windowed,
)


class Held(TorchDispatchMode):
    """Bytes of the tensors that operations made in the block and that are still alive, and the most at once."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self.known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(x, torch.Tensor) and x.untyped_storage()._cdata not in self.known:
                storage = x.untyped_storage()
                self.known.add(storage._cdata)
                self.now += storage.nbytes()
                self.peak = max(self.peak, self.now)
                weakref.finalize(storage, self._freed, storage._cdata, storage.nbytes())
        return out

    def _freed(self, storage: int, size: int) -> None:
        self.known.discard(storage)
        self.now -= size


def gradient_of(make: Callable[[], Any], *, recomputed: bool, **settings: Any) -> dict[str, torch.Tensor]:
    trained = Learner(
        make(), learning_rate=1e-12, max_grad_norm=1e9, gradient_checkpointing=recomputed, **({"seed": 1} | settings)
    )
    trained.step_sft(agent_samples("append", "mcts"))
    return {name: p.grad for name, p in trained.parameters.items() if p.grad is not None}


@pytest.mark.parametrize(
    ("make", "settings"),
    [
        (lambda: exact(tiny_llama()), {}),
        (lambda: exact(tiny_qwen()), {}),
        (lambda: exact(tiny_qwen()), {"max_tokens": 40}),
        (tiny_gpt2, {}),
        (tiny_neox, {}),
        (tiny_windowed, {}),  # not packed
        (tiny_llama, {"bf16": True}),
        (tiny_llama, {"lora_rank": 2}),
        (lambda: tiny_llama(attention_dropout=0.5), {}),  # which stays off
    ],
    ids=["llama", "qwen", "several-parts", "gpt2", "neox", "not-packed", "bf16", "lora", "dropout"],
)
def test_gradient_is_that_of_the_plain_pass(make: Callable[[], Any], settings: dict[str, Any]) -> None:
    plain = gradient_of(make, recomputed=False, **settings)
    recomputed = gradient_of(make, recomputed=True, **settings)
    assert plain.keys() == recomputed.keys()
    for name, grad in plain.items():
        torch.testing.assert_close(recomputed[name], grad, rtol=1e-12, atol=0.0)
    assert any(float(grad.abs().max()) > 0 for grad in plain.values())


def test_a_layer_is_computed_again_with_the_plan_of_its_own_batch() -> None:
    # The backward pass of one batch after the forward pass of another, of the same size and another shape of trie.
    def batch_of(*actions: list[int]) -> Any:
        (part,) = plan_step([[sample([1, 2, 3], action)] for action in actions])
        return part.batches[0]

    first = batch_of([4, 5, 6, 7], [4, 8, 9, 10], [11, 12, 13])
    second = batch_of([4, 5, 6, 7, 8, 9, 10, 11, 12, 13])
    found = []
    for recomputed in (False, True):
        model = exact(tiny_llama())
        if recomputed:
            recompute_layers(model)
        with tree_attention_of(model):
            logps = action_logps(model, first)
            action_logps(model, second)
            logps.sum().backward()
        found.append(gradients(model))
    for name, grad in found[0].items():
        torch.testing.assert_close(found[1][name], grad, rtol=1e-12, atol=0.0)


def test_peak_memory_is_that_of_about_one_layer() -> None:
    samples = [sample(list(range(60)), [i, *range(50)]) for i in range(8)]
    peaks = {}
    for num_layers in (2, 8):
        for recomputed in (False, True):
            model = tiny_llama(num_hidden_layers=num_layers)
            trained = Learner(model, learning_rate=1e-3, gradient_checkpointing=recomputed)
            trained.step_sft(samples)  # gradients and moments have their place
            with Held() as held:
                trained.update(
                    [(s,) for s in samples],
                    lambda part, logps: (torch.where(part.action_mask, logps, 0.0).sum(), {}),
                )
            peaks[num_layers, recomputed] = held.peak
    assert peaks[8, True] < 0.4 * peaks[8, False]
    # What each further layer adds: all that its backward pass needs, or its input and its weights' gradient.
    plain, recomputed = (peaks[8, kept] - peaks[2, kept] for kept in (False, True))
    assert recomputed < 0.2 * plain


def test_recomputed_adapters_merge_into_a_copy_of_their_own() -> None:
    trained = Learner(tiny_llama(), learning_rate=1e-2, lora_rank=2, gradient_checkpointing=True)
    s = sample([1, 2, 3], [4, 5])
    trained.step_sft([s])
    (then,), merged = trained.recompute_logps([s]), trained.merged()
    for _ in range(3):
        trained.step_sft([s])
    np.testing.assert_allclose(plain_logps(merged, s).detach().numpy(), then.logps, atol=1e-5)
    assert not np.allclose(trained.recompute_logps([s])[0].logps, then.logps, atol=1e-2)


@pytest.mark.parametrize("recomputed", [False, True])
def test_weights_are_freed_with_their_learner(recomputed: bool) -> None:
    trained = Learner(tiny_llama(), learning_rate=1e-2, gradient_checkpointing=recomputed)
    trained.step_sft([sample([1, 2, 3], [4, 5])])
    weights = [weakref.ref(p) for p in trained.parameters.values()]
    gc.collect()
    gc.disable()
    try:
        del trained
        alive = sum(weight() is not None for weight in weights)
    finally:
        gc.enable()
    assert alive == 0


def test_gradient_checkpointing_needs_layers() -> None:
    model = tiny_llama()
    model.model.layers = torch.nn.ModuleList()
    with pytest.raises(ModelError, match="gradient_checkpointing needs a model made of layers; got LlamaForCausalLM"):
        Learner(model, learning_rate=1e-3, gradient_checkpointing=True)
