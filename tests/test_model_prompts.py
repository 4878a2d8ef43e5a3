"""What chat models bring along: thinking, several end tokens, stops, templates with dates and rules of their own."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from agentq.agent.prompts import Messages
from agentq.base.tokenizer import train_tokenizer
from agentq.errors import ConfigError, ModelError
from agentq.learn.thinking import thinking_tokens, without_thinking
from agentq.model_settings import ModelSettings
from agentq.policies.engine_names import make_engine
from agentq.policies.protocol import Prompt, SampleRequest
from agentq.policies.renderer import Renderer, load_renderer
from agentq.policies.transformers_engine import TransformersEngine
from agentq.recipes.prompted import policy_of
from agentq.types import CreditedTrajectory, History, Observation, PreferencePair, Sample, StopReason

HISTORY = History("book", Observation("link Blue [3]"))
CHAT: Messages = [{"role": "system", "content": "rules"}, {"role": "user", "content": "act"}]
TEXT = "THOUGHT: go\nCOMMANDS: CLICK [3]\nSTATUS: CONTINUE </think> <think> 7:30"


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    found = train_tokenizer([TEXT] * 9, vocab_size=400, context_tokens=512)
    found.add_special_tokens({"additional_special_tokens": ["<|eot|>"]})
    return found


def tokens(tokenizer: Any, text: str) -> np.ndarray:
    return np.array(tokenizer(text, add_special_tokens=False)["input_ids"], np.int32)


def answer(tokenizer: Any, text: str) -> Sample:
    ids = tokens(tokenizer, text)
    return Sample(np.array([5, 6], np.int32), ids, -np.arange(len(ids), dtype=np.float32))


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("<think> go 7:30 </think>\nCOMMANDS: CLICK [3]", "\nCOMMANDS: CLICK [3]"),
        ("go 7:30 </think>COMMANDS: CLICK [3]", "COMMANDS: CLICK [3]"),  # the template has begun the block
        ("COMMANDS: CLICK [3]", "COMMANDS: CLICK [3]"),
        ("<think> go 7:30", "<think> go 7:30"),  # cut off: nothing else is there to learn from
    ],
)
def test_thinking_is_left_out_of_the_loss_and_stays_in_the_prompt(tokenizer: Any, text: str, kept: str) -> None:
    whole = answer(tokenizer, text)
    cut = without_thinking(whole, tokenizer)
    assert tokenizer.decode(cut.token_ids.tolist()) == kept
    for a, b in ((cut.prompt_ids, whole.prompt_ids), (cut.token_ids, whole.token_ids)):
        assert len(a) >= 1 and (a is not b)
    joined = [np.concatenate([s.prompt_ids, s.token_ids]).tolist() for s in (cut, whole)]
    assert joined[0] == joined[1] and cut.logps.tolist() == whole.logps[len(whole.logps) - len(cut.logps) :].tolist()


def test_an_answer_of_thinking_alone_keeps_a_token(tokenizer: Any) -> None:
    ids = tokens(tokenizer, "<think> go </think>")
    assert thinking_tokens(ids, tokenizer) == len(ids) - 1


def test_pairs_and_trajectories_lose_the_thinking_of_every_turn(tokenizer: Any) -> None:
    thought, plain = (answer(tokenizer, text) for text in ("<think> go </think>CLICK [3]", "CLICK [3]"))
    pair = without_thinking(PreferencePair((thought, plain), (thought,), 1.0), tokenizer)
    assert [len(s.token_ids) for s in (*pair.chosen, *pair.rejected)] == [len(plain.token_ids)] * 3
    known = tuple(s.logps - 1 for s in (thought, plain))
    item = CreditedTrajectory((thought, plain), np.ones(2), known, known)
    cut = without_thinking(item, tokenizer)
    assert cut.reference is not None and cut.sampled is not None
    for s, reference, sampled in zip(cut.samples, cut.reference, cut.sampled, strict=True):
        assert len(s.token_ids) == len(s.logps) == len(plain.token_ids)
        assert (s.logps - 1).tolist() == reference.tolist() == sampled.tolist()


def test_templates_get_their_arguments_and_the_same_day_for_ever(tokenizer: Any) -> None:
    tokenizer.chat_template = (
        "{{ strftime_now('%d %B %Y') }} {{ date_string }}{% if enable_thinking is defined and not enable_thinking %} no"
        " thinking{% endif %}{% for m in messages %}|{{ m.role }}:{{ m.content }}{% endfor %}"
    )
    shown = [
        tokenizer.decode(Renderer(tokenizer, [3], 512, **more).encode(CHAT).tolist())
        for more in ({}, {"template": {"enable_thinking": False}}, {"template": {"date_string": "never"}})
    ]
    assert shown[0].startswith("01 January 2025 01 Jan 2025|system:rules|user:act")
    assert shown[1].startswith("01 January 2025 01 Jan 2025 no thinking|") and "2025 never|" in shown[2]


STRICT = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}"
    "[{{ m.role }}] {{ m.content }}{% endfor %}"
)


def test_a_template_that_insists_on_turns_is_given_turns(tokenizer: Any) -> None:
    tokenizer.chat_template = STRICT
    renderer = Renderer(tokenizer, [3], 512)
    user, said = {"role": "user", "content": "more"}, {"role": "assistant", "content": "did"}
    text = tokenizer.decode(renderer.encode([*CHAT, user, said, user, user]).tolist())
    assert text == "[user] rules\n\nact\n\nmore[assistant] did[user] more\n\nmore"
    with pytest.raises(ModelError, match=r"must accept the prompt's roles, \['assistant'\]; got roles must alternate"):
        renderer.encode([said])


def test_an_answer_ends_with_the_token_that_the_template_writes(tokenizer: Any, tmp_path: Path) -> None:
    eot, eos = tokenizer.convert_tokens_to_ids("<|eot|>"), tokenizer.eos_token_id
    tokenizer.chat_template = "{% for m in messages %}[{{ m.role }}] {{ m.content }}<|eot|>{% endfor %}"
    assert Renderer(tokenizer, [eos, eot], 512).end_ids == [eot, eos]
    assert Renderer(tokenizer, [eos, eot], 512).encode_answer("go")[-1] == eot
    tokenizer.chat_template = None
    assert Renderer(tokenizer, [eot, eos], 512).end_ids == [eos, eot]
    tokenizer.save_pretrained(tmp_path)
    (tmp_path / "generation_config.json").write_text(f'{{"eos_token_id": [{eot}, {eos}]}}')
    assert load_renderer(tmp_path).end_ids == [eos, eot]  # as vLLM and servers end


def test_a_tokenizer_without_a_first_token_gets_none(tokenizer: Any) -> None:
    tokenizer.chat_template = "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %}"
    assert tokenizer.bos_token is None
    assert tokenizer.decode(Renderer(tokenizer, [3], 512).encode(CHAT).tolist()).startswith("[system] rules")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model, in bfloat16, whose words are long."""
    path = tmp_path_factory.mktemp("random")
    words = train_tokenizer([TEXT] * 9, vocab_size=400, context_tokens=1024)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=1024,
        initializer_range=0.3,
        eos_token_id=words.eos_token_id,
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(path)
    words.save_pretrained(path)
    return path


def test_bfloat16_samples_are_recorded_with_the_log_probabilities_they_were_drawn_with(checkpoint: Path) -> None:
    engine = TransformersEngine(checkpoint, dtype=torch.bfloat16)
    assert engine.told == {"device": "cpu", "dtype": "bfloat16", "attention": "sdpa", "threads": 1}
    prompt = np.arange(5, 40, dtype=np.int32)
    (answers,) = engine.generate([prompt], 4, seeds=[1], max_new_tokens=12)
    for said in answers:
        row = torch.from_numpy(np.concatenate([prompt, said.token_ids]).astype(np.int64))[None]
        with torch.inference_mode():
            every = torch.log_softmax(engine.model(row).logits[0].float(), -1)[len(prompt) - 1 : -1]
        wanted = every.gather(-1, row[0, len(prompt) :, None])[:, 0].numpy()
        assert np.abs(said.logps - wanted).max() < 0.2  # bfloat16 rounds; another token would differ by far more


def test_an_answer_stops_at_a_text(checkpoint: Path) -> None:
    engine, ids = TransformersEngine(checkpoint), np.arange(5, 40, dtype=np.int32)
    free = asyncio.run(engine.sample(SampleRequest(Prompt([], ids), 1, 3, 1.0, 40)))[0]
    stop = free.text[len(free.text) // 2 :][:2]
    at = free.text.index(stop)
    (cut,) = asyncio.run(engine.sample(SampleRequest(Prompt([], ids), 1, 3, 1.0, 40, stop=("never there", stop))))
    assert cut.text == free.text[:at] and cut.stop_reason is StopReason.EOS
    n = len(cut.token_ids)
    assert cut.token_ids.tolist() == free.token_ids[:n].tolist() and len(cut.logps) == n < len(free.token_ids)


OWN = """
from agentq.types import Action, Command, EnvAction, Status

def compose(history):
    return [{"role": "user", "content": f"My prompt. {history.instruction}"}]

def parse(text, cut=False):
    return Action(text, EnvAction(Command.CLICK, 7), status=Status.CONTINUE)

number = 3
"""


def test_a_prompt_and_a_grammar_of_ones_own(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    model = ModelSettings(prompt=f"{tmp_path}/own.py:compose", grammar=f"{tmp_path}/own.py:parse", max_new_tokens=5)
    engine = make_engine(checkpoint, model)
    (found,) = asyncio.run(policy_of(engine, model).propose(HISTORY, 1, seed=0))
    shown = engine.renderer.tokenizer.decode(found.prompt_ids.tolist())  # type: ignore[attr-defined]
    assert "My prompt. book" in shown and "OBSERVATION" not in shown
    assert str(found.action.env_action) == "CLICK [7]" and len(found.token_ids) <= 5
    for changes, message in (
        ({"prompt": f"{tmp_path}/no.py:compose"}, "model.prompt's file must exist; got"),
        ({"prompt": "compose"}, "model.prompt must be FILE.py:FUNCTION; got compose"),
        ({"grammar": f"{tmp_path}/own.py:number"}, "must define the function number; got int"),
    ):
        with pytest.raises(ConfigError, match=message):
            policy_of(engine, ModelSettings(**changes))
    with pytest.raises(ConfigError, match=r"run\.constrained must be false with your own grammar"):
        policy_of(engine, model, constrained=True)
