"""Going back in Chromium: by token, by storage, by replay; verified, recorded, and never silently elsewhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agentq.envs.browser.env import BrowserEnv
from agentq.envs.browser.hosts import SiteHost
from agentq.envs.browser.pool import BrowserPool
from agentq.envs.browser.states import Return, StepLog
from agentq.errors import ConfigError
from agentq.types import Command, EnvAction
from tests.browser_lab import TASK, Lab, click, lab_env, lab_host, named

pytestmark = pytest.mark.browser

FORM = """<h1>posts {n}</h1><form method=post action=/add><button>Add</button></form>
<form method=post action=/here><input type=hidden name=a value=b><button>Stay</button></form>
<label for=t>Text</label><input id=t><input type=checkbox aria-label=Box>
<select aria-label=Pick><option>a<option>b</select><a href=/other>Other</a>"""
PAGES = {"/": FORM, "/here": "<h1>posted {n}</h1><a href=/>Home</a>", "/other": "<h1>other {n}</h1><a href=/>Home</a>"}


class Foreign:
    """A host that offers no token, as a site of somebody else's: the server's memory cannot be read or copied."""

    def __init__(self, host: SiteHost, repeatable: bool) -> None:
        self.host, self.repeatable = host, repeatable

    def __getattr__(self, name: str) -> Any:
        return getattr(self.host, name)

    def memory(self, visitor: str) -> None:
        return None

    def dismiss(self, visitor: str) -> None:
        """Another owner's site forgets no visitor."""

    def judge(self, task: object, memory: object, probe: object, stopped: bool) -> Any:
        return self.host.judge(TASK, {"posts": 0}, probe, stopped)


def foreign_env(browser: BrowserPool, pages: dict[str, Any], *, repeatable: bool = False) -> BrowserEnv:
    env = BrowserEnv(Foreign(lab_host(pages), repeatable), browser)  # type: ignore[arg-type]
    env.reset(TASK)
    return env


def back(env: BrowserEnv) -> Return:
    log = env.log[-1]
    assert isinstance(log, Return)
    return log


def filled(env: BrowserEnv) -> None:
    """Put something into every field."""
    env.step(EnvAction(Command.TYPE, named(env, "Text"), "typed"))
    env.step(EnvAction(Command.CLICK, named(env, "Box")))
    env.step(EnvAction(Command.SELECT, named(env, "Pick"), "b"))


def test_token_restores_server_url_and_fields_exactly(browser: BrowserPool) -> None:
    env = lab_env(browser, PAGES)
    click(env, "Add")
    filled(env)
    token = env.snapshot()
    assert token.view.values[named(env, "Text") - 1 :][:3] == ("typed", "checked", "b")
    for name in ("Add", "Other"):  # the server changes, then the page
        click(env, name)
    hits = dict(env._driver.host.kit.site.hits)  # type: ignore[attr-defined]
    assert env.restore(token) == token.observation
    assert env._driver.host.kit.site.hits == hits  # type: ignore[attr-defined]  # without scripts: not asked for again
    assert (back(env).way, back(env).outcome) == ("token", "exact")
    live = env._driver.look(env._driver._call("observe"), None)  # what the browser itself shows now
    assert (live.text(), live.values) == (token.view.text(), token.view.values)
    assert click(env, "Add").observation.text.startswith("heading posts 2")  # neither 1 nor 3
    env.close()


def test_token_restores_a_page_that_was_posted_to(browser: BrowserPool) -> None:
    env = lab_env(browser, PAGES)
    posted = click(env, "Stay")
    assert (posted.observation.text, posted.observation.url) == ("heading posted 1\nlink Home [1]", "/here")
    token = env.snapshot()
    click(env, "Home")
    click(env, "Add")
    env.restore(token)
    assert (back(env).way, back(env).outcome, back(env).tried) == ("token", "exact", ())
    assert click(env, "Home").observation.text.startswith("heading posts 1")  # posted once, not twice
    env.close()


def test_a_page_that_only_a_script_made_is_reached_by_replay(browser: BrowserPool) -> None:
    script = "<h1>posts {n}</h1><button onclick=\"this.insertAdjacentText('afterend', 'more')\">More</button>"
    env = lab_env(browser, {**PAGES, "/": script})
    click(env, "More")
    token = env.snapshot()
    click(env, "More")
    env.restore(token)
    assert (back(env).way, back(env).outcome, back(env).tried) == (
        *("replay", "exact"),
        ("token: 'text more' is now 'nothing'",),
    )
    assert click(env, "More").observation.text.endswith("\ntext more more")
    env.close()


def test_storage_is_used_while_nothing_unsafe_was_sent_and_is_called_approximate(browser: BrowserPool) -> None:
    env = foreign_env(browser, PAGES)
    click(env, "Add")
    filled(env)
    token = env.snapshot()
    click(env, "Other")
    env.restore(token)
    assert (back(env).way, back(env).outcome) == ("storage", "approximate")
    assert env.view.values == token.view.values
    assert click(env, "Add").observation.text.startswith("heading posts 2")  # the same visitor as before
    env.restore(token)  # now the server has changed: the stored page would say 2, so the way is not even tried
    assert (back(env).way, back(env).outcome, back(env).tried) == ("replay", "approximate", ())
    assert click(env, "Add").observation.text.startswith("heading posts 2")
    env.close()


def test_an_unsafe_request_of_a_fork_counts_for_its_origin(browser: BrowserPool) -> None:
    env = foreign_env(browser, PAGES)
    token = env.snapshot()
    fork = env.fork()
    click(fork, "Add")
    assert isinstance(fork.log[0], Return) and fork.log[0].way == "storage"
    click(env, "Other")
    env.restore(token)
    assert back(env).way == "replay"
    fork.close()
    env.close()


def test_a_way_that_leads_elsewhere_is_failed_and_the_next_step_says_so(browser: BrowserPool) -> None:
    visits = [f"<h1>visit {i}</h1><a href=/other>Other</a><script></script>" for i in range(1, 5)]
    env = lab_env(browser, {**PAGES, "/": visits})
    token = env.snapshot()
    click(env, "Other")
    env.restore(token)
    assert (back(env).way, back(env).outcome, back(env).tried) == (
        *("none", "failed"),
        ("token: 'heading visit 1' is now 'heading visit 2'", "replay: 'heading visit 1' is now 'heading visit 3'"),
    )
    result = env.step(EnvAction(Command.CLICK, 1))
    assert (result.truncated, result.error_kind, result.reward) == (True, "replay_mismatch", 0.0)
    assert env.reset(TASK).text == "heading visit 4\nlink Other [1]"
    env.close()


def test_a_lost_session_of_a_foreign_site_is_not_repeated(browser: BrowserPool) -> None:
    """Whoever cannot take an order back must not place it twice: the step fails as data, then the page is rebuilt."""
    pages = {**PAGES, "/": FORM + "<button onclick='for (;;) {}'>Hang</button>"}
    with BrowserPool(deadline_s=3.0) as pool:
        env = foreign_env(pool, pages)
        assert click(env, "Hang").error_kind == "browser_lost"
        assert isinstance(env.log[-1], StepLog) and len(env.log[-1].lost) == 1
        assert click(env, "Other").observation.text.startswith("heading other")
        assert [log.way for log in env.log if isinstance(log, Return)] == ["replay"]


def test_restore_of_what_is_shown_asks_nothing(browser: BrowserPool) -> None:
    env = lab_env(browser, PAGES)
    click(env, "Add")
    lab = env._driver.host.kit.site  # type: ignore[attr-defined]
    assert isinstance(lab, Lab)
    hits = dict(lab.hits)
    env.restore(env.snapshot())
    assert lab.hits == hits and not isinstance(env.log[-1], Return)
    with pytest.raises(ConfigError, match=r"snapshot must be of 'chromium/lab'; got one of 'x'"):
        env.restore(replace(env.snapshot(), env="x"))
    env.close()
