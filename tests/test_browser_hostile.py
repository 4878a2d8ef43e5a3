"""Hostile pages, each at least once: no hang, no escape, nothing left behind, each failure on its step by its kind."""

from __future__ import annotations

import pytest
from hostile import figures, walk
from hostile_site import NAMES, TASK, HostileHost, hostile_site

from agentq.envs.browser.env import BrowserEnv
from agentq.envs.browser.pool import BrowserPool
from agentq.errors import ConfigError
from agentq.types import Command, EnvAction
from tests.browser_lab import click, lab_env, lab_host

pytestmark = pytest.mark.browser

# What opening a page is recorded as, where it is not lost with its worker, as any may be on a machine too busy for it.
OPENED = {
    "error_500": "http_500",
    "error_401": "http_401",
    "silent": "network",
    "garbage": "network",
    "reset": "network",
    "hop_loop": "network",
    "hop_file": "network",
    "hop_elsewhere": "blocked",
    "hop_twice": "blocked",
    "refresh_head": "blocked",
    "endless": "fine",
    "fetching": "fine",
    "loading": "fine",
    "alerts": "fine",
    "clobbered": "fine",
    "refresh": "fine",
    "reloads": "fine",
    "parts": "fine",
}
LOST = {"spin"}


@pytest.mark.rest
def test_every_hostile_page_is_survived(browser: BrowserPool) -> None:
    seen = walk(-(-len(NAMES) // 3), pages=3, steps=1, deadline_s=4.0)
    assert seen.raised == [] and seen.unexplained == 0
    assert seen.elsewhere_hits == 0
    assert seen.leftover == []
    assert set(seen.opened) == set(NAMES)
    kinds = {page: set(seen.opened[page]) - {"browser_lost"} for page in OPENED}
    assert {page: found for page, found in kinds.items() if not found <= {OPENED[page]}} == {}
    assert sum(map(bool, kinds.values())) > len(OPENED) / 2
    assert all(set(seen.opened[page]) == {"browser_lost"} for page in LOST)
    found = figures(seen, episodes=1, seconds=1.0)
    assert sum(found["workers_replaced"].values()) == len(seen.replaced)


def test_the_pages_reach_elsewhere_once_that_is_allowed(browser: BrowserPool) -> None:
    """The control: they do try."""
    with hostile_site() as (origin, elsewhere):
        for page in ("lure", "parts", "reaching", "hop_elsewhere"):
            host = HostileHost(origin, True)
            host.allow.append(elsewhere.evil)
            env, before = BrowserEnv(host, browser), elsewhere.hits
            env.reset(TASK)
            env.step(EnvAction(Command.GOTO, text=f"/{page}"))
            env.step(EnvAction(Command.CLICK, 1))
            assert elsewhere.hits > before, page
            env.close()


BUMP = (
    "<button>Idle</button><button>Rest</button>"
    "<button onclick=\"this.insertAdjacentText('afterend', 'x')\">Bump</button>"
)


def test_an_action_that_changes_nothing_again_and_again_ends_the_episode(browser: BrowserPool) -> None:
    env = lab_env(browser, {"/": BUMP}, max_repeats=3)
    for name in ("Idle", "Idle", "Rest", "Idle", "Bump", "Bump", "Bump", "Bump", "Idle"):
        result = click(env, name)
        assert (result.truncated, result.error_kind) == (False, None)
    token = env.snapshot()
    assert not env.step(None).truncated and not click(env, "Idle").truncated  # unreadable: not the same action
    env.restore(token)  # the count is the state's
    assert not click(env, "Idle").truncated
    result = click(env, "Idle")
    assert (result.truncated, result.error_kind, result.reward) == (True, "loop", 0.0)
    assert result.error_message == "the same action changed nothing 3 times in a row"
    env.close()
    endless = lab_env(browser, {"/": BUMP}, max_repeats=0)
    assert [click(endless, "Idle").truncated for _ in range(6)] == [False] * 6
    endless.close()
    for wrong in (1, -1):
        with pytest.raises(ConfigError, match=f"max_repeats must be at least 2, or 0 for no limit; got {wrong}"):
            BrowserEnv(lab_host({}), browser, max_repeats=wrong)


def test_reading_on_and_waiting_is_no_loop(browser: BrowserPool) -> None:
    long = "".join(f"<p>Paragraph {n}</p>" for n in range(200)) + "<button>Idle</button>"
    env = lab_env(browser, {"/": long}, max_repeats=3, full=True)
    for _ in range(5):
        result = env.step(EnvAction(Command.SCROLL, text="DOWN"))
        assert (result.truncated, result.error_kind) == (False, None), result.error_message
    for _ in range(4):
        result = env.step(EnvAction(Command.WAIT, text="1"))
        assert (result.truncated, result.error_kind) == (False, None), result.error_message
    while (result := env.step(EnvAction(Command.SCROLL, text="DOWN"))).error_kind is None:
        pass
    assert (result.truncated, result.error_kind) == (True, "loop")  # at the end of the page nothing more is shown
    env.close()
