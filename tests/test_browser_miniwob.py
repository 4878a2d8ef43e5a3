"""MiniWoB++ pages on our browsers: seeding, reward, determinism, and small experts that solve them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from agentq import envs
from agentq.envs.browser import miniwob
from agentq.envs.browser.env import BrowserEnv
from agentq.envs.browser.pool import BrowserPool
from agentq.envs.browser.states import Return
from agentq.envs.explore import check_env
from agentq.errors import ConfigError, MissingExtra
from agentq.types import Command, EnvAction, Split, Task
from tests.browser_lab import click, named

pytestmark = pytest.mark.browser


@pytest.fixture(autouse=True)
def pages(browser: BrowserPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package's pages, and the tests' browser as the one that instructions are drawn in."""
    try:
        envs.names("miniwob")
    except MissingExtra as error:
        pytest.skip(str(error))
    monkeypatch.setattr(envs, "default_browser", lambda: browser)


def make(name: str, browser: BrowserPool) -> BrowserEnv:
    env = envs.make(f"miniwob/{name}", browser)
    assert isinstance(env, BrowserEnv)
    return env


def task(name: str, index: int) -> Task:
    return envs.task(f"miniwob/{name}", Split.TRAIN, index)


def press(env: BrowserEnv, name: str) -> EnvAction:
    return EnvAction(Command.CLICK, named(env, name))


def quoted(text: str) -> list[str]:
    return re.findall('"([^"]*)"', text)


def _click_test(env: BrowserEnv, said: str) -> Iterator[EnvAction]:
    yield press(env, "Click Me!")


def _click_button(env: BrowserEnv, said: str) -> Iterator[EnvAction]:
    yield press(env, quoted(said)[0])


def _enter_text(env: BrowserEnv, said: str) -> Iterator[EnvAction]:
    yield EnvAction(Command.TYPE, 1, quoted(said)[0])
    yield press(env, "Submit")


def _login_user(env: BrowserEnv, said: str) -> Iterator[EnvAction]:
    for element, text in enumerate(quoted(said), 1):
        yield EnvAction(Command.TYPE, element, text)
    yield press(env, "Login")


def _click_checkboxes(env: BrowserEnv, said: str) -> Iterator[EnvAction]:
    wanted = said.removeprefix("Select ").removesuffix(" and click Submit.").split(", ")
    yield from (press(env, name) for name in wanted if name != "nothing")
    yield press(env, "Submit")


def _choose_list(env: BrowserEnv, said: str) -> Iterator[EnvAction]:
    yield EnvAction(Command.SELECT, 1, said.removeprefix("Select ").removesuffix(" from the list and click Submit."))
    yield press(env, "Submit")


EXPERTS: dict[str, Callable[[BrowserEnv, str], Iterator[EnvAction]]] = {
    "click-test": _click_test,
    "click-button": _click_button,
    "enter-text": _enter_text,
    "login-user": _login_user,
    "click-checkboxes": _click_checkboxes,
    "choose-list": _choose_list,
}


@pytest.mark.parametrize("name", EXPERTS)
def test_small_experts_get_the_pages_own_reward(browser: BrowserPool, name: str) -> None:
    env = make(name, browser)
    for index in range(3):
        goal = task(name, index)
        env.reset(goal)
        results = [env.step(action) for action in EXPERTS[name](env, goal.instruction)]
        assert [r.error_kind for r in results] == [None] * len(results), goal
        assert {(r.reward, r.terminated, r.success) for r in results[:-1]} <= {(0.0, False, False)}, goal
        assert (results[-1].reward, results[-1].terminated, results[-1].success) == (1.0, True, True), goal
    env.close()


def test_a_wrong_answer_ends_the_episode_without_reward(browser: BrowserPool) -> None:
    env = make("login-user", browser)
    env.reset(task("login-user", 0))
    result = click(env, "Login")
    assert (result.reward, result.terminated, result.success) == (0.0, True, False)
    env.close()


SAMPLE = (
    "click-shape",
    "email-inbox",
    "use-autocomplete",
    "choose-date",
)


@pytest.mark.parametrize("name", SAMPLE)
def test_the_seed_alone_makes_the_problem(browser: BrowserPool, name: str) -> None:
    env, shown = make(name, browser), set()
    for index in (0, 1):
        goal = task(name, index)
        first = env.reset(goal)
        assert env.reset(goal) == first
        assert "START" not in first.text and "Last reward" not in first.text and goal.instruction not in first.text
        miniwob.instruction.cache_clear()
        assert task(name, index) == goal
        shown.add((goal.instruction, first.text))
    assert len(shown) == 2
    env.close()


@pytest.mark.parametrize(
    ("name", "in_place"),
    [
        ("click-button", True),
        ("login-user", True),
        ("focus-text-2", False),  # a field keeps what was typed
        ("form-sequence", False),  # jQuery UI keeps a slider
    ],
)
def test_an_episode_after_another_is_as_on_a_fresh_document(browser: BrowserPool, name: str, in_place: bool) -> None:
    used, fresh = make(name, browser), make(name, browser)
    used.reset(task(name, 1))
    for element, control in enumerate(used.view.page.controls, 1):
        command = Command.TYPE if control.role == "textbox" else Command.CLICK
        if used.step(EnvAction(command, element, "left")).terminated:
            break
    assert used.reset(task(name, 2)) == fresh.reset(task(name, 2))
    assert used.view.page == fresh.view.page and used.view.values == fresh.view.values
    assert (used.view.status == 0) is in_place  # 0: nothing was loaded
    used.close()
    fresh.close()


def test_check_env_holds_and_goes_back_by_replay(browser: BrowserPool) -> None:
    goal, made = task("click-checkboxes-large", 5), []
    probe = make("click-checkboxes-large", browser)
    probe.reset(goal)
    actions = [EnvAction(Command.CLICK, i) for i in (1, 3)]

    def fresh() -> BrowserEnv:
        made.append(make("click-checkboxes-large", browser))
        return made[-1]

    check_env(fresh, goal, actions)
    token = probe.snapshot()
    for action in actions:
        probe.step(action)
    later = probe.snapshot()
    probe.restore(token)
    assert probe.restore(later) == later.observation
    log = probe.log[-1]
    assert isinstance(log, Return) and (log.way, log.outcome, log.tried) == ("replay", "exact", ())
    for env in [*made, probe]:
        env.close()


def test_the_pages_clock_does_not_end_an_episode_unless_it_is_asked_for(browser: BrowserPool) -> None:
    for timed, limit in ((False, 1e7), (True, 10_000)):
        host = miniwob.MiniwobHost("miniwob/click-test", timed)
        assert host.repeatable is not timed
        session = browser.open(host.allow, probe="core.EPISODE_MAX_TIME")
        start = host.start(task("click-test", 0))
        assert session.call("visit", url=start.url, script=start.script)["probe"] == limit
        session.close()


def test_every_page_is_registered_by_its_name() -> None:
    names = envs.names("miniwob")
    assert len(names) == len(set(names)) >= 125
    assert {"miniwob/click-test", "miniwob/book-flight", "miniwob/use-autocomplete"} <= set(names)
    with pytest.raises(ConfigError, match=r"no environment 'miniwob/click-tset'; did you mean 'miniwob/click-test'"):
        envs.make("miniwob/click-tset")
    with pytest.raises(ConfigError, match=r"task\.env must be 'miniwob/click-test'; got 'miniwob/click-button'"):
        envs.make("miniwob/click-test").reset(Task("miniwob/click-button", 0, Split.TRAIN, ""))
    with pytest.raises(ConfigError, match=r"family must be '', 'chromium' or 'miniwob'; got 'web'"):
        envs.names("web")
