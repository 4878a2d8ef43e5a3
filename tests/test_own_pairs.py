"""Preference pairs made of text, and the reference that the learner computes for them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentq.agent.prompts import policy_messages
from agentq.errors import ModelError
from agentq.learn import steps
from agentq.learn.learner import Learner
from agentq.learn.steps import with_reference
from agentq.policies.transformers_engine import TransformersEngine
from agentq.types import History, Observation, PreferencePair

HISTORY = History("Go on", Observation("button Go [1]", "/"))
TEXTS = ("COMMANDS: CLICK [1]", "COMMANDS: STOP")


@pytest.fixture
def learner(base: Path, request: pytest.FixtureRequest) -> Learner:
    return Learner.from_checkpoint(base, learning_rate=1e-3, lora_rank=getattr(request, "param", 0))


def pair_of(learner: Learner, prompt: Any = "What is 2 + 3?", *texts: str) -> PreferencePair:
    return PreferencePair.from_text(prompt, *(texts or ("5", "It depends.")), learner.tokenizer)


def test_from_text_has_the_tokens_that_a_policy_would_have(learner: Learner, base: Path) -> None:
    engine = TransformersEngine(base)
    pair = pair_of(learner, policy_messages(HISTORY), *TEXTS)
    prompt = engine.render(HISTORY, policy_messages, max_new_tokens=96).ids
    for (sample,), text in ((pair.chosen, TEXTS[0]), (pair.rejected, TEXTS[1])):
        np.testing.assert_array_equal(sample.prompt_ids, prompt)
        np.testing.assert_array_equal(sample.token_ids, engine.encode_answer(text))
        assert len(sample.logps) == len(sample.token_ids) and np.isnan(sample.logps).all()
    assert pair.gap == 1.0


def test_from_text_takes_a_text_as_a_users_message_and_refuses_what_is_no_pair(learner: Learner) -> None:
    messages = [{"role": "user", "content": "What is 2 + 3?"}]
    np.testing.assert_array_equal(
        pair_of(learner).chosen[0].prompt_ids, pair_of(learner, messages).chosen[0].prompt_ids
    )
    with pytest.raises(ValueError, match="chosen and rejected must differ; got '5' twice"):
        pair_of(learner, "?", "5", "5")
    with pytest.raises(ModelError, match="the tokenizer must name an eos token; got none in NoneType"):
        PreferencePair.from_text("?", "a", "b", None)


@pytest.mark.parametrize("learner", [0, 4], indirect=True)
def test_step_dpo_takes_the_weights_before_the_first_step_as_reference(learner: Learner) -> None:
    pairs = [pair_of(learner), pair_of(learner, "Go?", "yes", "no")]
    known = learner.recompute_reference(pairs)
    own = [learner.step_dpo(pairs, beta=0.1) for _ in range(3)]
    assert own[0]["loss"] == pytest.approx(math.log(2), abs=1e-6)
    again = Learner.from_checkpoint(
        Path(learner.tokenizer.name_or_path), learning_rate=1e-3, lora_rank=learner.lora_rank
    )
    assert [again.step_dpo(known, beta=0.1)["loss"] for _ in range(3)] == pytest.approx(
        [m["loss"] for m in own], abs=1e-6
    )
    assert all(np.isnan(s.logps).all() for pair in pairs for s in (*pair.chosen, *pair.rejected))  # yours stay


def test_a_pair_that_comes_too_late_is_refused_in_one_line(learner: Learner) -> None:
    learner.step_dpo([pair_of(learner)], beta=0.1)
    new = [pair_of(learner, "Go?", "yes", "no")]
    with pytest.raises(
        ValueError, match=r"before the first step; got 2 actions .* after 1 steps: .*recompute_reference"
    ):
        learner.step_dpo(new, beta=0.1)
    learner.step_dpo([pair_of(learner)], beta=0.1)
    learner.step_dpo(learner.recompute_reference(new), beta=0.1)


@pytest.mark.parametrize("learner", [4], indirect=True)
def test_adapters_have_their_reference_below_them_at_any_time(learner: Learner) -> None:
    late = pair_of(learner, "Go?", "yes", "no")
    (known,) = learner.recompute_reference([late])
    for _ in range(3):
        learner.step_dpo([pair_of(learner)], beta=0.1)
    own = learner.step_dpo([late], beta=0.1)
    rewards = 0.1 * (own["logps/chosen"] - known.chosen[0].logps.sum())
    assert own["rewards/chosen"] == pytest.approx(rewards, abs=1e-5)


@pytest.mark.parametrize(("learner", "kept"), [(4, 2), (0, 6)], indirect=["learner"])
def test_a_learner_with_adapters_keeps_the_newest_references(
    learner: Learner, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "KEPT", 2)
    pairs = [pair_of(learner, f"Go {i}?", "yes", "no") for i in range(3)]
    first = with_reference(learner, pairs)
    assert len(learner.reference) == kept
    for one, again in zip(first, with_reference(learner, pairs[:1]), strict=False):
        np.testing.assert_allclose(one.chosen[0].logps, again.chosen[0].logps, atol=1e-6)
    assert len(learner.reference) == kept
