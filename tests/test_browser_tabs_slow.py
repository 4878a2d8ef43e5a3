"""New tabs that open late, close or never come; downloads; lost orders; a first page that does not load."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from agentq.agent.commands import parse_env_action
from agentq.envs.browser.env import BrowserEnv
from agentq.envs.browser.pool import BrowserPool
from agentq.envs.browser.site_server import LocalServer
from agentq.envs.browser.states import StepLog
from agentq.envs.browser.website import Website
from agentq.errors import EnvError
from agentq.types import Split, StepResult, Task
from tests.browser_lab import elsewhere, named

pytestmark = pytest.mark.browser
STILL = "note a new tab is still loading"
TASK = Task("shop", 0, Split.TRAIN, "look around")


class Site:
    """Pages by path, each a text or its headers and text. Those under /slow are answered once `let_go` is set."""

    def __init__(self, pages: dict[str, Any]) -> None:
        self.let_go, self.orders = threading.Event(), list[str]()
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path.startswith("/slow"):
                    site.let_go.wait(60)
                page = pages.get(self.path, "<h1>none</h1>")
                headers, text = ({"Content-Type": "text/html"}, page) if isinstance(page, str) else page
                self.send_response(200)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text.encode())

            def do_POST(self) -> None:
                site.orders.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
                self.do_GET()

            def log_message(self, format: str, *args: Any) -> None:
                """Print nothing."""

        self.server = LocalServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@contextmanager
def site_env(browser: BrowserPool, pages: dict[str, Any]) -> Iterator[tuple[BrowserEnv, Site]]:
    """An environment on the first page of a foreign site."""
    site = Site(pages)
    env = BrowserEnv(Website("shop", site.url), browser)
    try:
        env.reset(TASK)
        yield env, site
    finally:
        site.let_go.set()
        env.close()
        site.server.shutdown()
        site.server.server_close()


def do(env: BrowserEnv, command: str, name: str = "") -> StepResult:
    """A command, whose # is the control of this name."""
    return env.step(parse_env_action(command.replace("#", f"[{named(env, name)}]") if name else command))


def until(env: BrowserEnv, said: str) -> str:
    """The page once it has `said`."""
    for _ in range(20):
        if said in (text := do(env, "WAIT 1").observation.text):
            return text
    raise AssertionError(f"the page must say {said}; got {text}")


SLOW = {
    "/": """<title>One</title><h1>One</h1><a href=/slow target=_blank>Slow</a><a href=/quick target=_blank>Quick</a>
<a href=/two>Two</a>""",
    "/two": "<title>Two</title><h1>Two</h1><input aria-label=Name>",
    "/slow": "<title>Late</title><h1>Late</h1>",
    "/quick": "<title>Quick</title><h1>Quick</h1>",
}


def test_a_tab_that_opens_late_is_told_and_listed_and_never_shown_by_itself(browser: BrowserPool) -> None:
    with site_env(browser, SLOW) as (env, site):
        assert do(env, "CLICK #", "Slow").observation.text.endswith(STILL)
        assert do(env, "CLICK #", "Quick").observation.text == f"tabs: 1 One | 2 Quick (shown)\nheading Quick\n{STILL}"
        assert do(env, "TAB CLOSE 2").observation.text.startswith("heading One")
        assert do(env, "CLICK #", "Two").observation.text == f"heading Two\ntextbox Name [1]\n{STILL}"
        site.let_go.set()
        listed = until(env, "Late")
        assert listed == "tabs: 1 Two (shown) | 2 Late\nheading Two\ntextbox Name [1]"
        assert "textbox Name [1]: Ann" in do(env, "TYPE # Ann", "Name").observation.text
        assert do(env, "TAB 2").observation.text == "tabs: 1 Two | 2 Late (shown)\nheading Late"


def test_a_tab_that_is_still_opening_is_closed_when_another_page_is_visited(browser: BrowserPool) -> None:
    with site_env(browser, SLOW) as (env, site):
        do(env, "CLICK #", "Slow")
        assert do(env, "GOTO /two").observation.text == "heading Two\ntextbox Name [1]"
        site.let_go.set()
        for _ in range(3):
            assert do(env, "WAIT 1").observation.text == "heading Two\ntextbox Name [1]"
        assert len(env._driver.session.call("observe")["notes"]) == 0  # type: ignore[union-attr]
        assert do(env, "TAB 2").error_message == "there is no tab 2; there are 1"


def test_a_tab_that_closes_gives_way_to_the_tab_that_opened_it(browser: BrowserPool) -> None:
    pages = {
        "/": """<title>One</title><button onclick="window.open('/other')">Other</button>
<button onclick="window.open('/choose')">Ask</button><p id=out></p>""",
        "/other": "<title>Other</title><h1>Other</h1>",
        "/choose": """<title>Choose</title><button onclick="opener.document.getElementById('out').textContent = 'chosen'
window.close()">Choose</button>""",
    }
    with site_env(browser, pages) as (env, _):
        do(env, "CLICK #", "Other")
        do(env, "TAB 1")
        assert "3 Choose (shown)" in do(env, "CLICK #", "Ask").observation.text
        after = do(env, "CLICK #", "Choose").observation.text
        assert after.startswith("tabs: 1 One (shown) | 2 Other\n") and after.endswith("text chosen")
        do(env, "CLICK #", "Ask")
        assert do(env, "TAB CLOSE 3").observation.text.startswith("tabs: 1 One (shown) | 2 Other\n")


def test_downloads_and_tabs_that_cannot_open_are_told(browser: BrowserPool) -> None:
    pages = {
        "/": """<h1>Files</h1><a href=/f.csv>Here</a><a href=/f.csv target=_blank>There</a><a href=/f.pdf>Paper</a>
<a href=/two download=two.html>Kept</a><a href='data:text/html,x' target=_blank>Data</a>
<a href=mailto:ann@shop.test target=_blank>Mail</a><button id=b>Blob</button>
<script>b.onclick = () => open(URL.createObjectURL(new Blob(["x"], { type: "text/html" })))</script>""",
        "/f.csv": ({"Content-Type": "text/csv", "Content-Disposition": "attachment; filename=f.csv"}, "a,b"),
        "/f.pdf": ({"Content-Type": "application/pdf"}, "%PDF-1.4\n"),
        "/two": "<h1>Two</h1>",
    }
    with site_env(browser, pages) as (env, _):
        first = env.view.text()
        for name, said in {
            "Here": "note download: f.csv (not kept)",
            "There": "note download: f.csv (not kept)",
            "Paper": "note download: f.pdf (not kept)",
            "Kept": "note download: two.html (not kept)",
            "Data": "note a new tab was refused: data:",
            "Mail": "note a new tab was refused: mailto:",
        }.items():
            result, log = do(env, "CLICK #", name), env.log[-1]
            assert isinstance(log, StepLog)
            assert (result.observation.text, result.error_kind, log.blocked) == (f"{first}\n{said}", None, ()), name
            assert log.rule != "cap", name  # what never comes is not waited for
        blob = do(env, "CLICK #", "Blob")
        assert blob.error_kind == "blocked" and re.fullmatch(r"blob:http://\S+ is not allowed", blob.error_message)


SHOP = {
    "/": "<h1>Shop</h1><form method=post action=/order><input name=n aria-label=Name><button>Buy</button></form>",
    "/order": "<h1>Thank you</h1><a href=/>Shop</a>",
}


def test_a_lost_browser_sends_no_order_again(browser: BrowserPool) -> None:
    with BrowserPool() as pool, site_env(pool, SHOP) as (env, site):
        do(env, "TYPE # Ann", "Name")
        pool._workers[0].process.kill()
        assert do(env, "TYPE # Ann", "Name").error_kind == "browser_lost"
        assert do(env, "TYPE # Eve", "Name").error_kind is None  # no order yet: its page is reached again
        assert do(env, "CLICK #", "Buy").observation.text.startswith("heading Thank you")
        ordered = env.snapshot()
        pool._workers[0].process.kill()
        for command in ("SCROLL DOWN", "CLICK [1]", "SCROLL DOWN"):
            result = env.step(parse_env_action(command))
            assert (result.error_kind, site.orders) == ("browser_lost", ["n=Eve"])
            assert result.error_message.startswith(
                "the browser was lost; its page is not reached again without a reset"
            )
        assert do(env, "STOP").terminated and site.orders == ["n=Eve"]
        assert env.restore(ordered).text.startswith("heading Thank you")  # whoever asks for it gets it
        assert site.orders == ["n=Eve", "n=Eve"] and do(env, "SCROLL DOWN").error_kind is None
        env.reset(TASK)
        assert do(env, "TYPE # Ann", "Name").error_kind is None


def test_what_is_blocked_at_the_first_page_is_in_the_log(browser: BrowserPool) -> None:
    with (
        elsewhere({}) as (cdn, asked),
        site_env(browser, {"/": f"<h1>Shop</h1><script src={cdn}/a.js></script>"}) as (
            env,
            _,
        ),
    ):
        (log,) = env.log
        assert isinstance(log, StepLog) and log.blocked == (cdn.removeprefix("http://"),) and asked == []


def test_a_first_page_that_does_not_load_names_its_address_and_the_remedy(browser: BrowserPool) -> None:
    with elsewhere({}) as (other, _):
        away = f"<script>location = '{other}/'</script>"
        said = f"{other}/ is not allowed; http://127.0.0.1:[0-9]+ leads there: name its origin in allow="
        with pytest.raises(EnvError, match=said), site_env(browser, {"/": away}):
            pass
    env = BrowserEnv(Website("shop", f"{other}/shop"), browser)
    said = f"the first page must load; got net::ERR_SOCKS_CONNECTION_FAILED at {other}/shop: nothing listens there"
    with pytest.raises(EnvError, match=said):
        env.reset(TASK)
    env.close()


def test_a_session_that_does_not_open_is_not_counted_and_says_why(browser: BrowserPool) -> None:
    with BrowserPool() as pool:
        kept = pool.open(["http://127.0.0.1"])
        cookie = {"name": "sid", "value": "x"}  # without the site that it is for
        with pytest.raises(EnvError, match=r"must carry out open; got .*: .*[Cc]ookie"):
            pool.open(["http://127.0.0.1"], storage={"cookies": [cookie], "origins": []})
        assert pool._workers[0].sessions == 1
        kept.close()
