"""Actions held to the grammar: the pattern says what the parser reads, engines keep to it, log-probabilities stay."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentq.agent.actions import format_action, parse_action
from agentq.agent.patterns import action_pattern
from agentq.agent.prompts import policy_messages
from agentq.errors import ConfigError, ModelError
from agentq.policies.model_policy import ModelPolicy
from agentq.policies.openai_engine import OpenAIEngine
from agentq.policies.protocol import SampleRequest
from agentq.policies.transformers_engine import TransformersEngine
from agentq.recipes.settings import RECIPES
from agentq.types import (
    BROWSER_COMMANDS,
    ELEMENT_COMMANDS,
    SEEN_COMMANDS,
    Command,
    EnvAction,
    History,
    Observation,
    Status,
    StopReason,
)
from agentq.verbs import INPUT_COMMANDS
from tests.openai_factory import fake_openai
from tests.reads import made
from tests.scripted_engine import Scripted

PAGE = """heading Tables [9] for you
link Home [1]
textbox Name [2]: Ann [7]
combobox Party [3]: 2
button Find [12] (disabled)
checkbox I agree [4]: checked
text see note [5]
alert Phone [6] is required"""
HISTORY = History("book", Observation(PAGE), ("COMMANDS: CLICK [1]",))
FITS = {
    Command.TYPE: {2},
    Command.CLEAR: {2},
    Command.SELECT: {3},
    **{each: {1, 2, 3, 4, 12} for each in ELEMENT_COMMANDS - {Command.TYPE, Command.CLEAR, Command.SELECT}},
}
FULL = History("book", HISTORY.observation, commands=BROWSER_COMMANDS)


@settings(max_examples=300)
@given(st.from_regex(re.compile(action_pattern(HISTORY)), fullmatch=True))
def test_what_matches_is_read_as_an_action_on_the_page(text: str) -> None:
    action = parse_action(text)
    assert action.parse_error is None and action.env_action is not None
    if action.env_action.command in ELEMENT_COMMANDS:
        assert action.env_action.element in FITS[action.env_action.command]


@pytest.mark.parametrize("command", Command)
def test_what_an_agent_may_say_matches(command: Command) -> None:
    texts = {
        Command.TYPE: ["Ann Clark", "555-0134", "a [4] b"],
        Command.SELECT: ["June 17"],
        Command.GOTO: ["/", "https://shop.test/a?b=c"],
        Command.SCROLL: ["UP", "DOWN"],
        Command.ASK_USER: ["which one ?"],
        Command.DRAG: ["TO [4]", "BY 40 -10"],
        Command.PRESS: ["Control+A", "ArrowUp 12"],
        Command.UPLOAD: ["photo.png"],
        Command.FIND: ["total due"],
        Command.WAIT: ["1", "10"],
        Command.TAB: ["2", "CLOSE 2"],
        Command.DIALOG: ["ACCEPT", "ACCEPT Ann Clark", "DISMISS"],
    }.get(command, [None])
    for number in range(14) if command in FITS else [None]:
        for text in texts:
            action = EnvAction(command, number, text)
            for history in (HISTORY, History("book", HISTORY.observation, commands=INPUT_COMMANDS), FULL):
                known = command not in BROWSER_COMMANDS + SEEN_COMMANDS or command in history.commands
                if history is FULL and command in (Command.TYPE, Command.CLEAR, Command.SELECT):
                    continue  # see below
                fits = command not in FITS or number in FITS[command]
                for said in (
                    format_action(action),
                    format_action(action, thought="I go", explanation="so", status=Status.DONE),
                ):
                    assert (re.fullmatch(action_pattern(history), said) is not None) is (known and fits), said


def test_controls_of_a_page_read_in_full_may_be_used() -> None:
    """Indented, in lists and in table rows; fields besides text boxes."""
    page = """main
 - link Home [1]
  searchbox Search [2]: a (required)
 row Ann | button Edit [3] link Mail [4] | checkbox pick [5]: checked (required)
 text no [6]
  combobox City [7] (collapsed)
window: 0 lines above, 2 below, 0 left out"""
    pattern = action_pattern(History("x", Observation(page), ("COMMANDS: BACK",), BROWSER_COMMANDS))
    right = [f"CLICK [{n}]" for n in (1, 2, 3, 4, 5, 7)] + [
        "TYPE [2] b",
        "TYPE [7] Ro",
        "SELECT [7] Rome",
        "SCROLL [4]",
    ]
    for command in (*right, "CLICK [6]", "TYPE [3] a", "SCROLL [6]"):
        assert bool(re.fullmatch(pattern, f"COMMANDS: {command}")) is (command in right), command


def test_a_plan_is_for_the_first_step_and_a_page_may_have_nothing() -> None:
    stop = format_action(EnvAction(Command.STOP), plan="go")
    first = History("book", Observation("heading none"))
    assert re.fullmatch(action_pattern(first), stop)
    assert not re.fullmatch(action_pattern(HISTORY), stop)
    assert not re.fullmatch(action_pattern(first), "COMMANDS: CLICK [1]")
    for broken in ("COMMANDS: TYPE [2]", "COMMANDS: TYPE [2] []", "COMMANDS: CLICK [1] now", "COMMANDS: CLICK [1]\n"):
        assert not re.fullmatch(action_pattern(HISTORY), broken)


@pytest.mark.parametrize("temperature", [0.0, 3.0])
def test_an_engine_keeps_answers_to_their_pattern_and_tells_the_free_models_logps(
    base: Path, temperature: float
) -> None:
    engine = TransformersEngine(base)
    prompt = engine.render(HISTORY, policy_messages, max_new_tokens=40)
    pattern = r"(yes|no), [0-9]{2,4}\n[ab]+ COMMANDS: CLICK \[(3|12)\]"
    held = SampleRequest(prompt, 4, 7, temperature, 40, pattern=pattern)
    free = SampleRequest(prompt, 4, 7, temperature, 40)
    alone = asyncio.run(engine.sample(free))

    async def both() -> list[list]:
        return list(await asyncio.gather(engine.sample(held), engine.sample(free)))

    samples, beside = asyncio.run(both())
    assert [s.text for s in beside] == [s.text for s in alone]  # no other rollout is held
    ended = [s for s in samples if s.stop_reason is StopReason.EOS]
    for sample in ended:
        assert re.fullmatch(pattern, sample.text), sample.text
    for sample in samples:
        assert sample.stop_reason is StopReason.EOS or len(sample.token_ids) == 40
        assert re.fullmatch("(yes|no).*", sample.text, re.DOTALL)
        ids = torch.tensor(np.concatenate([prompt.ids, sample.token_ids]), dtype=torch.long)[None]
        with torch.no_grad():
            logps = torch.log_softmax(engine.model(ids).logits[0].float(), dim=-1)
        at = torch.arange(len(prompt.ids) - 1, ids.shape[1] - 1)
        np.testing.assert_allclose(sample.logps, logps[at, ids[0, 1:][at]].numpy(), atol=2e-4)


def test_a_constrained_policy_says_only_what_can_be_read(base: Path) -> None:
    """What the tiny checkpoint says freely at this temperature is mostly noise."""
    engine = TransformersEngine(base)

    def said(constrained: bool) -> list[bool]:
        policy = ModelPolicy(engine, constrained=constrained, max_new_tokens=160)
        proposals = asyncio.run(policy.propose(HISTORY, 8, seed=3, temperature=2.0))
        return [p.action.env_action is not None for p in proposals if p.stop_reason is StopReason.EOS]

    assert said(True) and all(said(True))
    assert not all(said(False))


def test_what_is_no_pattern_is_refused(base: Path) -> None:
    engine = TransformersEngine(base)
    prompt = engine.render(HISTORY, policy_messages, max_new_tokens=4)
    with pytest.raises(ModelError, match="a pattern must be a regular expression; got '\\(a'"):
        asyncio.run(engine.sample(SampleRequest(prompt, pattern="(a", max_new_tokens=4)))


def test_an_engine_that_cannot_is_refused_at_once() -> None:
    with pytest.raises(
        ConfigError, match=r"restrict answers to a pattern; got scripted: turn run\.constrained off, or "
    ):
        ModelPolicy(Scripted(lambda role, text: ""), constrained=True)


def test_a_server_is_sent_the_pattern_and_must_keep_to_it(base: Path) -> None:
    from transformers import AutoTokenizer

    with fake_openai(tokenizer=AutoTokenizer.from_pretrained(base)) as fake:
        engine = OpenAIEngine(fake.url, tokenizer=base)
        prompt = engine.render(HISTORY, policy_messages, max_new_tokens=40)
        (sample,) = asyncio.run(engine.sample(SampleRequest(prompt, max_new_tokens=40, pattern=r"(.|\n)*")))
        assert fake.asked[-1]["structured_outputs"] == {"regex": r"(.|\n)*"}
        assert sample.text and len(sample.token_ids) == len(sample.logps) == 0  # vLLM's are those of the held model
        with pytest.raises(
            ModelError, match=r"must restrict answers to a pattern.*: update the server, or turn run\.constrained off"
        ):
            asyncio.run(engine.sample(SampleRequest(prompt, max_new_tokens=40, pattern="never")))
        asyncio.run(engine.sample(SampleRequest(prompt, max_new_tokens=40)))
        assert "structured_outputs" not in fake.asked[-1]
        engine.close()
    with fake_openai() as chat:
        engine = OpenAIEngine(chat.url)
        with pytest.raises(ConfigError, match="constrained actions need an engine"):
            ModelPolicy(engine, constrained=True)
        engine.close()


def test_ratios_are_refused_for_constrained_actions() -> None:
    with pytest.raises(ConfigError, match=r"run.constrained must be false for loop"):
        made(RECIPES["loop"], ["--run.constrained=true"], command="train loop")
