"""The transformers engine on a random tiny checkpoint, against the plain computation."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from agentq.agent.prompts import policy_messages
from agentq.base.tokenizer import train_tokenizer
from agentq.errors import ModelError
from agentq.learn.learner import Learner
from agentq.model_settings import ModelSettings
from agentq.policies.agreement import agreement, probe
from agentq.policies.continuous import last_line
from agentq.policies.model_policy import ModelPolicy
from agentq.policies.protocol import Prompt
from agentq.policies.transformers_engine import TransformersEngine, load_checkpoint
from agentq.types import History, Observation, StopReason

PROMPTS = [np.arange(5, 5 + n, dtype=np.int32) for n in (3, 17, 9, 30, 12)]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("checkpoint")
    tokenizer = train_tokenizer(["HISTORY: link Blue Harbor Grill [3] 7:00 PM"] * 9, vocab_size=400, context_tokens=256)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=True,
        initializer_range=0.2,
    )
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def engine(checkpoint: Path) -> TransformersEngine:
    return TransformersEngine(checkpoint, max_rows=2)


def _plain_logps(engine: TransformersEngine, prompt: np.ndarray, token_ids: np.ndarray) -> np.ndarray:
    ids = torch.tensor(np.concatenate([prompt, token_ids]).astype(np.int64))[None]
    with torch.inference_mode():
        logps = torch.log_softmax(engine.model(ids).logits[0].float(), dim=-1)
    return logps[len(prompt) - 1 : -1].gather(-1, ids[0, len(prompt) :, None])[:, 0].numpy()


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
def test_generate_records_logps_of_the_plain_forward_pass(
    engine: TransformersEngine, k: int, temperature: float
) -> None:
    out = engine.generate(PROMPTS, k, seeds=range(5), temperature=temperature, max_new_tokens=12)
    assert [len(samples) for samples in out] == [k] * 5
    for prompt, samples in zip(PROMPTS, out, strict=True):
        for sample in samples:
            np.testing.assert_allclose(sample.logps, _plain_logps(engine, prompt, sample.token_ids), atol=2e-5)


def test_generate_depends_on_prompt_and_seed_not_on_the_batch(engine: TransformersEngine) -> None:
    together = engine.generate(PROMPTS, 3, seeds=range(5), max_new_tokens=12)
    for i in (0, 3):
        (alone,) = engine.generate([PROMPTS[i]], 3, seeds=[i], max_new_tokens=12)
        for a, b in zip(alone, together[i], strict=True):
            np.testing.assert_array_equal(a.token_ids, b.token_ids)
    other = engine.generate(PROMPTS, 3, seeds=range(5, 10), max_new_tokens=12)
    assert any(
        (a.token_ids.tolist() != b.token_ids.tolist())
        for x, y in zip(together, other, strict=True)
        for a, b in zip(x, y, strict=True)
    )


def test_prompts_that_begin_like_earlier_ones_give_what_they_give_alone(checkpoint: Path) -> None:
    rng = np.random.default_rng(0)
    trunk = rng.integers(5, 60, 100).astype(np.int32)
    prompts = [np.concatenate([trunk[:n], rng.integers(5, 60, m).astype(np.int32)]) for n, m in
               ((100, 9), (64, 1), (63, 30), (0, 40), (96, 0), (97, 0), (100, 60))]  # fmt: skip
    plain, caching = (TransformersEngine(checkpoint, prefix_cache_bytes=size) for size in (0, 1 << 20))
    caching.generate([trunk], 1, seeds=[0], max_new_tokens=1)
    for _ in range(2):  # the second time every prompt is known but for its last tokens
        found = caching.generate(prompts, 3, seeds=range(7), max_new_tokens=12)
        for a, b in zip(plain.generate(prompts, 3, seeds=range(7), max_new_tokens=12), found, strict=True):
            for x, y in zip(a, b, strict=True):
                np.testing.assert_array_equal(x.token_ids, y.token_ids)
                np.testing.assert_allclose(x.logps, y.logps, atol=2e-5)
    first, second = 96 + 64 + 48 + 0 + 80 + 96 + 96, 96 + 64 + 80 + 32 + 80 + 96 + 144
    assert plain.usage.total.cached_tokens == 0 and caching.usage.total.cached_tokens == first + second


def test_generate_at_temperature_zero_takes_the_likeliest_token(engine: TransformersEngine) -> None:
    ((sample, twin),) = engine.generate([PROMPTS[1]], 2, seeds=[0], temperature=0.0, max_new_tokens=6)
    ids = PROMPTS[1].astype(np.int64)
    for token in sample.token_ids:
        with torch.inference_mode():
            assert int(engine.model(torch.tensor(ids)[None]).logits[0, -1].argmax()) == token
        ids = np.append(ids, token)
    np.testing.assert_array_equal(sample.token_ids, twin.token_ids)


def test_generate_samples_with_the_models_frequencies(engine: TransformersEngine) -> None:
    ((*samples,),) = engine.generate([PROMPTS[0]], 4000, seeds=[0], max_new_tokens=1)
    counts = np.bincount([s.token_ids[0] for s in samples], minlength=len(engine.renderer.tokenizer))
    with torch.inference_mode():
        probs = torch.softmax(engine.model(torch.tensor(PROMPTS[0].astype(np.int64))[None]).logits[0, -1].float(), -1)
    expected = probs.numpy() * 4000
    likely = expected > 20  # within 5 standard deviations of a binomial
    assert likely.sum() >= 3
    assert (np.abs(counts - expected)[likely] < 5 * np.sqrt(expected[likely])).all()


def test_generate_ends_with_the_end_token_or_says_length(engine: TransformersEngine) -> None:
    out = engine.generate(PROMPTS, 8, seeds=range(5), max_new_tokens=60)
    eos = int(engine.renderer.end_ids[0])
    reasons = set()
    for sample in (s for samples in out for s in samples):
        reasons.add(sample.stop_reason)
        ends = [i for i, token in enumerate(sample.token_ids) if token == eos]
        assert ends == ([len(sample.token_ids) - 1] if sample.stop_reason is StopReason.EOS else [])
        assert sample.stop_reason is StopReason.EOS or len(sample.token_ids) == 60
    assert reasons == {StopReason.EOS, StopReason.LENGTH}


def test_generate_refuses_prompts_that_do_not_fit(engine: TransformersEngine) -> None:
    with pytest.raises(ModelError, match=r"1 to 226 tokens \(context 256\); got 250"):
        engine.generate([np.ones(250, dtype=np.int32)], 1, seeds=[0], max_new_tokens=30)
    with pytest.raises(ModelError, match="1 to"):
        engine.generate([np.empty(0, dtype=np.int32)], 1, seeds=[0])


@pytest.mark.parametrize("where", ["missing", "damaged", "shape", "unknown", "adapter"])
def test_publish_of_what_does_not_fit_changes_nothing(checkpoint: Path, tmp_path: Path, where: str) -> None:
    engine, broken = TransformersEngine(checkpoint), tmp_path / "broken"
    before = engine.generate(PROMPTS, 2, seeds=range(5), max_new_tokens=8)
    shutil.copytree(checkpoint, broken)
    file = broken / "model.safetensors"
    weights = {name: torch.zeros_like(w) for name, w in load_file(file).items()}
    first = min(weights)
    if where == "missing":
        file.unlink()
    elif where == "damaged":
        file.write_bytes(file.read_bytes()[:-50])
    elif where == "shape":
        save_file(weights | {first: weights[first][:-1].contiguous()}, file)
    elif where == "unknown":
        save_file(weights | {"x": torch.zeros(1)}, file)
    else:
        (broken / "adapter_config.json").write_text("{}")
    message = {"missing": "hold *", "damaged": "a damaged one", "adapter": "be a LoRA adapter in"}.get(
        where, "in 1 tensors"
    )
    with pytest.raises(ModelError, match=message.replace("*", r"\*")):
        engine.publish(broken)
    after = engine.generate(PROMPTS, 2, seeds=range(5), max_new_tokens=8)
    assert engine.version == 0
    for a, b in zip(before, after, strict=True):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_array_equal(x.token_ids, y.token_ids)
            np.testing.assert_allclose(x.logps, y.logps, atol=2e-5)


def test_publish_of_a_checkpoint_is_that_of_its_weights(checkpoint: Path, tmp_path: Path) -> None:
    engine, other = TransformersEngine(checkpoint), TransformersEngine(checkpoint)
    weights = {name: w * 1.5 for name, w in engine.model.state_dict().items()}
    other.publish(weights)
    other.model.save_pretrained(tmp_path)
    assert engine.publish(tmp_path) == 1
    for name, w in engine.model.state_dict().items():
        assert torch.equal(w, weights[name])


def test_publish_moves_to_new_weights_and_version(checkpoint: Path) -> None:
    engine = TransformersEngine(checkpoint)
    policy = ModelPolicy(engine, max_new_tokens=8)
    history = History("book", Observation("link Blue [3]"))
    before = asyncio.run(policy.propose(history, 1, seed=0, temperature=0.0))[0]
    torch.manual_seed(1)
    engine.publish({name: torch.randn_like(w) * 0.2 for name, w in engine.model.state_dict().items()})
    after = asyncio.run(policy.propose(history, 1, seed=0, temperature=0.0))[0]
    assert (before.policy_version, after.policy_version) == (0, 1)
    np.testing.assert_allclose(after.logps, _plain_logps(engine, after.prompt_ids, after.token_ids), atol=2e-5)
    assert not np.allclose(before.logps[:1], after.logps[:1])


def test_publish_forgets_prefixes_of_the_old_weights(checkpoint: Path) -> None:
    engine, fresh = TransformersEngine(checkpoint), TransformersEngine(checkpoint, prefix_cache_bytes=0)
    prompt = np.arange(5, 55, dtype=np.int32)
    engine.generate([prompt], 1, seeds=[0])
    changed = {name: 0.5 * p for name, p in engine.model.state_dict().items() if name != "lm_head.weight"}
    for each in (engine, fresh):
        each.publish(changed)
    a, b = (each.generate([prompt], 1, seeds=[0])[0][0] for each in (engine, fresh))
    np.testing.assert_array_equal(a.logps, b.logps)


def test_encode_uses_the_chat_template_without_a_second_bos(engine: TransformersEngine) -> None:
    messages = policy_messages(History("book", Observation("link Blue [3]")))
    ids = engine.renderer.encode(messages)
    text = engine.renderer.tokenizer.decode(ids.tolist())
    assert text.startswith("<|user|>HISTORY:") and text.endswith("<|assistant|>")
    assert text.count("<|user|>") == 1


def test_a_history_too_long_for_the_context_loses_its_oldest_actions(engine: TransformersEngine) -> None:
    page = Observation("link Blue [3]")
    short, long = (History("book", page, tuple(f"CLICK [{i}]" for i in range(n))) for n in (2, 400))
    whole = engine.render(short, policy_messages, max_new_tokens=8).ids
    assert whole.tolist() == engine.renderer.encode(policy_messages(short)).tolist()
    shortened = engine.render(long, policy_messages, max_new_tokens=8)
    cut = shortened.ids
    text = engine.renderer.tokenizer.decode(cut.tolist())
    action = len(engine.renderer.encode(policy_messages(long))) / 400  # tokens; four go at a time
    assert engine.renderer.context_tokens - 4 * action - 20 < len(cut) + 8 <= engine.renderer.context_tokens
    assert "CLICK [399]" in text and "CLICK [0]" not in text and "link Blue [3]" in text
    kept = [f"CLICK [{i}]" for i in range(400) if f"CLICK [{i}]" in text]
    assert shortened.shortened == 400 - len(kept) and kept[-1] == "CLICK [399]" and shortened.shortened % 4 == 0
    lost = {
        engine.render(replace(long, actions=long.actions[:n]), policy_messages, max_new_tokens=8).shortened
        for n in range(393, 401)
    }
    assert len(lost) in (2, 3)  # of eight steps in a row: their prompts begin alike four by four
    before = engine.usage.of("policy").shortened
    policy = ModelPolicy(engine, max_new_tokens=8)
    assert asyncio.run(policy.propose(long, 1, seed=0))[0].token_ids.size
    assert asyncio.run(policy.propose(short, 1, seed=0)) and engine.usage.of("policy").shortened == before + 1


@pytest.mark.parametrize("text", ["a  b\tc\r\n\n [12] x7:30 é漢 <b>", "  ", "\x00\x7f", "TYPE [1] 555-0134"])
def test_tokenizer_keeps_any_text(engine: TransformersEngine, text: str) -> None:
    assert engine.renderer.tokenizer.decode(engine.renderer.tokenizer(text)["input_ids"]) == text


def test_load_checkpoint_names_a_missing_or_unfitting_checkpoint(checkpoint: Path, tmp_path: Path) -> None:
    must = "must be a transformers checkpoint by name or path, or a server's, https://HOST/v1#MODEL; got "
    with pytest.raises(ModelError, match=must):
        TransformersEngine(tmp_path / "nothing")
    tokenizer = TransformersEngine(checkpoint).renderer.tokenizer
    tokenizer.add_tokens([f"new{i}" for i in range(5)])
    model = LlamaForCausalLM.from_pretrained(checkpoint)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="the tokenizer must fit the model"):
        TransformersEngine(tmp_path)


def test_load_checkpoint_does_not_blame_a_checkpoint_for_want_of_memory(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def starved(*_: object, **__: object) -> None:
        raise RuntimeError("Cannot allocate memory (os error 12)")

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", starved)
    with pytest.raises(MemoryError, match="Cannot allocate memory"):
        load_checkpoint(checkpoint, device="cpu", dtype="auto")


def test_load_checkpoint_refuses_one_that_lacks_a_weight(checkpoint: Path, tmp_path: Path) -> None:
    shutil.copytree(checkpoint, tmp_path / "partial")
    file = tmp_path / "partial" / "model.safetensors"
    weights = load_file(file)
    del weights["model.layers.0.mlp.up_proj.weight"]
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"must hold every weight; got .*partial without 1, such as model\.layers\.0"):
        TransformersEngine(tmp_path / "partial")


def test_agreement_is_the_distance_to_a_learner(checkpoint: Path, engine: TransformersEngine) -> None:
    samples = asyncio.run(probe(engine, [Prompt([], ids) for ids in PROMPTS], k=2, max_new_tokens=6))
    learner = Learner.from_checkpoint(checkpoint, learning_rate=1e-3)
    found = agreement(samples, learner.recompute_logps)
    assert found.mean <= found.max < 2e-5 and found.num_tokens == sum(len(s.token_ids) for s in samples)
    off = [replace(s, logps=s.logps + (0.5 if i == 0 else 0)) for i, s in enumerate(samples)]
    apart = agreement(off, learner.recompute_logps)
    assert apart.max == pytest.approx(0.5, abs=1e-4)
    assert apart.mean == pytest.approx(0.5 * len(samples[0].token_ids) / found.num_tokens, abs=1e-4)


def test_the_last_line_of_an_error_is_never_pydantics_link() -> None:
    with pytest.raises(ValidationError) as raised:
        ModelSettings(threads="many")
    assert "https" in str(raised.value) and "https" not in last_line(raised.value)
    assert last_line(OSError("one\ntwo\n")) == "two" and last_line(OSError()) == "OSError"
