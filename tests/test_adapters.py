"""Adapters and the weights made of them: where they sit, how they are merged and saved, which files hold weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import Gemma3Config, Gemma3ForConditionalGeneration

from agentq.errors import ModelError
from agentq.learn.features import features
from agentq.learn.learner import Learner
from agentq.learn.value_head import new_head
from agentq.policies.adapters import merged, read_adapter, with_adapters
from agentq.policies.head import context_at, context_of
from agentq.policies.transformers_engine import TransformersEngine
from agentq.policies.weights import adapter_of, check_weights
from tests.learn_factory import SIZES, VOCAB, sample, tiny_llama, tiny_moe, tokenizer
from tests.train_factory import TINY, run

Files = dict[str, torch.Tensor]


def changed(model: Any, rank: int = 4) -> Any:
    """The model with adapters that change it."""
    model = with_adapters(model, rank, seed=0)
    torch.manual_seed(1)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "lora_B" in name:
                p.copy_(0.1 * torch.randn_like(p))
    return model


def test_weights_of_16_bits_are_rounded_once_when_adapters_are_merged() -> None:
    model = changed(tiny_llama().bfloat16())
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    found, rounded = dict(merged(model).named_parameters()), 0
    for name, weight in before.items():
        if not name.endswith("base_layer.weight"):
            continue
        a, b = (before[name.replace("base_layer", f"lora_{factor}.default")] for factor in "AB")
        exact = weight.float() + 2.0 * (b @ a)
        at = name.removeprefix("base_model.model.").replace(".base_layer", "")
        assert a.dtype == torch.float32 and torch.equal(found[at], exact.bfloat16())
        rounded += int((found[at].float() != exact).sum())
    assert rounded > 1000  # so the adapter itself is what was measured
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())


def test_adapters_are_merged_in_main_memory() -> None:
    # A tensor of the device meta can be copied on its device, but not to the CPU.
    with pytest.raises(NotImplementedError, match="meta") as caught:
        merged(changed(tiny_llama()).to("meta"))
    assert "_on_cpu" in [entry.name for entry in caught.traceback]  # tensor by tensor


def test_an_adapter_is_saved_before_it_is_merged(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save = Learner.save

    def without_room(learner: Learner, path: Path, *, adapters_only: bool = False) -> None:
        if not adapters_only:
            raise MemoryError("no room for the merged model")
        save(learner, path, adapters_only=True)

    monkeypatch.setattr(Learner, "save", without_room)
    with pytest.raises(MemoryError, match="no room"):
        run("sft", base, tmp_path / "run", [*TINY, "--train.lora_rank=2", "--eval.measure_base=false"])
    made = tmp_path / "run" / "checkpoints" / "sft"
    assert not made.exists() and read_adapter(adapter_of(made))[1] == 2


def test_what_reads_pictures_gets_no_adapters_and_has_states_for_heads(tmp_path: Path) -> None:
    text = {key: value for key, value in SIZES.items() if "token_id" not in key or key == "pad_token_id"}
    seeing = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    tokens = {"image_token_index": 60, "boi_token_index": 61, "eoi_token_index": 62, "mm_tokens_per_image": 4}
    config = Gemma3Config(
        text_config=text | {"head_dim": 8}, vision_config=seeing | {"image_size": 28, "patch_size": 14}, **tokens
    )
    torch.manual_seed(0)
    model = Gemma3ForConditionalGeneration(config).eval()
    trained = Learner(model, learning_rate=1e-2, lora_rank=2)
    trained.step_sft([sample([5, 6], [7, 3])])
    assert trained.parameters and all(
        "language_model" in name and p.grad is not None for name, p in trained.trained.items()
    )
    assert len(new_head(trained)) == SIZES["hidden_size"] + 1
    assert features(trained, [sample([5, 6], [7, 3])])[0].shape == (1, SIZES["hidden_size"])
    trained.save(tmp_path, adapters_only=True)
    assert read_adapter(tmp_path)[0].keys() == {name.replace(".default", "") for name in trained.parameters}


def saved(model: Any, path: Path) -> Path:
    model.save_pretrained(path)
    tokenizer(VOCAB).save_pretrained(path)
    return path


def with_mistrals_own(path: Path, weights: Files) -> None:
    save_file({"layers.0.attention.wq.weight": torch.zeros(2, 2)}, path / "consolidated.safetensors")


def with_frequencies(path: Path, weights: Files) -> None:
    found = weights | {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(4)}
    save_file(found, path / "model.safetensors", {"format": "pt"})


def without_safetensors(path: Path, weights: Files) -> None:
    (path / "model.safetensors").unlink()
    torch.save(weights, path / "pytorch_model.bin")


def in_parts(path: Path, weights: Files) -> None:
    first = min(weights)
    parts = {"part-1.safetensors": {first}, "part-2.safetensors": weights.keys() - {first}}
    for file, names in parts.items():
        save_file({name: weights[name] for name in names}, path / file, {"format": "pt"})
    where = {name: file for file, names in parts.items() for name in names}
    (path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
    (path / "model.safetensors").unlink()
    save_file({"x": torch.zeros(1)}, path / "model-old.safetensors")


@pytest.mark.parametrize("change", [with_mistrals_own, with_frequencies, without_safetensors, in_parts])
def test_weights_are_compared_with_those_that_a_base_is_loaded_from(
    change: Callable[[Path, Files], None], tmp_path: Path
) -> None:
    like, published = saved(tiny_llama(), tmp_path / "base"), saved(tiny_llama(seed=1), tmp_path / "new")
    change(like, load_file(like / "model.safetensors"))
    check_weights(published, like=like, cpu=False)
    engine = TransformersEngine(like)
    assert engine.publish(published) == 1
    if change is not without_safetensors:
        other = saved(tiny_llama(hidden_size=16), tmp_path / "other")
        with pytest.raises(ModelError, match=r"names and shapes of .*/base's; got others in"):
            check_weights(other, like=like, cpu=False)


def test_a_damaged_index_is_one_line(tmp_path: Path) -> None:
    like = saved(tiny_llama(), tmp_path / "base")
    (like / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(ModelError, match=r"index.json must name the file of each tensor; got a damaged one"):
        check_weights(like, like=like, cpu=False)


def test_an_engine_loads_experts_by_the_names_of_their_files(tmp_path: Path) -> None:
    base, new = saved(tiny_moe(), tmp_path / "base"), saved(tiny_moe(seed=1), tmp_path / "new")
    assert any(".experts.0." in name for name in load_file(new / "model.safetensors"))
    engine, wanted = TransformersEngine(base), tiny_moe(seed=1).state_dict()
    assert engine.publish(new) == 1
    assert all(torch.equal(weight, wanted[name]) for name, weight in engine.model.state_dict().items())
    weights = load_file(new / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, new / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelError, match="must have the names and shapes of"):
        engine.publish(new)


def test_a_context_is_read_from_the_config(tmp_path: Path) -> None:
    assert context_at(saved(tiny_llama(), tmp_path)) == context_of(tiny_llama()) == 256
    assert context_at(tmp_path / "nothing") == 0
