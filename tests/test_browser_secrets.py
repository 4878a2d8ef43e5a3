"""Secrets: typed where they belong, refused elsewhere, and found in nothing that anybody reads or keeps."""

from __future__ import annotations

import html
import json
import re
import sqlite3
import time
import zlib
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from agentq.agent.actions import format_action
from agentq.envs.browser.env import BrowserEnv
from agentq.envs.browser.guard import Guard
from agentq.envs.browser.pool import BrowserPool
from agentq.envs.browser.secret import Secret, Secrets
from agentq.envs.browser.states import Return
from agentq.errors import ConfigError
from agentq.policies.scripted import ScriptedPolicy
from agentq.report import write_report
from agentq.searching.collect import attempts, collect, inline, trees
from agentq.searching.tree import SearchSettings
from agentq.store.run import RunStore
from agentq.types import Command, EnvAction, History
from tests.browser_lab import TASK, Lab, click, elsewhere, lab_host, named
from tests.test_browser_back import Foreign

VALUE = "Hunter2 &Zébra"
PARTS = re.compile(r"hunter2|z(é|%C3%A9|\\u00e9|&#233;)bra", re.IGNORECASE)
NAMED = "<secret:password>"

FORM = """<label for=q>Password</label><form action=/hello><input id=q name=q type=password><button>Log in</button>
</form><a href=/other>Other</a>"""
ECHO = (
    FORM
    + """<p id=echo></p><script>q.oninput = () => {
  const value = q.value, add = (tag, has) => document.body.append(Object.assign(document.createElement(tag), has));
  echo.textContent = [value, value.toUpperCase(), JSON.stringify(value), encodeURIComponent(value)].join(' , ');
  add('a', {href: '/' + value, textContent: value});
  add('button', {ariaLabel: 'Say ' + value, textContent: 'x'});
  add('textarea', {value: value + ' ' + value});
  add('iframe', {srcdoc: `<h2>${value.replace('&', '&amp;')}</h2>`});
  localStorage.kept = document.title = value;
  console.error(value);
  alert('x'.repeat(190) + value);
  new Image().src = 'EVIL/' + value;
  history.replaceState(0, '', '/?typed=' + encodeURIComponent(value) + '#' + value);
}</script>"""
)
PAGES = {
    "/": FORM,
    "/hello": "<h1>Welcome {q}</h1><a href=/other>Other</a>",
    "/other": "<h1>other</h1><a href=/>Home</a>",
}


def secret_env(browser: BrowserPool, pages: dict[str, Any], **bound: str) -> BrowserEnv:
    """An environment with VALUE as the secret `password` of its own origin, and others of the origins `bound`."""
    host = lab_host(pages, allow=[*bound.values()])
    others = {name: Secret(f"{VALUE} {name}", origin) for name, origin in bound.items()}
    env = BrowserEnv(host, browser, secrets={"password": Secret(VALUE, host.allow[0]), **others})
    env.reset(TASK)
    return env


def type_in(env: BrowserEnv, field: str, text: str = NAMED) -> Any:
    return env.step(EnvAction(Command.TYPE, named(env, field), text))


def lab(env: BrowserEnv) -> Lab:
    site = env._driver.host.kit.site  # type: ignore[attr-defined]
    assert isinstance(site, Lab)
    return site


@pytest.mark.browser
def test_what_the_page_echoes_is_masked_everywhere(browser: BrowserPool) -> None:
    with elsewhere({}) as (evil, asked):
        env = secret_env(browser, {**PAGES, "/": ECHO.replace("EVIL", evil)})
        result = type_in(env, "Password")
        assert result.error_kind is None
        lines = result.observation.text.split("\n")
        assert lines[0] == f"textbox Password [1]: {NAMED}"
        assert f'text {NAMED} , {NAMED} , "{NAMED}" , {NAMED}' in lines
        assert f"button Say {NAMED} [5]" in lines and f"heading {NAMED}" in lines
        assert f"textbox [6]: {NAMED} {NAMED}" in lines
        assert result.observation.url == f"/?typed={NAMED}"
        assert env.log[-1].dialogs == ("x" * 190 + NAMED[:10],)  # type: ignore[union-attr]
        said = [repr(each) for each in (result, env.log, env.view, env.snapshot(), env._driver._call("observe"))]
        said.append(browser._workers[0].log.read_text(errors="replace"))
        assert [PARTS.findall(each) for each in said] == [[]] * len(said)
        assert asked == []
        env.close()


@pytest.mark.browser
def test_the_site_is_sent_the_value_and_restore_types_it_again(browser: BrowserPool) -> None:
    env = secret_env(browser, PAGES)
    typed = type_in(env, "Password")
    before = env.snapshot()
    welcome = click(env, "Log in")
    assert lab(env).sent == [VALUE]
    assert (welcome.observation.text, welcome.observation.url) == (
        f"heading Welcome {NAMED}\nlink Other [1]",
        f"/hello?q={NAMED}",
    )
    token = env.snapshot()
    click(env, "Other")
    env.restore(token)  # the address held it: neither it nor the name in its place is sent as an address
    assert isinstance(env.log[-1], Return) and (env.log[-1].way, env.log[-1].outcome) == ("replay", "exact")
    assert lab(env).sent == [VALUE] * 2
    assert env.restore(before) == typed.observation
    assert isinstance(env.log[-1], Return) and env.log[-1].way == "token"
    click(env, "Log in")
    assert lab(env).sent == [VALUE] * 3
    twin = env.fork()
    assert twin.restore(before) == typed.observation
    click(twin, "Log in")
    assert lab(env).sent == [VALUE] * 4
    twin.close()
    env.close()


@pytest.mark.browser
def test_storage_that_holds_a_secret_is_not_kept(browser: BrowserPool) -> None:
    host = Foreign(lab_host({**PAGES, "/": ECHO}), repeatable=False)
    env = BrowserEnv(host, browser, secrets={"password": Secret(VALUE, host.allow[0])})  # type: ignore[arg-type]
    env.reset(TASK)
    assert env.snapshot().storage is not None
    type_in(env, "Password")
    assert env.snapshot().storage is None
    env.close()


KEEPS = """<input id=q aria-label=Password><button onclick="keep()">Keep</button><script>function keep() {
  const asked = indexedDB.open('d', 1);
  asked.onupgradeneeded = () => asked.result.createObjectStore('s');
  asked.onsuccess = () => asked.result.transaction('s', 'readwrite').objectStore('s').put({[q.value]: 1}, 1);
}</script>"""


@pytest.mark.browser
@pytest.mark.parametrize(("value", "kept"), [(VALUE, False), ("simpleword", False), ("another", True)])
def test_storage_with_a_secret_in_a_name_is_not_kept(browser: BrowserPool, value: str, kept: bool) -> None:
    host = Foreign(lab_host({**PAGES, "/": KEEPS}), repeatable=False)
    secrets = {"password": Secret(value, host.allow[0])}
    env = BrowserEnv(host, browser, secrets=secrets)  # type: ignore[arg-type]
    env.reset(TASK)
    type_in(env, "Password", "else" if kept else NAMED)
    click(env, "Keep")
    storage = env.snapshot().storage
    assert "'else': 1" in str(storage) if kept else storage is None
    env.close()


@pytest.mark.browser
def test_addresses_of_requests_that_are_held_name_the_secret(browser: BrowserPool) -> None:
    post = "fetch('/reset/' + encodeURIComponent(q.value), {method: 'POST'})"
    page = f"""<input id=q aria-label=Password><button onclick="{post}">Go</button>
<button onclick="setTimeout(() => {post}, 700)">Later</button>"""
    host = lab_host({"/": page}, full=True)
    env = BrowserEnv(host, browser, secrets={"password": Secret(VALUE, host.allow[0])}, guard=(guard := Guard()))
    env.reset(TASK)
    type_in(env, "Password")
    rule = f"POST {host.allow[0]}/reset/{NAMED}"
    assert click(env, "Go").error_kind == "held" and guard.tried == {rule: 1}
    env.reset(TASK)
    type_in(env, "Password")
    click(env, "Later")
    time.sleep(1.5)
    env.close()  # its reply reports what the page tried after the step
    assert guard.tried == {rule: 2}


@pytest.mark.browser
def test_an_option_is_chosen_by_the_name_of_the_secret_in_its_label(browser: BrowserPool) -> None:
    env = secret_env(browser, {"/": f"<select aria-label=Card><option>None<option>Use {html.escape(VALUE)}</select>"})
    for label in (f"Use {NAMED}", "None"):
        assert env.step(EnvAction(Command.SELECT, 1, label)).error_kind is None
        assert env.view.values[0] == label
    env.close()


CUT = """<input id=q type=password aria-label=Password><button onclick="show(q.value)">Show</button>
<button onclick="prompt('x'.repeat(495) + q.value, 'x'.repeat(95) + q.value)">Ask</button>
<button onclick="document.title = 'x'.repeat(55) + q.value; window.open('/other')">Open</button>
<div id=box></div><script>
const show = (value) => {
  const long = (length) => 'x'.repeat(length - 5) + value;
  box.innerHTML = '<button></button><nav><p>Places</p></nav><table><td>Cell</table><input><select></select>' +
    '<iframe></iframe>';
  const [button, nav, table, field, list, frame] = box.children;
  button.textContent = field.placeholder = nav.ariaLabel = table.ariaLabel = long(300);
  for (const length of [300, 301, 302, 303, 232]) list.append(new Option(long(length)));
  frame.src = 'intent:' + long(53) + '#';
};
</script>"""


@pytest.mark.browser
def test_what_is_shortened_is_masked_before(browser: BrowserPool) -> None:
    host = lab_host({"/": CUT, "/other": "<h1>other</h1>"}, full=True)
    env = BrowserEnv(host, browser, 100_000, secrets={"password": Secret(VALUE, host.allow[0])})
    env.reset(TASK)
    type_in(env, "Password")
    shown = click(env, "Show").observation.text
    for kind in ("button", "navigation", "table", "textbox"):
        assert re.search(rf"^ *{kind} x{{295}}<secr…", shown, re.MULTILINE), kind
    assert f"such as {'x' * 295}{NAMED}" in shown and f"(options: {'x' * 295}{NAMED} | x" in shown
    asked = click(env, "Ask").observation.text
    assert f" {'x' * 495}<secr ; " in asked and f" suggested text {'x' * 95}<secr\n" in asked
    env.step(EnvAction(Command.DIALOG, None, "DISMISS"))
    opened = click(env, "Open").observation.text
    assert f"tabs: 1 {'x' * 55}<secr | 2" in opened
    assert PARTS.findall(repr((shown, asked, opened, env.view, env.log))) == []
    assert not re.search(r"x{9}h", repr((shown, asked, opened, env.view, env.log)), re.IGNORECASE)
    env.close()


FRAMES = (
    """<iframe src=/inner></iframe><iframe sandbox=allow-scripts src=/opaque></iframe><iframe src='FAR/far'></iframe>"""
)


@pytest.mark.browser
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])  # a frame in the same process; one in its own
def test_a_secret_goes_into_documents_of_its_origin_only(browser: BrowserPool, host: str) -> None:
    field = "<input aria-label={}><script>document.querySelector('input').oninput = () => fetch('/typed')</script>"
    with elsewhere({"/far": field.format("Far")}) as (address, asked):
        far = address.replace("127.0.0.1", host)
        pages = {"/": FRAMES.replace("FAR", far), "/inner": field.format("Inner"), "/opaque": field.format("Opaque")}
        env = secret_env(browser, {**pages, "/typed": "", "/other": ""}, other=far)
        own = env._driver.host.allow[0]
        for name, place, origin in (("password", "Far", far), ("password", "Opaque", "null"), ("other", "Inner", own)):
            result = type_in(env, place, f"ab <secret:{name}>")
            assert result.error_kind == "secret_origin"
            bound = far if name == "other" else own
            assert result.error_message == f"the secret {name} is for {bound} only , not for {origin}"
            assert env.view.values[named(env, place) - 1] == ""
        assert type_in(env, "Inner", "<secret:pass>").error_message == "no secret pass"
        assert asked == ["/far"] and lab(env).hits["/typed"] == 0
        assert type_in(env, "Inner").error_kind is None
        assert type_in(env, "Far", "<secret:other> .").error_kind is None
        assert [env.view.values[named(env, place) - 1] for place in ("Inner", "Far")] == [NAMED, "<secret:other> ."]
        assert lab(env).hits["/typed"] == 1 and "/typed" in asked
        gone = env.step(EnvAction(Command.GOTO, text=f"/hello?q={NAMED}"))
        assert gone.error_kind == "http_404" and lab(env).sent == [NAMED]  # only typing puts a value in
        env.close()


@pytest.mark.browser
def test_a_search_leaves_no_secret_in_its_run(browser: BrowserPool, tmp_path: Path) -> None:
    def act(history: History, rng: Any) -> tuple[str, float]:
        typed, gone = f"textbox Password [1]: {NAMED}" in history.observation.text, "other" in history.observation.text
        if typed or gone:
            return format_action(EnvAction(Command.CLICK, 2) if rng.random() < 0.7 else EnvAction(Command.STOP)), -1.0
        return format_action(EnvAction(Command.TYPE, 1, NAMED if rng.random() < 0.7 else "guess")), -1.0

    host = lab_host({**PAGES, "/": ECHO})
    envs = []

    def make() -> BrowserEnv:
        envs.append(BrowserEnv(host, browser, secrets={"password": Secret(VALUE, host.allow[0])}))
        return envs[-1]

    run = tmp_path / "run"
    with RunStore.open(run, {}) as store:
        settings = SearchSettings(num_iterations=8, num_proposals=3)
        work = trees(make, ScriptedPolicy(act), None, settings)
        on_item = lambda *_: store.log("search", 0, done=1)  # noqa: E731
        collect(store, "search", attempts([TASK]), inline(work), in_flight=32, on_item=on_item)
        (tree,) = store.trees("search")
        write_report(run)
    assert VALUE in lab(envs[0]).sent
    assert any(page is not None and f"heading Welcome {NAMED}" in page.text for page in tree.observation)
    for file in run.rglob("*"):
        held = [file.read_bytes()] if file.is_file() else []
        if file.name == "run.sqlite":
            with sqlite3.connect(file) as database:
                for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
                    cells = [cell for row in database.execute(f"SELECT * FROM {table}") for cell in row]
                    held += [zlib.decompress(cell) for cell in cells if isinstance(cell, bytes) and cell[:1] == b"x"]
            assert sum(NAMED.encode() in each for each in held) > 2  # what is stored was read
        assert [PARTS.findall(each.decode("utf-8", "replace")) for each in held] == [[]] * len(held), file
    for env in envs:
        env.close()


LETTERS = st.characters(
    min_codepoint=33, max_codepoint=0x2FF, exclude_characters="<>\xad\x7f", exclude_categories=["C", "Z"]
)
VALUES = st.lists(st.text(LETTERS, min_size=2, max_size=6), min_size=2, max_size=3).map(" ".join)
ECHOES = [
    str.upper,
    str.lower,
    quote,
    lambda text: quote(text, safe="").lower(),
    quote_plus,
    html.escape,
    json.dumps,
    lambda text: json.dumps(text, ensure_ascii=False),
    lambda text: text.encode("ascii", "xmlcharrefreplace").decode(),
    lambda text: f"<secret:{text}>",
    lambda text: text * 2,
]


@given(VALUES, st.sampled_from(ECHOES), st.text(LETTERS), st.text(LETTERS))
def test_mask_finds_a_value_in_every_usual_form(value: str, echo: Any, before: str, after: str) -> None:
    assume(value.casefold() not in f"{before} {after}".casefold())
    secrets = Secrets({"password": (value, "https://shop.test")})
    masked = secrets.mask({"lines": [3, f"{before} {echo(value)} {after}"]})
    times = 2 if echo is ECHOES[-1] else 1
    assert masked["lines"][0] == 3 and masked["lines"][1].count(NAMED) == times
    assert secrets.mask(masked) == masked
    assert secrets.reveal(NAMED) == value


def test_mask_finds_a_value_in_keys_but_not_the_fields_of_a_reply() -> None:
    secrets = Secrets({"password": ("lines", "https://shop.test")})
    told = {"lines": ["two lines"], "tried": [["POST /lines", 2]], "POST /LINES": 1, 3: {"a/lines": 1}}
    assert secrets.mask(told) == {
        "lines": [f"two {NAMED}"],
        "tried": [[f"POST /{NAMED}", 2]],
        f"POST /{NAMED}": 1,
        3: {f"a/{NAMED}": 1},
    }


def test_secrets_are_named_bound_and_hidden() -> None:
    secret = Secret(VALUE, "https://shop.test")
    assert repr(secret) == "Secret(origin='https://shop.test')"
    with pytest.raises(ConfigError, match=r"an allowed origin must be an exact one"):
        Secret(VALUE, "shop.test")
    for value in ("abc", "two  spaces", " begins", "two\nlines", "x" * 201):
        with pytest.raises(ConfigError, match=rf"a secret must be one line .*; got {len(value)} characters$"):
            Secret(value, "https://shop.test")
    host = lab_host(PAGES)
    with pytest.raises(ConfigError, match=r"the origin of secret 'a' must be an allowed one; got https://shop.test"):
        BrowserEnv(host, None, secrets={"a": secret})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"a secret's name must be a word of letters, digits and _; got 'a-b'"):
        BrowserEnv(host, None, secrets={"a-b": secret})  # type: ignore[arg-type]
