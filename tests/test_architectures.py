"""Every architecture is sampled from exactly and trained exactly, or refused in one line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from architectures import ARCHITECTURES, HALF, LINEAR, VOCAB, make_model, measure, write_checkpoint
from transformers import RecurrentGemmaConfig, RecurrentGemmaForCausalLM

from agentq.errors import ModelError
from agentq.learn.learner import Learner
from agentq.learn.logps import can_pack, check_forward
from agentq.policies import attention, trial
from agentq.policies.columns import PlainColumns, SharedColumns
from agentq.policies.head import context_of
from agentq.policies.prefix import PrefixCache
from agentq.policies.transformers_engine import TransformersEngine
from agentq.policies.trial import choose_columns, rounding, short_window
from tests.learn_factory import plain_logps, random_sample, tiny_llama

COMPUTED = {
    "Llama": "fast packed",
    "Qwen2": "fast packed",
    "Qwen3": "fast packed",
    "Qwen3Moe": "fast packed",
    "Phi3": "fast padded",
    "SmolLM3": "fast packed",
    "Glm4": "fast packed",
    "Mistral": "fast padded",
    "Gemma2": "plain padded",
    "Gemma3Text": "fast padded",
    "Olmo3": "fast padded",
    "Granite": "fast packed",
    "Cohere": "fast packed",
    "Cohere2": "fast padded",
    "Exaone4": "fast padded",
    "GptOss": "plain padded",
    "DeepseekV3": "fast packed",
    "Llama4Text": "plain refused",
    "Lfm2": "plain padded",
    "Qwen3Next": "plain padded",
    "FalconH1": "plain padded",
    "Mamba": "refused refused",
}
QUICK = ("Llama", "Qwen3", "Gemma3Text", "Mistral", "Cohere2", "DeepseekV3")  # the others are of make test-rest
PROMPTS = [np.arange(5, 5 + n, dtype=np.int32) for n in (70, 17, 90)]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.rest) for name in ARCHITECTURES]
)
def test_log_probabilities_are_those_of_a_plain_forward_pass(name: str, tmp_path: Path) -> None:
    found = measure(name, tmp_path)
    assert f"{found.decoding} {found.training}" == COMPUTED[name]
    assert max(found.sampled, found.trained, found.adapted or 0.0) <= 1e-5
    refused = "refused" in COMPUTED[name] or name == "FalconH1"  # peft refuses Mamba's layers
    assert (found.adapted is None) == refused == bool(found.said) and "\n" not in found.said


YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 128}
YARN |= {"llama_4_scaling_beta": 0.1, "mscale": 1.0, "mscale_all_dim": 1.0, "beta_fast": 32.0, "beta_slow": 1.0}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3 |= {"original_max_position_embeddings": 128}
PER_LAYER = {"hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": VOCAB, "num_kv_shared_layers": 0}
ALTUP = {"laurel_rank": 4, "altup_num_inputs": 2, "activation_sparsity_pattern": [0.0, 0.0]}
MOE = {"n_routed_experts": 4, "n_group": 1, "topk_group": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
LAYERS = {"layer_types": ["linear_attention", "full_attention"]}
FURTHER: dict[str, tuple[dict[str, Any], str]] = {  # what their configs need besides SIZES, and how they are computed
    "Gemma": ({"head_dim": 16}, "fast packed"),
    "Phi": ({}, "fast packed"),
    "Ministral3": ({"head_dim": 16, "rope_parameters": YARN}, "fast packed"),
    "Qwen3_5Text": ({"head_dim": 16, **LAYERS, **LINEAR}, "plain padded"),
    "Gemma4Text": ({"head_dim": 16, "global_head_dim": 16, **HALF, **PER_LAYER}, "fast padded"),
    "Gemma3nText": ({"head_dim": 16, **ALTUP, **HALF, **PER_LAYER}, "fast padded"),
    "SeedOss": ({"head_dim": 16}, "fast packed"),
    "HunYuanDenseV1": ({"head_dim": 16}, "fast packed"),
    "Olmo2": ({}, "fast packed"),
    "Glm4Moe": ({"head_dim": 16, "first_k_dense_replace": 1, **MOE}, "fast packed"),
    "Llama": ({"rope_parameters": LLAMA3}, "fast packed"),
    "Qwen2": ({"use_sliding_window": True, "max_window_layers": 1, "sliding_window": 64}, "fast padded"),
}


@pytest.mark.rest
@pytest.mark.parametrize("name", FURTHER)
def test_further_architectures_are_computed_as_exactly(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, computed = FURTHER[name]
    monkeypatch.setitem(ARCHITECTURES, name, config)
    found = measure(name, tmp_path)
    print(f"{name}: {found}")  # docs/models.md has the figures
    assert f"{found.decoding} {found.training}" == computed and found.adapted is not None
    assert max(found.sampled, found.trained, found.adapted) <= 1e-5


@pytest.mark.parametrize("name", ["Granite", "Cohere", "Gemma2", "Mistral"])
def test_gradients_are_those_of_a_plain_forward_pass(name: str) -> None:
    """Scaled and capped logits, packed and padded."""
    learner, rng = Learner(make_model(name), learning_rate=1e-3), np.random.default_rng(0)
    prompt = rng.integers(0, 60, 80).tolist()
    samples = [random_sample(rng, prompt) for _ in range(3)] + [random_sample(rng)]
    num_tokens = sum(len(s.token_ids) for s in samples)
    want = torch.autograd.grad(
        -torch.cat([plain_logps(learner.model, s) for s in samples]).sum() / num_tokens,
        list(learner.model.parameters()),
    )
    learner.learning_rate, learner.max_grad_norm = 0.0, 1e9  # keep weights and gradients
    learner.step_sft(samples)
    for expected, parameter in zip(want, learner.model.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, expected, atol=2e-6, rtol=1e-3)


def generated(engine: TransformersEngine, **settings: Any) -> list[tuple[list[int], list[float]]]:
    asked: dict[str, Any] = {"seeds": range(3), "max_new_tokens": 14, **settings}
    out = engine.generate(PROMPTS, 3, **asked)
    return [(s.token_ids.tolist(), s.logps.tolist()) for samples in out for s in samples]


def near(answers: list[tuple[list[int], list[float]]]) -> list[tuple[list[int], Any]]:
    """The same tokens, and log-probabilities up to rounding."""
    return [(tokens, pytest.approx(logps, abs=1e-4)) for tokens, logps in answers]


@pytest.mark.parametrize("settings", [{}, {"temperature": 0.0}, {"temperature": 0.5}, {"patterns": ["(a|bc)+"] * 3}])
def test_plain_columns_draw_what_shared_ones_do(settings: dict[str, Any], tmp_path: Path) -> None:
    engine = TransformersEngine(write_checkpoint("Mistral", tmp_path))
    if "patterns" in settings:
        pytest.importorskip("llguidance")
    assert engine.shares_columns
    shared = generated(engine, **settings)
    assert engine.usage.total.cached_tokens == 0
    assert generated(engine, **settings) == near(shared) and engine.usage.total.cached_tokens == 64 + 16 + 80
    engine._columns = PlainColumns(engine.model)
    assert generated(engine, **settings) == near(shared)


def test_a_plainly_decoded_model_keeps_the_engines_contract(tmp_path: Path) -> None:
    engine = TransformersEngine(write_checkpoint("Lfm2", tmp_path))
    assert not engine.shares_columns
    together = generated(engine, max_new_tokens=40)
    assert {len(tokens) for tokens, _ in together} != {40}  # some have ended, and their rows go on
    for row, prompt in enumerate(PROMPTS):
        alone = engine.generate([prompt], 3, seeds=[row], max_new_tokens=40)[0]
        assert [s.token_ids.tolist() for s in alone] == [tokens for tokens, _ in together[3 * row : 3 * row + 3]]
    assert engine.usage.total.cached_tokens == 0
    torch.manual_seed(1)
    engine.publish({name: torch.randn_like(w) * 0.1 for name, w in engine.model.state_dict().items()})
    (sample,) = engine.generate([PROMPTS[0]], 1, seeds=[0], max_new_tokens=5)[0]
    ids = torch.from_numpy(np.concatenate([PROMPTS[0], sample.token_ids]).astype(np.int64))
    with torch.inference_mode():
        logps = torch.log_softmax(engine.model(input_ids=ids[None], use_cache=False).logits[0], dim=-1)
    at = torch.arange(len(PROMPTS[0]) - 1, len(ids) - 1)
    np.testing.assert_allclose(sample.logps, logps[at, ids[at + 1]], atol=1e-5)
    assert sample.version == 1


def test_a_head_that_does_more_is_decoded_plainly_and_not_trained() -> None:
    """No config says what this model does to its logits."""
    model = make_model("Llama")
    forward = model.forward

    def squared(*args: Any, **kwargs: Any) -> Any:
        out = forward(*args, **kwargs)
        out.logits = out.logits**2
        return out

    assert choose_columns(model)[1]
    model.forward = squared
    make, shared = choose_columns(model)
    assert not shared and isinstance(make(PrefixCache(0)), PlainColumns)
    with pytest.raises(ModelError, match=r"scaled and capped as its config says; got LlamaForCausalLM, which differs"):
        check_forward(model)


def test_recurrent_gemmas_cap_has_a_name_of_its_own() -> None:
    """Its logits here are of the size of the cap, 30, as a trained model's are."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "lru_width": 32}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "attention_window_size": 64}
    model = RecurrentGemmaForCausalLM(RecurrentGemmaConfig(**sizes, **heads, pad_token_id=3, eos_token_id=3)).eval()
    model.get_output_embeddings().weight.data *= 100
    rng = np.random.default_rng(0)
    samples = [random_sample(rng) for _ in range(3)]
    found = Learner(model, learning_rate=1e-3).recompute_logps(samples)
    with torch.no_grad():
        assert float(model(torch.arange(9)[None]).logits.abs().max()) > 15
        for sample, same in zip(samples, found, strict=True):
            assert same.logps == pytest.approx(plain_logps(model, sample).numpy(), abs=1e-4)


def test_a_model_that_forgets_its_cache_is_refused() -> None:
    model = make_model("Gemma2")  # which is decoded in its own cache
    decoder = model.model.forward
    model.model.forward = lambda past_key_values=None, **kwargs: decoder(**kwargs)
    with pytest.raises(ModelError, match=r"token by token as in one pass; got Gemma2ForCausalLM with .* vLLM"):
        choose_columns(model)


@pytest.mark.parametrize("name", ["Mistral", "Gemma3Text"])
def test_the_trial_notices_windows_that_are_not_followed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A window that matters from 64 tokens on, tried on prompts of 37."""
    model = make_model(name)
    assert choose_columns(model)[1]
    assert SharedColumns(model, PrefixCache(0)).window == 64
    with short_window(model):
        assert SharedColumns(model, PrefixCache(0)).window == trial.WINDOW
    assert model.config.sliding_window == 64
    piece = SharedColumns._piece

    def without_window(*given: Any) -> attention.Piece:
        found = piece(*given)
        return replace(found, windowed=found.visible)

    monkeypatch.setattr(SharedColumns, "_piece", without_window)
    assert not choose_columns(model)[1]


def test_trials_leave_the_model_as_it_was() -> None:
    model = make_model("Gemma3Text")
    before, attends = model.config.to_dict(), model.config._attn_implementation
    choose_columns(model)
    check_forward(model)
    can_pack(model)
    assert model.config.to_dict() == before and model.config._attn_implementation == attends


def test_rounding_of_bfloat16_is_measured() -> None:
    assert rounding(tiny_llama()) == 1e-3
    model = make_model("Qwen3").bfloat16()
    assert 0.05 <= rounding(model) < 0.3 and choose_columns(model)[1]


def test_a_context_ends_where_rotary_frequencies_change() -> None:
    rope = {"rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": 96}
    half = 8  # of a head
    rope |= {"short_factor": [1.0] * half, "long_factor": [4.0] * half}
    model = make_model("Phi3")
    assert context_of(model) == 512
    model.config.rope_parameters = rope
    assert context_of(model) == 96
