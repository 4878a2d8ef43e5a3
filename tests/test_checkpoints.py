"""Checkpoints as they are published: tokenizers with more than the model has rows for, end tokens of their templates,
weights of 8 bits, files beside the weights."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import transformers
from architectures import make_model
from chat_families import FAMILIES, make_tokenizer
from tokenizers import AddedToken

from agentq import PreferencePair
from agentq.errors import ConfigError, ModelError
from agentq.learn.learner import Learner
from agentq.model_settings import ModelSettings
from agentq.policies import saved
from agentq.policies.engine_names import embedded_base
from agentq.policies.renderer import load_renderer, samples_of_texts
from agentq.policies.transformers_engine import TransformersEngine
from agentq.recipes import memory
from agentq.recipes.settings import AgentQ
from tests.fp8_factory import as_fp8

FAMILY = {family.name: family for family in FAMILIES}


def tokenizer_of(family: str, eos: str) -> Any:
    found = make_tokenizer(FAMILY[family])
    found.add_special_tokens({"eos_token": eos})
    return found


def write(path: Path, name: str, tokenizer: Any, ends: list[str] | None = None, **sizes: Any) -> Path:
    """A checkpoint of an architecture with random weights. `ends`: the end tokens that its generation config names."""
    sizes = {"vocab_size": len(tokenizer), "bos_token_id": None, "pad_token_id": None, **sizes}
    make_model(name, eos_token_id=tokenizer.eos_token_id, **sizes).save_pretrained(path)
    tokenizer.save_pretrained(path)
    if ends is not None:
        named = {"eos_token_id": tokenizer.convert_tokens_to_ids(ends)}
        (path / "generation_config.json").write_text(json.dumps(named))
    return path


def test_mistrals_own_tokenizer_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where mistral-common is installed, transformers would take it for a tekken.json; it has no template."""
    write(tmp_path, "Mistral", tokenizer_of("Mistral Tekken", "</s>"))
    real = transformers.AutoTokenizer.from_pretrained

    def from_pretrained(path: Any, **settings: Any) -> Any:
        assert settings.pop("mistral_format") is False
        return real(path, mistral_format=False, **settings)

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", from_pretrained)
    assert load_renderer(tmp_path).tokenizer.chat_template
    assert TransformersEngine(tmp_path).renderer.tokenizer.chat_template
    assert Learner.from_checkpoint(tmp_path, learning_rate=1e-3).tokenizer.chat_template


def test_a_special_token_that_no_text_gives_needs_no_row(tmp_path: Path) -> None:
    """As Gemma 3's token for pictures in the checkpoint of 1 B."""
    tokenizer = tokenizer_of("Gemma", "<eos>")
    rows = len(tokenizer)
    tokenizer.add_tokens([AddedToken("<image_soft_token>", special=True)], special_tokens=True)
    write(tmp_path, "Gemma3Text", tokenizer, vocab_size=rows)
    engine = TransformersEngine(tmp_path)
    prompt = engine.renderer.encode(engine.renderer.fence.messages([{"role": "user", "content": "<image_soft_token>"}]))
    assert max(prompt) < rows
    pytest.importorskip("llguidance")
    (sampled,) = engine.generate([prompt], 1, seeds=[0], max_new_tokens=4, patterns=["[a-c]+"])[0]
    assert set(sampled.text) <= set("abc")
    assert Learner.from_checkpoint(tmp_path, learning_rate=1e-3).step_count == 0


@pytest.mark.parametrize("how", ["a word", "spelled by the template", "the end token"])
def test_a_token_that_may_come_needs_a_row(how: str, tmp_path: Path) -> None:
    tokenizer = tokenizer_of("Gemma", "<eos>")
    rows = len(tokenizer)
    tokenizer.add_tokens([AddedToken("<new>", special=how != "a word")], special_tokens=how != "a word")
    if how == "spelled by the template":
        tokenizer.chat_template = f"<new>{tokenizer.chat_template}"
    elif how == "the end token":
        tokenizer.add_special_tokens({"eos_token": "<new>"})
    write(tmp_path, "Llama", tokenizer, vocab_size=rows)
    with pytest.raises(ModelError, match=rf"has {rows + 1} tokens, the embedding {rows} rows; .* can give '<new>'"):
        TransformersEngine(tmp_path)


@pytest.mark.parametrize(
    ("family", "eos", "end"), [("Gemma", "<eos>", "<end_of_turn>"), ("Qwen", "</s>", "<|im_end|>")]
)
@pytest.mark.parametrize("named", [True, False])
def test_written_answers_end_as_the_template_ends_them(
    family: str, eos: str, end: str, named: bool, tmp_path: Path
) -> None:
    """The tokenizer names another token; `named`: the generation config names the template's."""
    tokenizer = tokenizer_of(family, eos)
    write(tmp_path, "Llama", tokenizer, [eos, end] if named else None)
    learner = Learner.from_checkpoint(tmp_path, learning_rate=1e-3)
    pair = PreferencePair.from_text("Capital of France?", "Paris.", "No.", learner.tokenizer)
    ends = {int(side.token_ids[-1]) for side in (*pair.chosen, *pair.rejected)}
    assert ends == {tokenizer.convert_tokens_to_ids(end)}
    if named:
        assert ends == {int(load_renderer(tmp_path).encode_answer("Paris.")[-1])}


@pytest.mark.parametrize("of", ["a path", "a model", "a run"])
def test_all_weights_of_a_quantized_checkpoint_are_not_trained(of: str, tmp_path: Path) -> None:
    """transformers gives bfloat16 for weights of 8 bits on a CPU, whatever type it is asked for."""
    path = write(tmp_path / "fp8", "Qwen3", tokenizer_of("Qwen", "<|im_end|>"))
    config = json.loads((path / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "fp8", "activation_scheme": "dynamic"}
    (path / "config.json").write_text(json.dumps(config))
    said = r"must begin with 16 or 32 bits per weight; got fp8 weights in .*, or train adapters \(--train"
    with pytest.raises(ConfigError, match=said) as raised:
        if of == "a path":
            Learner.from_checkpoint(path, learning_rate=1e-3)
        elif of == "a model":
            model = make_model("Qwen3")
            model.config.quantization_config = config["quantization_config"]
            Learner(model, learning_rate=1e-3)
        else:
            memory.check_memory(AgentQ(model=ModelSettings(devices="cpu", memory=False)), path)
    assert "\n" not in str(raised.value)
    assert Learner(make_model("Qwen3"), learning_rate=1e-3, lora_rank=2).step_count == 0


def test_what_prepares_pictures_is_saved_beside_the_weights(tmp_path: Path) -> None:
    """Without it the trained checkpoint reads no pictures, and some servers do not start."""
    tokenizer = tokenizer_of("Gemma", "<eos>")
    size = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 2, "num_hidden_layers": 1}
    text = {**size, "vocab_size": len(tokenizer), "num_key_value_heads": 1, "head_dim": 8, "query_pre_attn_scalar": 8}
    config = transformers.Gemma3Config(
        text_config={**text, "max_position_embeddings": 256},
        vision_config={**size, "image_size": 28, "patch_size": 14},
        mm_tokens_per_image=4,
        image_token_index=5,
        boi_token_index=6,
        eoi_token_index=7,
    )
    base, trained = tmp_path / "base", tmp_path / "trained"
    transformers.Gemma3ForConditionalGeneration(config).save_pretrained(base)
    tokenizer.save_pretrained(base)
    for name in ("processor_config.json", "preprocessor_config.json"):
        (base / name).write_text(json.dumps({"processor_class": "Gemma3Processor", "of": name}))
    learner = Learner.from_checkpoint(base, learning_rate=1e-3, lora_rank=2)
    learner.save(trained)
    for name in ("processor_config.json", "preprocessor_config.json"):
        assert (trained / name).read_text() == (base / name).read_text()
    learner.save(tmp_path / "adapter", adapters_only=True)
    assert not (tmp_path / "adapter" / "processor_config.json").exists()
    old = json.loads((trained / "config.json").read_text())["text_config"]
    assert (old["rope_theta"], old["rope_local_base_freq"]) == (1e6, 1e4)


LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3 |= {"original_max_position_embeddings": 128}
LINEAR = {"rope_type": "linear", "factor": 8.0}
LONG = {"type": "longrope", "short_factor": [1.0] * 8, "long_factor": [4.0] * 8}
FULL, SLIDING = {**LINEAR, "rope_theta": 1e6}, {"rope_type": "default", "rope_theta": 1e4}


@pytest.mark.parametrize(
    ("name", "rope", "old"),
    [
        ("Qwen3", {"rope_type": "default", "rope_theta": 1e6}, {"rope_theta": 1e6}),
        ("Llama", {**LLAMA3, "rope_theta": 5e5}, {"rope_theta": 5e5, "rope_scaling": LLAMA3}),
        ("Glm4", {"rope_type": "default", "rope_theta": 1e4}, {"rope_theta": 1e4, "partial_rotary_factor": 0.5}),
        ("Phi3", {**LONG, "rope_type": "longrope", "rope_theta": 1e4}, {"rope_theta": 1e4, "rope_scaling": LONG}),
        (
            "Gemma3Text",
            {"full_attention": FULL, "sliding_attention": SLIDING},
            {"rope_theta": 1e6, "rope_local_base_freq": 1e4, "rope_scaling": LINEAR},
        ),
    ],
)
def test_a_saved_config_names_its_frequencies_as_transformers_4_does(
    name: str, rope: dict[str, Any], old: dict[str, Any], tmp_path: Path
) -> None:
    sizes = {"original_max_position_embeddings": 96} if name == "Phi3" else {}
    learner = Learner(make_model(name, rope_parameters=rope, **sizes), learning_rate=1e-3)
    learner.save(tmp_path / "saved")
    written = json.loads((tmp_path / "saved" / "config.json").read_text())
    assert {key: written.get(key) for key in old} == old
    assert ("rope_scaling" in written) == ("rope_scaling" in old)
    again = transformers.AutoConfig.from_pretrained(tmp_path / "saved").rope_parameters
    own = learner.model.config.rope_parameters
    assert {key: again[key] for key in own} == own


def test_a_config_that_would_be_read_otherwise_keeps_its_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved, "_old_names", lambda rope: {"hidden_size": 8, "rope_scaling": {"rope_type": "dynamic"}})
    model = make_model("Llama")
    model.save_pretrained(tmp_path)
    before = (tmp_path / "config.json").read_text()
    saved.complete(tmp_path, model.config, None)
    assert (tmp_path / "config.json").read_text() == before


def test_a_tokenizer_without_a_name_has_its_own_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not those of a checkpoint in the working directory."""
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [7, 8]}))
    monkeypatch.chdir(tmp_path)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(embedded_base() / "tokenizer.json"), eos_token="<|end|>"
    )
    (sample,) = samples_of_texts("hello", ["CLICK [1]"], tokenizer)
    assert sample.token_ids[-1] == tokenizer.eos_token_id


def test_adapters_of_an_fp8_checkpoint_are_saved_in_the_weights_that_were_trained(tmp_path: Path) -> None:
    """Without a GPU, transformers would save such weights as 8 bits again, without the config that tells it."""
    path = as_fp8(Path(shutil.copytree(embedded_base(), tmp_path / "fp8")))
    learner = Learner.from_checkpoint(path, learning_rate=1e-3, lora_rank=4)
    samples = samples_of_texts("hello", ["CLICK [1]"], learner.tokenizer)
    learner.save(tmp_path / "saved")
    again = Learner.from_checkpoint(tmp_path / "saved", learning_rate=1e-3)
    before, after = (each.recompute_logps(samples)[0].logps for each in (learner, again))
    assert after == pytest.approx(before, abs=0.01)
