"""Servers that deviate from OpenAI's API: in what they refuse, in the form of their answers, and by rounding."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from transformers import AutoTokenizer

from agentq.agent.prompts import policy_messages
from agentq.critics.judge import OutcomeJudge
from agentq.critics.ranker import LLMRanker
from agentq.errors import ModelError
from agentq.policies import openai_engine, patience, refusals
from agentq.policies.engine_names import embedded_base
from agentq.policies.model_policy import ModelPolicy
from agentq.policies.openai_answers import Chat, read
from agentq.policies.openai_engine import OpenAIEngine
from agentq.policies.openai_probes import COLD
from agentq.policies.patience import BadAnswer
from agentq.policies.protocol import Gives, SampleRequest
from agentq.types import Command, EnvAction, History, Observation, Proposal, StopReason
from tests.openai_factory import FakeOpenAI, ask, fake_openai

Body = dict[str, Any]


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "FIRST_WAIT_S", 0.001)


@pytest.fixture
def chat() -> Iterator[FakeOpenAI]:
    with fake_openai() as fake:
        yield fake


@pytest.fixture
def vllm() -> Iterator[FakeOpenAI]:
    tokenizer = AutoTokenizer.from_pretrained(embedded_base())
    with fake_openai(tokenizer=tokenizer, root=embedded_base()) as fake:
        yield fake


@pytest.fixture
def open_engine() -> Iterator[Callable[[FakeOpenAI], OpenAIEngine]]:
    engines: list[OpenAIEngine] = []

    def make(fake: FakeOpenAI) -> OpenAIEngine:
        engines.append(OpenAIEngine(fake.url, patience_s=20.0))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


Open = Callable[[FakeOpenAI], OpenAIEngine]


def alone(fake: FakeOpenAI, seed: int) -> str:
    """The text of a request for one choice."""
    return str(
        fake._choice({**fake.asked[-1], "seed": seed}, fake.asked[-1]["messages"], 0, chat=True)["message"]["content"]
    )


# several choices


def four_slots(body: Body) -> str:
    refusal = "n_cmpl cannot be greater than the number of slots, please increase -np"  # llama.cpp
    return refusal if body["n"] > 4 else ""


def test_choices_are_asked_for_one_by_one_once_n_is_refused(chat: FakeOpenAI, open_engine: Open) -> None:
    chat.refuses = four_slots
    engine = open_engine(chat)
    before = len(chat.asked)
    samples = ask(engine, k=5)
    assert [body["n"] for body in chat.asked[before:]] == [5, 1, 1, 1, 1, 1]
    assert sorted(body["seed"] for body in chat.asked[before + 1 :]) == [5, 6, 7, 8, 9]
    assert [s.text for s in samples] == [alone(chat, seed) for seed in range(5, 10)]
    assert engine.usage.total.generated_tokens == 5 * 7 and not engine.usage.faults
    ask(engine, k=3)
    assert [body["n"] for body in chat.asked[before + 6 :]] == [1, 1, 1]  # remembered


def test_up_to_the_number_of_slots_one_request_is_enough(chat: FakeOpenAI, open_engine: Open) -> None:
    chat.refuses = four_slots
    engine = open_engine(chat)
    before = len(chat.asked)
    ask(engine, k=1)
    ask(engine, k=4)
    assert [body["n"] for body in chat.asked[before:]] == [1, 4]


def test_choices_that_were_returned_are_kept_and_the_others_asked_for(chat: FakeOpenAI, open_engine: Open) -> None:
    """4 of 8; the fifth has the seed that it would have had in a request of its own."""

    def only_four(body: Body, answer: Body) -> None:
        answer["choices"] = sorted(answer["choices"], key=lambda choice: choice["index"])[:4]
        answer["usage"]["completion_tokens"] = 7 * min(body["n"], 4)

    chat.alters = only_four
    engine = open_engine(chat)
    before = len(chat.asked)
    samples = ask(engine, k=8)
    assert [body["n"] for body in chat.asked[before:]] == [8, 1, 1, 1, 1]
    assert sorted(body["seed"] for body in chat.asked[before + 1 :]) == [9, 10, 11, 12]
    assert [s.text for s in samples] == [alone(chat, seed) for seed in range(5, 13)]
    assert engine.usage.total.generated_tokens == 8 * 7 and not engine.usage.faults
    ask(engine, k=2)
    assert [body["n"] for body in chat.asked[before + 5 :]] == [1, 1]


def test_of_the_requests_for_one_choice_only_those_that_failed_are_repeated(
    chat: FakeOpenAI, open_engine: Open
) -> None:
    """The other answers have been paid for, and under a rate limit all k would rarely come at once."""
    chat.honours_n = False
    engine = open_engine(chat)
    before = len(chat.asked)
    chat.faults.extend(["", "500", "no choices", "broken off", ""])
    samples = ask(engine, k=5)
    assert [body["n"] for body in chat.asked[before:]] == [1] * 8
    assert [s.text for s in samples] == [alone(chat, seed) for seed in range(5, 10)]
    assert engine.usage.faults == {"HTTP 500": 1, "too few choices": 1, "answer broken off": 1}
    assert engine.usage.total.generated_tokens == 7 * 7  # of all answers, also of the two that did not fit


def test_a_choice_that_is_never_right_ends_the_requests_for_the_others(chat: FakeOpenAI, open_engine: Open) -> None:
    chat.honours_n = False
    engine = open_engine(chat)
    engine._refusals.most = 0
    chat.alters = lambda body, answer: answer["choices"].clear() if body["seed"] == 6 else None
    with pytest.raises(ModelError, match=r"must give OpenAI's answers; got 0 of 1 choices, 6 times"):
        ask(engine, k=3)


def test_a_refusal_of_one_choice_too_is_reported_and_n_is_kept(chat: FakeOpenAI, open_engine: Open) -> None:
    engine = open_engine(chat)
    engine._refusals.most = 0
    chat.refuses = lambda body: "the prompt is too long"
    with pytest.raises(ModelError, match=r"must accept agentq's request; got HTTP 400: .*the prompt is too long"):
        ask(engine)
    chat.refuses = lambda body: ""
    ask(engine)
    assert [body["n"] for body in chat.asked].count(3) == 2  # a request for one that was given up may come last


# the form of answers


def told(choice: Body, usage: Any = None) -> Chat:
    whole = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hello"}} | choice
    return read(Chat, json.dumps({"choices": [whole], "usage": usage}))


@pytest.mark.parametrize(
    ("reasons", "stop"),
    [
        ("stop tool_calls eos eos_token end function_call stop_sequence end_turn STOP", "eos"),
        ("content_filter SAFETY refusal", "refused"),
        ("length max_tokens MAX_TOKENS Length model_length", "length"),
    ],
)
def test_any_reason_to_finish_is_read(reasons: str, stop: str) -> None:
    for reason in reasons.split():
        assert told({"finish_reason": reason}).choices[0].stop_reason is StopReason(stop), reason


@pytest.mark.parametrize("reason", [None, "error", "abort", "ABORT"])
def test_an_answer_that_was_broken_off_is_a_bad_one(reason: str | None) -> None:
    with pytest.raises(BadAnswer, match=f"finish_reason {reason}"):
        _ = told({"finish_reason": reason}).choices[0].stop_reason


@pytest.mark.parametrize(
    ("usage", "counts"),
    [
        ({"prompt_tokens": None, "completion_tokens": None}, (0, 0, 0)),
        ({"prompt_tokens": 9.5, "completion_tokens": 3.0, "prompt_tokens_details": {"cached_tokens": 2.5}}, (9, 3, 2)),
        ({"prompt_tokens": "9", "completion_tokens": "?", "prompt_tokens_details": {"cached_tokens": None}}, (9, 0, 0)),
        ({"prompt_tokens": math.inf, "completion_tokens": math.nan}, (0, 0, 0)),
    ],
)
def test_counts_are_whole_numbers_or_0(usage: Body, counts: tuple[int, int, int]) -> None:
    tokens = told({}, usage).usage
    assert tokens is not None
    assert (tokens.prompt_tokens, tokens.completion_tokens, tokens.cached_tokens) == counts


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (
            [{"type": "text", "text": "PLAN: p\n"}, {"type": "text", "text": "COMMANDS: STOP"}],
            "PLAN: p\nCOMMANDS: STOP",
        ),
        (
            [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "a"}, "b"],
            "ab",
        ),
        ([{"type": "reasoning", "text": "hm"}, {"type": "output_text", "text": "a"}, {"type": "text"}, 5], "a"),
        ([], ""),
        (None, ""),
    ],
)
def test_content_in_parts_is_joined_without_thinking(content: Any, text: str) -> None:
    assert told({"message": {"content": content}}).choices[0].message.text == text


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ({"name": "add", "arguments": {"a": 1, "b": "é"}}, {"name": "add", "arguments": '{"a": 1, "b": "é"}'}),
        ({"name": "add", "arguments": '{"a": 1}'}, {"name": "add", "arguments": '{"a": 1}'}),
        ({"name": "stop", "arguments": None}, {"name": "stop", "arguments": ""}),
        ({"name": "stop"}, {"name": "stop", "arguments": "{}"}),
        ({"name": None, "arguments": "{}"}, None),
    ],
)
def test_calls_of_tools_have_arguments_in_several_forms(function: Body, said: Body | None) -> None:
    message = told({"message": {"content": "x", "tool_calls": [{"id": "1", "function": function}]}}).choices[0].message
    text, _, call = message.text.partition("\n<tool_call>\n")
    assert text == "x" and (json.loads(call.removesuffix("\n</tool_call>")) if call else None) == said


def test_choices_without_an_index_keep_their_order(chat: FakeOpenAI, open_engine: Open) -> None:
    def unnumbered(body: Body, answer: Body) -> None:
        answer["choices"] = [choice | {"index": None} for choice in answer["choices"][::-1]]

    expected = [s.text for s in ask(open_engine(chat))]
    chat.alters = unnumbered
    assert [s.text for s in ask(open_engine(chat))] == expected


# parameters


def reasoning(body: Body) -> str:
    """OpenAI's words."""
    if "max_tokens" in body:
        return (
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
        )
    if body["temperature"] != 1:
        return f"Unsupported value: 'temperature' does not support {body['temperature']} with this model."
    return ""


def one_of_two(body: Body) -> str:
    """Claude's words on Bedrock."""
    both = "`temperature` and `top_p` cannot both be specified for this model. Please use only one."
    return both if {"temperature", "top_p"} <= body.keys() else ""


def strict(body: Body) -> str:
    unknown = body.keys() - {"model", "messages", "n", "temperature", "max_completion_tokens"}
    return f"{sorted(unknown)}: Extra inputs are not permitted" if unknown else ""


@pytest.mark.parametrize(
    ("refuses", "sent", "missing", "attempts"),
    [
        (reasoning, {"max_completion_tokens": 40, "top_p": 1.0, "seed": 5}, {"max_tokens"}, 2),
        (one_of_two, {"max_tokens": 40, "seed": 5}, {"top_p", "max_completion_tokens"}, 2),
        (strict, {"max_completion_tokens": 40}, {"max_tokens", "top_p", "seed"}, 4),
    ],
)
def test_a_parameter_that_is_refused_is_renamed_or_left_out(
    refuses: Callable[[Body], str],
    sent: Body,
    missing: set[str],
    attempts: int,
    chat: FakeOpenAI,
    open_engine: Open,
) -> None:
    chat.refuses = refuses
    engine = open_engine(chat)
    refused = [bool(refuses(body)) for body in chat.asked if "top_logprobs" not in body]
    assert refused.index(False) == attempts - 1 and not any(refused[attempts:])  # remembered
    samples = ask(engine)
    assert len(samples) == 3 and chat.asked[-1].items() >= sent.items() and missing.isdisjoint(chat.asked[-1])
    assert (Gives.SEEDS in engine.gives) == ("seed" in sent)


def test_without_seeds_equal_answers_are_chance(chat: FakeOpenAI, open_engine: Open) -> None:
    """The first two answers to the probe of seeds are equal, the third is not."""
    pairs: list[Body] = []

    def alter(body: Body, answer: Body) -> None:
        if body["n"] == 2 and body.get("max_tokens") == 12:
            pairs.append(body)
            for choice in answer["choices"]:
                choice["message"]["content"] = "same" if len(pairs) < 3 else "other"

    chat.refuses, chat.alters = (lambda body: "unknown field: seed" if "seed" in body else ""), alter
    assert Gives.SEEDS not in open_engine(chat).gives


def test_what_was_accepted_once_is_not_changed_later(chat: FakeOpenAI, open_engine: Open) -> None:
    engine = open_engine(chat)
    engine._refusals.most = 0
    chat.refuses = lambda body: "max_tokens is too large, seed and top_p are fine" if "seed" in body else ""
    before = len(chat.asked)
    with pytest.raises(ModelError, match=r"must accept agentq's request; got HTTP 400: max_tokens is too large"):
        ask(engine, k=1)
    assert len(chat.asked) == before + 1


def _no_extra(place: str) -> Body:
    return {"detail": [{"type": "extra_forbidden", "loc": ["body", place], "msg": "Extra inputs are not permitted"}]}


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("seed", [{"error": {"code": 400, "message": 'Unknown name "seed": Cannot find field.'}}]),  # Gemini
        ("seed", _no_extra("seed")),  # Mistral, FastAPI
        ("seed", {"object": "error", "message": _no_extra("seed"), "type": "invalid_request_error"}),
        ("seed", {"error": {"message": "Extra inputs are not permitted", "param": "seed"}}),
        ("top_p", {"error": "Input validation error: `top_p` must be > 0.0 and < 1.0"}),  # TGI
    ],
)
def test_refusals_of_other_forms_are_read(name: str, answer: Any, chat: FakeOpenAI, open_engine: Open) -> None:
    chat.refuses = lambda body: answer if name in body else ""
    assert len(ask(open_engine(chat), k=2)) == 2 and name not in chat.asked[-1]


def test_a_rate_limit_at_the_start_is_waited_for(
    chat: FakeOpenAI, open_engine: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = open_engine(chat)
    monkeypatch.setattr(openai_engine, "START_PATIENCE_S", 0.01)
    for limited in range(1, 5):  # from the first probe to the seeds
        chat.faults.extend([""] * (limited - 1) + ["429"] * 3)
        engine = open_engine(chat)
        assert not chat.faults and (engine.gives, engine._chats.honours_n) == (usual.gives, usual._chats.honours_n)


def test_a_temperature_that_is_refused_is_told_in_one_line(chat: FakeOpenAI, open_engine: Open) -> None:
    chat.refuses = reasoning
    engine = open_engine(chat)
    said = (
        r"http\S+ must accept temperature 0.8; got Unsupported value: 'temperature' does not support 0.8.*; "
        r"set search.temperature and eval.temperature to what it accepts"
    )
    with pytest.raises(ModelError, match=said) as raised:
        ask(engine, temperature=0.8)
    assert "\n" not in str(raised.value)


# rounding


def reports(logps: Body) -> Callable[[Body, Body], None]:
    """Log-probabilities of the likeliest tokens by temperature."""

    def alter(body: Body, answer: Body) -> None:
        if "prompt" in body:
            for choice in answer["choices"]:
                choice["logprobs"]["top_logprobs"] = [logps[body["temperature"]]] * len(choice["token_ids"])

    return alter


def normalised(logits: list[float], temperature: float) -> list[float]:
    total = math.log(sum(math.exp(logit / temperature) for logit in logits))
    return [logit / temperature - total for logit in logits]


UNSURE, SURE, TIED = [2.0, 1.2, 0.9, 0.1, -0.5], [20.0, 8.0, 7.5, 6.0, 5.0], [0.02, 0.01, 0.0, -0.01, -0.02]


@pytest.mark.parametrize("logits", [UNSURE, SURE, TIED], ids=["unsure", "sure", "tied"])
def test_rounding_is_not_taken_for_a_temperature(logits: list[float], vllm: FakeOpenAI, open_engine: Open) -> None:
    """Up to 0.1 nats in either direction, from another shape of the batch."""
    raw = dict(zip("abcde", normalised(logits, 1.0), strict=True))
    moved = {token: logp + move for (token, logp), move in zip(raw.items(), (-0.1, 0.03, 0.1, -0.03, 0.1), strict=True)}
    for warm, cold in ((raw, moved), (moved, raw)):
        vllm.alters = reports({1.0: warm, COLD: cold})
        assert Gives.LOGPS in open_engine(vllm).gives


@pytest.mark.parametrize("logits", [UNSURE, SURE], ids=["unsure", "sure"])
def test_scaled_log_probabilities_are_refused(logits: list[float], vllm: FakeOpenAI, open_engine: Open) -> None:
    """The sure model's likeliest token has a log-probability within 1e-5 of 0 at both temperatures."""
    logps = {t: dict(zip("abcde", normalised(logits, t), strict=True)) for t in (1.0, COLD)}
    vllm.alters = reports(logps)
    apart = logits[0] - logits[-1]
    said = rf"the likeliest tokens {4 * apart:.2f} nats apart at temperature 0.25 instead of {apart:.2f}"
    with pytest.raises(ModelError, match=said):
        open_engine(vllm)


@pytest.mark.parametrize(("exchanged", "seeds"), [(0, True), (1, True), (9, False)])
def test_a_token_that_rounding_exchanged_does_not_hide_that_seeds_are_honoured(
    exchanged: int, seeds: bool, chat: FakeOpenAI, open_engine: Open
) -> None:
    """`exchanged`: how many of the first answers to a seed differ from all others."""
    asked: list[int] = []

    def alter(body: Body, answer: Body) -> None:
        if body["n"] == 2 and body["seed"] == 1:
            asked.append(1)
            if len(asked) <= exchanged:
                answer["choices"][0]["message"]["content"] += f" {len(asked)}"

    chat.alters = alter
    assert (Gives.SEEDS in open_engine(chat).gives) == seeds


# prompts that are refused


def filtered(body: Body) -> str:
    return "the prompt triggers the content management policy" if "account" in json.dumps(body["messages"]) else ""


async def propose(engine: OpenAIEngine, page: str) -> list[Proposal]:
    return await ModelPolicy(engine).propose(History("book a table", Observation(page)), 2, seed=0)


@pytest.mark.parametrize("how", ["refused", "broken off"])
def test_a_prompt_that_is_refused_is_an_unreadable_answer_and_others_go_on(
    how: str, chat: FakeOpenAI, open_engine: Open, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = open_engine(chat)
    if how == "refused":
        chat.refuses = filtered
    else:
        chat.alters = lambda body, answer: (
            answer["choices"][0].update(finish_reason="error") if filtered(body) else None
        )
    for page, readable in (("link Blue [3]", True), ("link My account [3]", False), ("link Blue [3]", True)):
        proposals = asyncio.run(propose(engine, page))
        assert [p.action.text != "" for p in proposals] == [readable] * 2
        assert {p.stop_reason for p in proposals} <= ({"eos", "length"} if readable else {"refused"})
    assert engine.usage.faults["prompt refused"] == 1
    history = History("book", Observation("link My account [3]"))
    clicks = [EnvAction(Command.CLICK, 3), EnvAction(Command.CLICK, 4)]
    assert asyncio.run(LLMRanker(engine).rank(history, clicks, seed=0)) == [0.5, 0.5]
    assert asyncio.run(OutcomeJudge(engine).judge(history)).findings == ()
    why = {
        "refused": "HTTP 400: the prompt triggers the content management policy",
        "broken off": "finish_reason error",
    }
    (line,) = capsys.readouterr().err.splitlines()
    assert why[how] in line and line.endswith("; answers to such prompts count as unreadable")


@pytest.mark.parametrize("status", [403, 413])
def test_a_status_that_may_be_about_the_prompt_is_so_once_others_were_answered(
    status: int, chat: FakeOpenAI, open_engine: Open
) -> None:
    engine = open_engine(chat)
    chat.refuses, chat.refusal_status = filtered, status
    assert all(p.action.text == "" for p in asyncio.run(propose(engine, "account")))
    chat.refuses = lambda body: "no such key"
    if status == 403:
        with pytest.raises(ModelError, match=r"HTTP 403: .*no such key; put the server's key in OPENAI_API_KEY"):
            open_engine(chat)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ({"code": 502, "message": "upstream is overloaded"}, ""),
        ({"code": "oops", "message": "upstream is overloaded"}, ""),
        ({"code": 400, "message": "the account is too long"}, "refused"),
        ({"code": 429, "type": "insufficient_quota", "message": "pay first"}, "HTTP 429: pay first"),
    ],
)
def test_an_error_with_status_200_is_what_it_says(error: Body, said: str, chat: FakeOpenAI, open_engine: Open) -> None:
    engine, left = open_engine(chat), [1]

    def alter(body: Body, answer: Body) -> None:
        if said or left:
            answer.clear()
            answer["error"] = error
            left.clear()

    chat.alters = alter
    if said.startswith("HTTP"):  # at once, since it does not pass
        with pytest.raises(ModelError, match=said):
            asyncio.run(propose(engine, "page"))
        return
    assert [p.stop_reason == "refused" for p in asyncio.run(propose(engine, "page"))] == [bool(said)] * 2
    assert engine.usage.faults.total() == 1


@pytest.mark.parametrize("counted", [1, 2])
def test_usage_of_one_of_several_choices_stands_for_all(counted: int, chat: FakeOpenAI, open_engine: Open) -> None:
    """`counted`: what usage has for two choices that were cut off after a token; llama.cpp has 1."""

    def alter(body: Body, answer: Body) -> None:
        cut = body["max_tokens"] == 1
        answer["usage"] = {"prompt_tokens": 100, "completion_tokens": min(body["n"], counted) if cut else 10}
        for choice in answer["choices"]:
            choice["finish_reason"] = "length" if cut else "stop"

    chat.alters = alter
    engine = open_engine(chat)
    for k, tokens in ((3, 30 if counted == 1 else 10), (1, 10)):
        before = engine.usage.total.generated_tokens
        ask(engine, k=k)
        assert engine.usage.total.generated_tokens - before == tokens
    assert engine.usage.total.prompt_tokens == 200


def test_tokens_of_answers_that_do_not_fit_count_and_their_absence_is_told(
    chat: FakeOpenAI, open_engine: Open, capsys: pytest.CaptureFixture[str]
) -> None:
    engine, left = open_engine(chat), [1, 1]

    def alter(body: Body, answer: Body) -> None:
        answer["usage"] = {"prompt_tokens": 100, "completion_tokens": 10}
        if left:
            left.pop()
            answer["choices"][0]["finish_reason"] = "error"

    chat.alters = alter
    ask(engine)
    assert (engine.usage.total.prompt_tokens, engine.usage.total.generated_tokens) == (300, 30)
    assert capsys.readouterr().err == ""
    chat.alters = lambda body, answer: answer.pop("usage", None)
    ask(engine)
    ask(engine)
    assert capsys.readouterr().err.count("reports no tokens, so tokens and prices are not counted") == 1


def test_thinking_that_a_servers_template_begins_is_no_answer_where_it_is_cut_off(
    chat: FakeOpenAI, open_engine: Open
) -> None:
    said = ["Press 3.\n</think>\nCOMMANDS: CLICK [3]", "So I might say\nCOMMANDS: CLICK [4]\nBut wait,"]

    def alter(body: Body, answer: Body) -> None:
        answer["choices"][0] |= {"message": {"content": said.pop(0)}, "finish_reason": "length" if not said else "stop"}

    policy = ModelPolicy(open_engine(chat), max_new_tokens=9)
    chat.alters = alter
    for wanted in (EnvAction(Command.CLICK, 3), None):
        (found,) = asyncio.run(policy.propose(History("x", Observation("button A [3]\nbutton B [4]", "")), 1, seed=0))
        assert found.action.env_action == wanted


@pytest.mark.parametrize("k", [1, 5])
def test_a_server_that_cuts_long_prompts_is_named_once(
    k: int, chat: FakeOpenAI, open_engine: Open, capsys: pytest.CaptureFixture[str]
) -> None:
    def alter(body: Body, answer: Body) -> None:  # as Ollama, whose window has no room for more
        whole = sum(len(message["content"]) for message in body["messages"]) // 4
        answer["usage"] = {"prompt_tokens": min(2048, whole), "completion_tokens": 7}

    chat.honours_n = False
    engine, chat.alters = open_engine(chat), alter
    said = []
    for lines in (300, 3000, 3000):
        page = Observation("\n".join(f"link Item {i} [{i}]" for i in range(lines)), "http://x/")
        prompt = engine.render(History("x", page), policy_messages, max_new_tokens=9)
        asyncio.run(engine.sample(SampleRequest(prompt, k, 0, 1.0, 9)))
        said.append(capsys.readouterr().err.count("read 2048 tokens of a prompt of about"))
    assert said == [0, 1, 0]


def test_a_server_that_refuses_every_prompt_ends_the_run(
    chat: FakeOpenAI, open_engine: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = open_engine(chat)
    chat.refuses = filtered
    for _ in range(refusals.MOST_AT_FIRST):
        asyncio.run(propose(engine, "account"))
    with pytest.raises(ModelError, match="content management policy"):
        asyncio.run(propose(engine, "account"))
    monkeypatch.setattr(refusals, "MOST_IN_A_ROW", 12)
    asyncio.run(propose(engine, "page"))
    for _ in range(12):
        asyncio.run(propose(engine, "account"))
    with pytest.raises(ModelError, match="content management policy"):
        asyncio.run(propose(engine, "account"))
