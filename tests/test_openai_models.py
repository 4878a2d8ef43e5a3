"""Servers without a usable list of models, with adapters, models that reason, templates without a system role."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from transformers import AutoTokenizer

from agentq.agent.prompts import policy_messages
from agentq.errors import ConfigError, ModelError
from agentq.model_settings import ModelSettings
from agentq.policies import openai_engine, patience
from agentq.policies.engine_names import embedded_base, make_engine
from agentq.policies.fitting import CHARACTERS, PAGE_END
from agentq.policies.model_policy import ModelPolicy
from agentq.policies.openai_client import OpenAIClient
from agentq.policies.openai_engine import OpenAIEngine
from agentq.policies.protocol import Gives, SampleRequest
from agentq.types import History, Observation, StopReason
from tests.openai_factory import HISTORY, FakeOpenAI, ask, fake_openai

Body = dict[str, Any]


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "FIRST_WAIT_S", 0.001)


@pytest.fixture
def chat() -> Iterator[FakeOpenAI]:
    with fake_openai() as fake:
        yield fake


Open = Callable[..., OpenAIEngine]


@pytest.fixture
def open_engine() -> Iterator[Open]:
    engines: list[OpenAIEngine] = []

    def make(url: str, model: str = "", **settings: Any) -> OpenAIEngine:
        engines.append(OpenAIEngine(url, model, **{"patience_s": 20.0, **settings}))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


# lists of models

NO_ROUTE = {"error": {"message": "no such route"}}


@pytest.mark.parametrize(
    "lists",
    [
        (NO_ROUTE, 404),
        ({"detail": "Method Not Allowed"}, 405),
        ({"error": {"message": "your key may not list models"}}, 403),
        ([{"id": "tiny"}], 200),
        ({"data": [{"id": "models/tiny"}]}, 200),
        ({"data": []}, 200),
        ({"data": None}, 200),
        (b"<html>welcome</html>", 200),
        ({"type": "error", "error": {"message": "anthropic-version: header is required"}}, 400),  # Anthropic
        ({"type": "error", "error": {"message": "x-api-key header is required"}}, 401),
        (b"Internal Server Error", 500),  # transformers serve without a hub's cache
    ],
)
def test_a_named_model_is_asked_for_whatever_the_list(
    lists: Any, chat: FakeOpenAI, open_engine: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openai_engine, "START_PATIENCE_S", 0.5)
    chat.lists = lists
    engine = open_engine(chat.url, "tiny")
    assert engine.name == f"{chat.url}#tiny" and len(ask(engine)) == 3


def test_a_bare_list_of_one_model_needs_no_name(chat: FakeOpenAI, open_engine: Open) -> None:
    chat.lists = [{"id": "tiny"}], 200
    assert open_engine(chat.url).name == f"{chat.url}#tiny"


def test_a_model_that_the_server_does_not_know_is_told_in_one_line(chat: FakeOpenAI, open_engine: Open) -> None:
    with pytest.raises(ConfigError, match=r"must be asked for one of its models \(tiny\); got 'Tiny'"):
        open_engine(chat.url, "Tiny")
    chat.lists = NO_ROUTE, 404
    with pytest.raises(ModelError, match=r"must accept agentq's request; got HTTP 404: .*no such route"):
        open_engine(chat.url, "Tiny")
    chat.lists = {"error": {"message": "no key"}}, 401
    chat.refuses, chat.refusal_status = lambda body: "no key", 401
    with pytest.raises(ModelError, match=r"HTTP 401: .*; put the server's key in OPENAI_API_KEY"):
        open_engine(chat.url, "tiny")
    chat.lists = {"error": {"message": "No connected db."}}, 400
    chat.refuses, chat.refusal_status = lambda body: "No connected db.", 400
    with pytest.raises(ModelError, match=r"HTTP 400: No connected db.; put the server's key in OPENAI_API_KEY"):
        open_engine(chat.url, "tiny")


def test_of_many_models_the_nearest_are_told_and_of_none_that_there_is_none(
    chat: FakeOpenAI, open_engine: Open
) -> None:
    with pytest.raises(ConfigError) as raised:
        chat.lists = {"data": [{"id": f"house/model-{i}"} for i in range(300)]}, 200
        open_engine(chat.url, "house/model-299x")
    assert "(house/model-299, " in str(raised.value) and " and 292 more); got 'house/model-299x'" in str(raised.value)
    assert len(str(raised.value)) < 300
    for listed, told in (([], "it lists none"), ([{"id": "a"}, {"id": "b"}], "a, b")):
        chat.lists = {"data": listed}, 200
        wanted = rf"\({told}\); got ''; name one by {re.escape(chat.url)}#MODEL$"
        with pytest.raises(ConfigError, match=wanted):
            open_engine(chat.url)


@pytest.mark.parametrize("model", ["", "tiny"])
def test_a_page_at_an_address_without_v1_is_shown(
    model: str, chat: FakeOpenAI, open_engine: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openai_engine, "START_PATIENCE_S", 0.3)

    async def page(*_: object) -> str:
        return "<html>\n<title>Welcome</title>"

    monkeypatch.setattr(OpenAIClient, "call", page)
    with pytest.raises(ModelError, match=r"in '<html> <title>Welcome</title>'; a server's URL ends in /v1$"):
        open_engine(chat.url.removesuffix("/v1"), model)


def test_a_host_may_have_a_key_of_its_own(chat: FakeOpenAI, open_engine: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "common")
    monkeypatch.setenv("OPENAI_API_KEY_LOCALHOST", "own")
    ask(open_engine(chat.url, "tiny"))
    assert chat.keys == {"Bearer common"}
    chat.keys.clear()
    ask(open_engine(chat.url.replace("127.0.0.1", "localhost"), "tiny"))
    assert chat.keys == {"Bearer own"}


@pytest.mark.parametrize(("key", "sent"), [("", "none"), (" \n", "none"), ("own\r\n", "own")])
def test_an_empty_key_is_none_and_a_line_break_is_not_part_of_one(
    key: str, sent: str, chat: FakeOpenAI, open_engine: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", key)
    ask(open_engine(chat.url, "tiny"))
    assert chat.keys == {f"Bearer {sent}"}


@pytest.mark.parametrize("key", ["sk-schl\u00fcssel", "sk-one\nsk-two"])
def test_a_key_that_no_header_can_hold_is_refused_and_not_shown(
    key: str, chat: FakeOpenAI, open_engine: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY_127_0_0_1", key)
    with pytest.raises(ConfigError, match=r"^OPENAI_API_KEY_127_0_0_1 must be one line of ASCII characters$"):
        open_engine(chat.url, "tiny")


@pytest.mark.parametrize("model", ["", "tiny"])
def test_an_address_without_v1_is_told(model: str, chat: FakeOpenAI, open_engine: Open) -> None:
    with pytest.raises(ModelError, match=r"HTTP 404.*/models; a server's URL ends in /v1; name the model by") as raised:
        open_engine(chat.url.removesuffix("/v1"), model)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("lists", [(NO_ROUTE, 404), (b"", 200), (b"", 500)])  # the last two without a hub's cache
def test_without_a_list_the_model_must_be_named(
    lists: tuple[Any, int], chat: FakeOpenAI, open_engine: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openai_engine, "START_PATIENCE_S", 0.3)
    chat.lists = lists
    with pytest.raises(ModelError, match=rf"; name the model by {re.escape(chat.url)}#MODEL$"):
        open_engine(chat.url)


def test_an_adapter_has_the_limit_of_its_parent(open_engine: Open) -> None:
    root = str(embedded_base())
    with fake_openai(tokenizer=AutoTokenizer.from_pretrained(embedded_base()), root=root) as fake:
        base = {"id": "base", "root": root, "max_model_len": 700}
        fake.lists = {"data": [base, {"id": "tiny", "root": root, "parent": "base"}]}, 200
        engine = open_engine(fake.url, "tiny")
        assert engine.renderer is not None and engine.renderer.context_tokens == 700


# models that reason

RENAMED = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
RAN_OUT = "Could not finish the message because max_tokens or model output limit was reached. Please try again."


def reasoning(least: int) -> Callable[[Body], str]:
    """OpenAI's words. `least`: tokens with which the model says something."""

    def refuses(body: Body) -> str:
        return RENAMED if "max_tokens" in body else RAN_OUT if body["max_completion_tokens"] < least else ""

    return refuses


def test_thoughts_that_take_all_tokens_are_an_empty_answer(
    chat: FakeOpenAI, open_engine: Open, capsys: pytest.CaptureFixture[str]
) -> None:
    chat.refuses = reasoning(1000)
    engine = open_engine(chat.url)
    assert engine.gives == Gives.TEXT
    samples = ask(engine)
    assert [(s.text, s.stop_reason) for s in samples] == [("", StopReason.LENGTH)] * 3
    assert engine.usage.total.generated_tokens == 3 * 40 and not engine.usage.faults
    assert "reports no tokens" not in capsys.readouterr().err
    chat.refuses = reasoning(30)
    assert all(s.text for s in ask(engine)) and chat.asked[-1]["max_completion_tokens"] == 40


def test_words_about_max_tokens_that_ran_out_rename_nothing(chat: FakeOpenAI, open_engine: Open) -> None:
    chat.refuses = lambda body: RAN_OUT if body["max_tokens"] < 30 else ""
    assert len(ask(open_engine(chat.url))) == 3
    assert all("max_tokens" in body for body in chat.asked)


@pytest.mark.parametrize(
    "words",
    ["max_tokens must be at least 16", "Invalid 'max_tokens': integer below minimum value. Expected a value >= 16"],
)
def test_the_least_number_of_tokens_is_asked_for(words: str, chat: FakeOpenAI, open_engine: Open) -> None:
    chat.refuses = lambda body: words if body["max_tokens"] < 16 else ""
    assert Gives.SEEDS in open_engine(chat.url).gives
    assert {body["max_tokens"] for body in chat.asked} == {1, 16}


@pytest.mark.parametrize(("first", "told"), [("max_tokens is too large", "is too large"), (RENAMED, "Unrecognized")])
def test_of_two_refusals_of_a_parameter_the_one_that_helps_is_told(first: str, told: str, chat: FakeOpenAI) -> None:
    """The first one, unless it asked for the new name."""
    chat.refuses = lambda body: first if "max_tokens" in body else "Unrecognized argument: max_completion_tokens"

    async def main() -> None:
        client = OpenAIClient(chat.url, 5.0)
        client.model = "tiny"
        try:
            await client.chat([{"role": "user", "content": "hi"}], 1, 0, 1.0, 9)
        finally:
            await client.close()

    with pytest.raises(ModelError, match=told):
        asyncio.run(main())


# templates without a system role


def no_system(body: Body) -> str:
    return "System role not supported" if any(m["role"] == "system" for m in body["messages"]) else ""


def test_a_system_message_that_is_refused_goes_before_the_users(chat: FakeOpenAI, open_engine: Open) -> None:
    engine, before = open_engine(chat.url), len(chat.asked)
    chat.refuses = no_system
    messages = engine.render(HISTORY, policy_messages, max_new_tokens=40).messages
    assert [m["role"] for m in messages] == ["system", "user"]
    assert all(s.stop_reason is StopReason.EOS for s in ask(engine))
    whole = "\n\n".join(m["content"] for m in messages)
    assert chat.asked[-1]["messages"] == [{"role": "user", "content": whole}]
    ask(engine)
    assert [len(body["messages"]) for body in chat.asked[before:]] == [2, 1, 1]  # remembered
    assert not engine.usage.faults


def test_a_refusal_that_stays_is_told_and_the_system_message_too(chat: FakeOpenAI, open_engine: Open) -> None:
    engine = open_engine(chat.url)
    chat.refuses = lambda body: f"{len(body['messages'])} messages break the rules of our system"
    assert [s.stop_reason for s in ask(engine, k=1)] == [StopReason.REFUSED]
    engine._refusals.most = 0
    with pytest.raises(ModelError, match="2 messages break"):
        ask(engine, k=1)
    chat.refuses = lambda body: ""
    ask(engine)
    assert [m["role"] for m in chat.asked[-1]["messages"]] == ["system", "user"]


def test_a_refusal_that_speaks_of_another_system_moves_nothing(chat: FakeOpenAI, open_engine: Open) -> None:
    engine = open_engine(chat.url)
    chat.refuses = lambda body: "flagged by our safety check system" if len(body["messages"]) == 2 else ""
    assert [s.stop_reason for s in ask(engine, k=1)] == [StopReason.REFUSED]
    chat.refuses = lambda body: ""
    ask(engine)
    assert [m["role"] for m in chat.asked[-1]["messages"]] == ["system", "user"]


def test_a_picture_keeps_its_place_after_a_merged_system_message(chat: FakeOpenAI, open_engine: Open) -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    said = [{"role": "system", "content": "rules"}, {"role": "user", "content": [picture]}]
    chat.refuses = no_system
    engine = open_engine(chat.url)
    prompt = engine.render(HISTORY, lambda history: said, max_new_tokens=9)
    asyncio.run(engine.sample(SampleRequest(prompt, max_new_tokens=9)))
    assert chat.asked[-1]["messages"] == [{"role": "user", "content": [{"type": "text", "text": "rules"}, picture]}]


# contexts


def test_a_server_that_counts_no_tokens_is_sent_what_fits_by_characters(chat: FakeOpenAI) -> None:
    history = History("Count", Observation("page " + "button Up [1]\n" * 2000), ("COMMANDS: CLICK [1]",) * 40)
    engine = make_engine(f"{chat.url}#tiny", ModelSettings(context=1000, max_new_tokens=100))
    asyncio.run(ModelPolicy(engine, max_new_tokens=100).propose(history, 1, seed=0))
    sent = chat.asked[-1]["messages"]
    characters = sum(len(message["content"]) for message in sent)
    assert 0.8 * 900 * CHARACTERS <= characters <= 900 * CHARACTERS
    assert PAGE_END in sent[-1]["content"] and engine.usage.of("policy").shortened == 1
    engine.close()
    engine = make_engine(f"{chat.url}#tiny")
    asyncio.run(ModelPolicy(engine).propose(history, 1, seed=0))
    assert len(json.dumps(chat.asked[-1]["messages"])) > 28_000 and engine.usage.of("policy").shortened == 0
    engine.close()
