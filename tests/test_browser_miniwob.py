"""MiniWoB++ pages on our browsers: seeding, reward, determinism, the suite, and the experts that solve them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest

from agentq import envs
from agentq.envs.browser import miniwob
from agentq.envs.browser.env import BrowserEnv
from agentq.envs.browser.experts import PAGES
from agentq.envs.browser.experts.look import Look
from agentq.envs.browser.pool import BrowserPool
from agentq.envs.browser.states import Return
from agentq.envs.promises import check_env
from agentq.errors import ConfigError, MissingExtra
from agentq.types import Command, EnvAction, Split, Status, Task
from agentq.verbs import INPUT_COMMANDS
from tests.browser_lab import click

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


@pytest.mark.parametrize("page", PAGES)
def test_the_expert_gets_the_pages_own_reward(browser: BrowserPool, page: str) -> None:
    env, expert = envs.make(page, browser), envs.expert(page)
    for goal in envs.tasks(page, Split.TRAIN, 6):
        env.reset(goal)
        results = [env.step(expert(goal, env).env_action)]
        while not (results[-1].terminated or results[-1].truncated):
            results.append(env.step(expert(goal, env).env_action))
        assert [r.error_kind for r in results] == [None] * len(results), goal
        assert {(r.reward, r.success) for r in results[:-1]} <= {(0.0, False)}, goal
        assert results[-1].success and results[-1].reward > 0, goal
    env.close()


@pytest.mark.parametrize(
    ("page", "thought"),
    [
        ("read-table", r"(.+) \[1\] (\S+)"),
        ("enter-time", r"\d+ (AM|PM) is \d\d , textbox \[1\] \d\d:\d\d"),
        ("simple-arithmetic", r"-?\d+ [-+x] -?\d+ = (-?\d+) , textbox \[1\] \1"),
        ("email-inbox-delete", r"[A-Z]\S+ \[(\d+)\] , trash \[\d+\]"),
        ("identify-shape", r"\S+ is a (\w+) , \1 \[\d\]"),
        ("odd-or-even", r"-?\d+ , (Odd|Even) \[\d+\]"),
        ("find-greatest", r"\[1\] \d+( , \[\d\] \d+ (yes|no))*"),
        ("login-user", r"textbox \[1\] Username , \S+"),
        ("focus-text-2", r"1 textbox \[1\]( , \d textbox \[\d\])*"),
    ],
)
def test_an_expert_says_the_way_to_its_element(browser: BrowserPool, page: str, thought: str) -> None:
    env, expert = make(page, browser), envs.expert(f"miniwob/{page}")
    goal = task(page, 0)
    env.reset(goal)
    first = expert(goal, env)
    assert re.fullmatch(thought, first.thought), first.thought
    env.close()


@pytest.mark.parametrize("missed", [lambda look: look.all("slider")[0], lambda look: next(iter(look.all("slider")))])
def test_an_expert_that_misses_an_element_fails_its_episode_alone(
    browser: BrowserPool, monkeypatch: pytest.MonkeyPatch, missed: Callable[[Look], int]
) -> None:
    env, goal = make("click-test", browser), task("click-test", 0)
    env.reset(goal)
    monkeypatch.setitem(PAGES, goal.env, lambda look: look.click(missed(look)))
    advice = envs.expert(goal.env)(goal, env)
    assert (advice.env_action.command, advice.status) == (Command.STOP, Status.FAIL)
    env.close()


def test_a_page_has_settled_once_the_images_that_move_its_icons_are_there(
    browser: BrowserPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    get = miniwob._Quiet.do_GET

    def late(request: miniwob._Quiet) -> None:
        if request.path.endswith(".png"):
            time.sleep(0.1)
        get(request)

    monkeypatch.setattr(miniwob._Quiet, "do_GET", late)
    env, goal = make("email-inbox-important", browser), task("email-inbox-important", 0)
    env.reset(goal)
    result = env.step(envs.expert(goal.env)(goal, env).env_action)
    assert result.success
    env.close()


def test_a_page_without_an_expert_says_so() -> None:
    with pytest.raises(ConfigError, match=r"no expert for 'miniwob/chase-circle'"):
        envs.expert("miniwob/chase-circle")
    goal = Task("miniwob/chase-circle", 0, Split.TRAIN, "")
    with pytest.raises(ConfigError, match=r"must be a page with an expert, shown in a browser; got 'miniwob/ch"):
        envs.expert("miniwob")(goal, envs.make("booking"))


def test_the_suite_has_each_page_in_turn_and_one_session_serves_them(browser: BrowserPool) -> None:
    goals = envs.tasks("miniwob", Split.TEST, len(PAGES) + 1)
    assert {goal.env for goal in goals[:-1]} == set(PAGES) and goals[0].env == goals[-1].env
    assert goals[0] == envs.task_from_seed(goals[0].env, goals[0].seed)
    assert all(goal.commands == miniwob.commands(goal.env) for goal in goals)
    assert miniwob.commands("miniwob/click-test") == INPUT_COMMANDS
    assert miniwob.commands("miniwob/button-delay") == (*INPUT_COMMANDS, Command.WAIT)
    env = envs.make("miniwob", browser)
    for goal in goals[:3]:
        alone = make(goal.env.removeprefix("miniwob/"), browser)
        assert env.reset(goal) == alone.reset(goal)
        alone.close()
    with pytest.raises(ConfigError, match=r"task\.env must be in 'miniwob'; got 'miniwob/chase-circle'"):
        env.reset(Task("miniwob/chase-circle", 0, Split.TEST, ""))
    env.close()


def test_a_lost_browser_draws_instructions_again() -> None:
    with BrowserPool() as pool:
        first = miniwob.instruction("miniwob/click-button", 0, pool)
        pool._workers[0].end("on purpose")
        miniwob.instruction.cache_clear()
        assert miniwob.instruction("miniwob/click-button", 0, pool) == first


def test_a_page_that_shrinks_shows_its_end_again(browser: BrowserPool) -> None:
    env = make("choose-date-easy", browser)
    goal = task("choose-date-easy", 8)
    env.reset(goal)
    env.step(EnvAction(Command.CLICK, 1))
    env.step(EnvAction(Command.SCROLL, text="DOWN"))
    day = next(i for i, c in enumerate(env.view.page.controls, 1) if c.name == "29")
    assert "text Date:" in env.step(EnvAction(Command.CLICK, day)).observation.text
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
    "flight.AA",
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
    assert {"miniwob/click-test", "miniwob/book-flight", "miniwob/flight.Alaska"} <= set(names)
    with pytest.raises(ConfigError, match=r"no environment 'miniwob/click-tset'; did you mean 'miniwob/click-test'"):
        envs.make("miniwob/click-tset")
    with pytest.raises(ConfigError, match=r"task\.env must be 'miniwob/click-test'; got 'miniwob/click-button'"):
        envs.make("miniwob/click-test").reset(Task("miniwob/click-button", 0, Split.TRAIN, ""))
    with pytest.raises(ConfigError, match=r"family must be 'apps', 'chromium', 'miniwob' or 'suite'; got 'web'"):
        envs.names("web")
