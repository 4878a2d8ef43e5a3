"""Thinking by control tokens or begun in the prompt, the ends of answers, and pages longer than the context."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tokenizers import AddedToken

from agentq.agent.actions import history_text, parse_action
from agentq.agent.prompts import critic_messages, policy_messages
from agentq.agent.thinking import begun, is_mark, spoken
from agentq.agent.verdicts import parse_judgement
from agentq.base.tokenizer import train_tokenizer
from agentq.critics.judge import NO_RUBRIC, OutcomeJudge
from agentq.critics.ranker import LLMRanker
from agentq.errors import ModelError
from agentq.learn.thinking import thinking_tokens
from agentq.policies.fitting import PAGE_END
from agentq.policies.model_policy import ModelPolicy
from agentq.policies.protocol import Gives, Prompt, SampledAnswer, SampleRequest
from agentq.policies.renderer import Renderer
from agentq.policies.usage import Usage
from agentq.types import Command, EnvAction, History, Observation, PreferencePair, StopReason

ACTION = "COMMANDS: CLICK [3]\nSTATUS: CONTINUE"
OTHER = "I could write\nCOMMANDS: CLICK [7]\nSTATUS: CONTINUE\nbut 7 is Delete"
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\nTHINK{% endif %}"
)
HARMONY = "<|channel|>analysis<|message|>{}<|end|><|start|>assistant<|channel|>final<|message|>{}<|return|>"
HISTORY = History("book", Observation("button Buy [3]\nbutton Delete [7]"))


def make_renderer(
    special: list[str], plain: tuple[str, ...] = (), *, thinks: str = "", context: int = 4096
) -> Renderer:
    """A renderer whose first special token ends answers; `thinks`: what its template's answers begin with."""
    texts = [f"{ACTION} {OTHER} analysis final user assistant"] * 9
    tokenizer = train_tokenizer(texts, vocab_size=420, context_tokens=context)
    tokenizer.add_special_tokens({"additional_special_tokens": special})
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in plain])
    tokenizer.eos_token = special[0]
    tokenizer.chat_template = CHATML.replace("THINK", thinks)
    return Renderer(tokenizer, [tokenizer.eos_token_id], context)


def ids_of(renderer: Renderer, text: str) -> np.ndarray:
    return np.asarray(renderer.tokenizer(text, add_special_tokens=False)["input_ids"], np.int32)


class Says:
    """An engine that always gives one answer."""

    name, gives, version = "says", Gives.TOKEN_IDS | Gives.LOGPS, 0

    def __init__(self, renderer: Renderer, text: str, stop_reason: StopReason) -> None:
        self.renderer, self.ids, self.stop_reason = renderer, ids_of(renderer, text), stop_reason
        self.usage = Usage()

    def render(self, history: History, compose: Any, *, max_new_tokens: int) -> Prompt:
        return self.renderer.render(history, compose, max_new_tokens=max_new_tokens)

    async def sample(self, request: SampleRequest) -> list[SampledAnswer]:
        logps = np.zeros(len(self.ids), np.float32)
        return [SampledAnswer(self.renderer.decode(self.ids), self.ids, logps, self.stop_reason, 0)] * request.k


@pytest.mark.parametrize(
    ("special", "raw", "action"),
    [
        (
            ["<|return|>", "<|start|>", "<|end|>", "<|message|>", "<|channel|>"],
            HARMONY.format(OTHER, ACTION),
            "CLICK [3]",
        ),
        (["<|return|>", "<|message|>", "<|channel|>"], f"<|channel|>analysis<|message|>{OTHER}", None),
        (["</s>", "[THINK]", "[/THINK]"], f"[THINK]{OTHER}[/THINK]{ACTION}</s>", "CLICK [3]"),
        (
            ["<|eot|>", "<|START_THINKING|>", "<|END_THINKING|>"],
            f"<|START_THINKING|>{OTHER}<|END_THINKING|>{ACTION}",
            "CLICK [3]",
        ),
        (
            ["<|endoftext|>", "<|im_end|>", "<|im_start|>"],
            f"{ACTION}<|im_end|>\n<|im_start|>user\n{OTHER}",
            "CLICK [3]",
        ),
        (["<|eot|>"], f"<seed:think>{OTHER}</seed:think>{ACTION}<|eot|>", "CLICK [3]"),
        (["<eos>", "<|channel>", "<channel|>"], f"<|channel>thought\n{OTHER}\n<channel|>{ACTION}<eos>", "CLICK [3]"),
        (["<eos>", "<|channel>", "<channel|>"], f"<|channel>thought\n<channel|>{ACTION}<eos>", "CLICK [3]"),
        (["<eos>", "<|channel>", "<channel|>"], f"<|channel>thought\n{OTHER}", None),
        (["<|eot|>", "<|odd|>"], "COMMANDS: <|odd|>CLICK [3]\nSTATUS: CONTINUE<|eot|>", "CLICK [3]"),
    ],
    ids=[
        *("harmony", "harmony, cut off", "[THINK]", "START_THINKING", "an imagined turn", "seed"),
        *("channel", "channel, empty", "channel, cut off", "no mark"),
    ],
)
def test_marks_that_are_control_tokens_are_read(special: list[str], raw: str, action: str | None) -> None:
    renderer = make_renderer(special)
    text = renderer.decode(ids_of(renderer, raw))
    read = parse_action(text)
    assert (str(read.env_action) if read.env_action else None) == action
    assert "Delete" not in history_text(read) and special[0] not in text


def test_thinking_in_channels_is_left_out_of_the_loss() -> None:
    for special, raw in (
        (["<|return|>", "<|start|>", "<|end|>", "<|message|>", "<|channel|>"], HARMONY.format(OTHER, ACTION)),
        (["<eos>", "<|channel>", "<channel|>"], f"<|channel>thought\n{OTHER}<channel|>{ACTION}<eos>"),
    ):
        renderer = make_renderer(special)
        ids = ids_of(renderer, raw)
        kept = ids[thinking_tokens(ids, renderer.tokenizer) :]
        assert renderer.tokenizer.decode(kept.tolist()) == f"{ACTION}{special[0]}"


def test_marks_of_channels_are_known() -> None:
    assert all(is_mark(mark) for mark in ("<|channel>", "<channel|>", "<|channel|>", "<|message|>"))
    assert begun("<|turn>model\n<|channel>thought\n") == "<|channel>thought\n"
    assert begun("<|turn>model\n<|channel>thought\n<channel|>") == ""
    assert spoken("A <channel> has the text `<channel|>`.") == ("A <channel> has the text `<channel|>`.", ())


def test_the_end_of_a_prompt_begins_thinking() -> None:
    assert [begun(text) for text in ("assistant\n<think>\n", "[THINK]", "<think>\n\n</think>\n\n", "think")] == [
        "<think>\n",
        "[THINK]",
        "",
        "",
    ]
    assert make_renderer(["<|im_end|>", "<|im_start|>"], ("<think>",), thinks="<think>\n").thinking == "<think>\n"
    assert make_renderer(["<|im_end|>", "<|im_start|>"]).thinking == ""


@pytest.mark.parametrize(
    ("text", "stop", "action"),
    [
        (OTHER, StopReason.LENGTH, None),
        (f"{OTHER}\n</think>\n{ACTION}", StopReason.LENGTH, "CLICK [3]"),
        (f"{OTHER}\n</think>\n{ACTION}", StopReason.EOS, "CLICK [3]"),
        (ACTION, StopReason.EOS, "CLICK [3]"),  # as after training on demonstrations, which do not think
    ],
)
def test_thinking_that_begins_in_the_prompt_and_is_cut_off_is_no_action(
    text: str, stop: StopReason, action: str | None
) -> None:
    renderer = make_renderer(["<|im_end|>", "<|im_start|>"], ("<think>", "</think>"), thinks="<think>\n")
    engine: Any = Says(renderer, text, stop)
    (proposal,) = asyncio.run(ModelPolicy(engine).propose(HISTORY, 1, seed=0))
    assert (str(proposal.action.env_action) if proposal.action.env_action else None) == action
    assert "Delete" not in history_text(proposal.action)


def test_a_critic_and_a_judge_that_are_cut_off_in_their_thoughts_say_nothing() -> None:
    renderer = make_renderer(["<|im_end|>", "<|im_start|>"], ("<think>", "</think>"), thinks="<think>\n")
    said = "Perhaps\nBEST: B\n- the date: YES\nHmm, B deletes"
    assert parse_judgement(said) == [("the date", True)]
    engine: Any = Says(renderer, said, StopReason.LENGTH)
    ranker = LLMRanker(engine)
    proposals = [EnvAction(Command.CLICK, 3), EnvAction(Command.CLICK, 7)]
    assert asyncio.run(ranker.rank(HISTORY, proposals, seed=0)) == [0.5, 0.5] and ranker.stats.fallbacks == 1
    assert asyncio.run(OutcomeJudge(engine).judge(HISTORY)).findings == ()
    assert engine.usage.faults == {NO_RUBRIC: 1}


@pytest.mark.parametrize("page", ["row of a long table [12]\n" * 400, "x" * 5000, "long words " * 900 + "y" * 3000])
def test_a_page_longer_than_the_context_loses_its_end(page: str) -> None:
    renderer = make_renderer(["<|im_end|>", "<|im_start|>"], context=1500)
    history = replace(HISTORY, observation=Observation(f"heading Top [1]\n{page}"), actions=(ACTION,) * 9)
    for compose in (policy_messages, lambda h: critic_messages(h, [EnvAction(Command.CLICK, 3), None])):
        prompt = renderer.render(history, compose, max_new_tokens=96)
        text = renderer.tokenizer.decode(prompt.ids.tolist())
        renderer.check(prompt.ids, 96)
        assert "heading Top [1]" in text and PAGE_END.strip() in text and prompt.shortened == 10
        assert text.count("[12") == text.count("[12]")
    if page.startswith("row"):
        assert len(prompt.ids) > 1300  # no more is cut than must be


def test_a_first_page_that_stays_is_cut_too_and_what_never_fits_is_refused() -> None:
    renderer = make_renderer(["<|im_end|>", "<|im_start|>"], context=1500)
    long = "a long first page " * 900
    history = replace(HISTORY, keeps_pages=True).then(ACTION, Observation(long))
    history = replace(history, pages=(long,))
    prompt = renderer.render(history, policy_messages, max_new_tokens=96)
    renderer.check(prompt.ids, 96)
    prompt = renderer.render(replace(HISTORY, instruction=long), policy_messages, max_new_tokens=96)
    with pytest.raises(ModelError, match="a prompt must have 1 to 1404 tokens"):
        renderer.check(prompt.ids, 96)


def test_own_answers_keep_their_thinking_and_calls_but_not_turns() -> None:
    tokenizer = make_renderer(
        ["<|im_end|>", "<|im_start|>", "[THINK]"], ("<think>", "</think>", "<tool_call>")
    ).tokenizer
    text = "<think>I add.</think><tool_call>[THINK]<|im_start|>user"
    sample = PreferencePair.from_text("What is 2 + 3?", text, "It depends.", tokenizer).chosen[0]
    assert tokenizer.decode(sample.token_ids.tolist()) == (
        "<think>I add.</think><tool_call>[THINK]< |im_start|>user<|im_end|>"
    )
    known = tokenizer.convert_tokens_to_ids(["<think>", "</think>", "<tool_call>", "[THINK]"])
    assert set(known) <= set(sample.token_ids.tolist())


def test_the_end_that_the_template_writes_ends_answers_though_the_generation_config_forgets_it() -> None:
    tokenizer = make_renderer(["<|im_end|>", "<|im_start|>", "<|endoftext|>"]).tokenizer
    other, own = tokenizer.convert_tokens_to_ids(["<|endoftext|>", "<|im_end|>"])
    assert Renderer(tokenizer, [other], 4096).end_ids == [own, other]
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}<|endoftext|>{% endfor %}"
    assert Renderer(tokenizer, [other], 4096).end_ids == [other]
