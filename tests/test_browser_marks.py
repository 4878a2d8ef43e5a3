"""Models that see: a picture of the page with the numbers of its elements, and clicks on places."""

from __future__ import annotations

import asyncio
import base64

import pytest
from transformers import AutoTokenizer

from agentq import envs
from agentq.agent.commands import parse_env_action
from agentq.agent.prompts import critic_messages, plain_text, policy_messages
from agentq.envs.browser.guard import Guard
from agentq.envs.browser.pool import BrowserPool
from agentq.errors import ConfigError
from agentq.model_settings import ModelSettings
from agentq.picture import Picture
from agentq.policies.engine_names import embedded_base, make_engine
from agentq.policies.model_policy import ModelPolicy
from agentq.policies.protocol import Gives
from agentq.types import Command, EnvAction, History, Observation
from tests.browser_lab import TASK, lab_env
from tests.openai_factory import fake_openai

PAGE = """<button style="position:absolute;left:200px;top:100px;width:80px;height:40px" onclick="t.textContent='hit'">Go
</button><p id=t></p>"""
SEEN = History("find it", Observation("button Go [1]", "/", picture=Picture(b"RIFF", (9, 9), {1: (0, 0, 9, 9)}, True)))


@pytest.mark.browser
def test_marks_are_drawn_and_a_place_is_clicked(browser: BrowserPool) -> None:
    env = lab_env(browser, {"/": PAGE}, full=True)
    env.screenshots = True
    plain = env.reset(TASK).picture
    env.marks = True
    marked = env.reset(TASK).picture
    assert plain is not None and marked is not None and not plain.marked and marked.marked
    assert plain.boxes == marked.boxes == {1: (200, 100, 80, 40)} and plain.size == marked.size
    assert marked.webp[:4] == b"RIFF" and marked.webp != plain.webp
    assert env.fork().marks
    assert "text hit" in env.step(EnvAction(Command.CLICK_AT, None, "240 120")).observation.text
    outside = env.step(EnvAction(Command.CLICK_AT, None, "240 9999"))
    assert outside.error_message == "the picture has {} by {} pixels; got 240 9999".format(*marked.size)


@pytest.mark.browser
def test_a_question_of_the_page_has_no_picture_and_is_answered(browser: BrowserPool) -> None:
    page = "<button onclick=\"document.body.append(confirm('sure?') ? 'yes' : 'no')\">Delete</button>"
    env = lab_env(browser, {"/": page}, full=True)
    env.screenshots = env.marks = True
    session = env._driver.session
    asked = env.step(EnvAction(Command.CLICK, 1))
    assert asked.observation.text.startswith("dialog confirm: sure?") and asked.observation.picture is None
    answered = env.step(EnvAction(Command.DIALOG, None, "ACCEPT"))
    assert answered.error_kind is None and "text yes" in answered.observation.text
    assert answered.observation.picture is not None and answered.observation.picture.marked
    assert env._driver.session is session, "no browser was lost over the picture"


@pytest.mark.browser
def test_a_click_on_a_place_is_as_guarded_as_one_on_an_element(browser: BrowserPool) -> None:
    page = PAGE.replace("t.textContent='hit'", "fetch('/', {method: 'POST'})").replace("Go", "Buy now")
    env = lab_env(browser, {"/": page}, full=True)
    env.guard = env._driver.guard = Guard()
    env._driver.drop()
    env.reset(TASK)
    assert env.step(EnvAction(Command.CLICK_AT, None, "240 120")).error_kind == "held"


def test_prompts_show_a_marked_picture_and_offer_its_command() -> None:
    for messages in (policy_messages(SEEN), critic_messages(SEEN, [EnvAction(Command.STOP)])):
        text, picture = messages[1]["content"]
        assert text["text"].startswith("HISTORY:") and "CLICK_AT x y" in messages[0]["content"]
        assert picture["image_url"]["url"] == f"data:image/webp;base64,{base64.b64encode(b'RIFF').decode()}"
    unmarked = History("x", Observation("", picture=Picture(b"RIFF", (9, 9), {})))
    assert "CLICK_AT" not in plain_text(policy_messages(unmarked))
    assert str(parse_env_action("CLICK_AT 12, 40")) == "CLICK_AT 12 40"
    with pytest.raises(ValueError, match="CLICK_AT must name a place, such as CLICK_AT 320 40; got 'there'"):
        parse_env_action("CLICK_AT there")


def test_a_server_is_sent_the_picture_in_a_chat() -> None:
    with fake_openai(tokenizer=AutoTokenizer.from_pretrained(embedded_base())) as server:
        engine = make_engine(server.url, ModelSettings(sees=True))
        try:
            assert not Gives.TOKEN_IDS & engine.gives  # though this server takes token ids
            (proposal,) = asyncio.run(ModelPolicy(engine).propose(SEEN, 1, seed=0))
        finally:
            engine.close()
        assert proposal.action.text and server.asked[-1]["messages"][1]["content"][1]["type"] == "image_url"


def test_models_that_see_need_a_server_and_a_browser() -> None:
    with pytest.raises(ConfigError, match=r"model\.sees must go with a server that is sent chats, .*; got vllm:here"):
        make_engine("vllm:here", ModelSettings(sees=True))
    with pytest.raises(ConfigError, match=r"model\.sees must be false for booking, whose pages no browser shows"):
        envs.make("booking", marks=True)
