"""The Llama decoder of the core and the core's draws, against transformers' own forward pass and float64."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from agentq import _core
from agentq.policies import decoding, llama
from agentq.policies.columns import Growth, SharedColumns
from agentq.policies.prefix import PrefixCache
from agentq.policies.trial import plain_logits

SHAPES = [(32, 4, 4, 8, 40), (64, 4, 2, 16, 100), (48, 6, 2, 20, 33), (64, 2, 1, 64, 64)]
"""Width, heads, key heads, size of a head, width of the MLP."""


def model_of(width: int, heads: int, key_heads: int, size: int, hidden: int) -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=width,
        num_attention_heads=heads,
        num_key_value_heads=key_heads,
        head_dim=size,
        intermediate_size=hidden,
        num_hidden_layers=3,
        vocab_size=90,
        initializer_range=0.2,
        attn_implementation="eager",
    )
    return LlamaForCausalLM(config).eval()


def check_logits(model: LlamaForCausalLM, found: torch.Tensor, *rows: np.ndarray) -> None:
    """`found` `[N, V]` are the logits after each row `[T]` by a plain forward pass."""
    want = torch.stack([plain_logits(model, row)[-1] for row in rows])
    torch.testing.assert_close(found, want, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("most", [llama.SMALL, 0], ids=["core", "torch"])
@torch.inference_mode()
def test_rows_of_any_length_and_branches_give_the_logits_of_a_plain_forward_pass(
    shape: tuple[int, int, int, int, int], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llama, "SMALL", most)
    model, rng = model_of(*shape), np.random.default_rng(0)
    columns = SharedColumns(model, PrefixCache(1 << 30))
    assert isinstance(columns.llama, llama.SmallLlama) == bool(most)
    # The core computes 256 tokens at a time: the second prompt is cut. The last one begins with a cached prefix.
    prompts = [rng.integers(0, 90, n).astype(np.int32) for n in (100, 600, 1, 40)]
    prompts.append(np.concatenate([prompts[1][:300], prompts[3]]))

    near = partial(check_logits, model)
    rows = [columns.begin(prompt) for prompt in prompts[:4]]
    near(columns.forward([Growth(row) for row in rows]), *prompts[:4])
    rows.append(columns.begin(prompts[4]))
    assert rows[4].num_cached == 288
    grown = [[1, 2, 3], [4], [5, 6], [7] * 9]
    found = columns.forward([*(Growth(r, g, [0] * len(g)) for r, g in zip(rows, grown, strict=False)), Growth(rows[4])])
    near(found, *(np.append(p, t) for p, g in zip(prompts, grown, strict=False) for t in g), prompts[4])
    found = columns.forward([Growth(rows[4], [8], [0]), Growth(rows[0], [9, 10], [2, 0])])
    near(found, np.append(prompts[4], 8), np.append(prompts[0], [3, 9]), np.append(prompts[0], [1, 10]))


def test_decode_refuses_what_does_not_fit() -> None:
    model = model_of(*SHAPES[1])
    core = llama.SmallLlama(model).core
    like = np.zeros((1, 16), np.float32)
    given = {
        "x": np.zeros((1, 64), np.float32),
        "cos": like,
        "sin": like,
        "states": [np.zeros((3, 2, 2, 4, 16), np.float32)],
        "counts": [1],
        "lengths": [3],
        "opens": [2],
        "visible": [np.ones((1, 1), bool)],
    }
    core.decode(**given)
    for changed in (
        {"x": np.zeros((2, 64), np.float32)},
        {"x": np.zeros((1, 60), np.float32)},
        {"cos": like[:, :8].copy()},
        {"states": [given["states"][0][:2].copy()]},
        {"states": []},
        {"counts": [0]},
        {"counts": [4]},
        {"lengths": [5]},
        {"opens": [4]},
        {"opens": [-1]},
        {"visible": [np.ones((1, 2), bool)]},
    ):
        with pytest.raises(ValueError):
            core.decode(**{**given, **changed})


def test_drawn_tokens_invert_the_cumulative_distribution() -> None:
    rng = np.random.default_rng(1)
    logits = (3 * rng.standard_normal((40, 201))).astype(np.float32)
    allowed = np.where(rng.random(logits.shape) < 0.5, logits, -np.inf).astype(np.float32)
    allowed[::2], allowed[1], allowed[1, -1] = logits[::2], -np.inf, logits[1, -1]
    uniforms, temperatures = rng.random((40, 7)), np.array([0.0, 0.5, 1.0, 2.0] * 10)
    uniforms[:, :2] = 0.0, np.nextafter(1.0, 0.0)
    tokens, logps = _core.draw_tokens(logits, allowed, uniforms, temperatures)
    assert np.isfinite(np.take_along_axis(allowed, tokens, axis=1)).all()
    exact = logits.astype(np.float64)
    exact -= np.log(np.exp(exact).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(logps, np.take_along_axis(exact, tokens, axis=1), atol=2e-6)
    for row, temperature, drawn, us in zip(allowed.astype(np.float64), temperatures, tokens, uniforms, strict=True):
        if temperature == 0:
            assert (drawn == row.argmax()).all()
            continue
        weights = np.exp((row - row.max()) / temperature)
        after = np.cumsum(weights / weights.sum())
        before = after - weights / weights.sum()
        assert (before[drawn] <= us + 1e-6).all() and (after[drawn] >= us - 1e-6).all()
    same = decoding.draw(*map(torch.from_numpy, (logits, allowed, uniforms)), torch.from_numpy(temperatures).float())
    assert (same[0].numpy()[:, 2:] == tokens[:, 2:]).mean() > 0.99
