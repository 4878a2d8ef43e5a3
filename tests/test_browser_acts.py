"""What an act must not do: press what covers a frame, choose by a stale number, lose the session to a script."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agentq.agent.commands import parse_env_action
from agentq.envs.browser.env import BrowserEnv
from agentq.envs.browser.pool import BrowserPool
from agentq.envs.browser.session import BrowserSession
from agentq.envs.site import Response
from agentq.types import StepResult
from tests.browser_lab import TASK, elsewhere, lab_env, named

NEXT = "<style>body { margin: 0 } button { width: 400px; height: 60px }</style><button>Next</button>"
COVER = """<div style="position: absolute; left: 0; top: 0; width: WIDTH; height: 200px; background: red"
onclick="location = '/delete?id=2'">Delete order</div>"""
AROUND = """<body style="margin: 0"><iframe src="FRAME" style="width: 600px; height: 200px; border: 0"></iframe>"""
PRESSED = NEXT.replace("<button", "<button onclick='this.textContent = `pressed ${event.clientX}`'")


def do(env: BrowserEnv, command: str, name: str = "") -> StepResult:
    """A command, whose # is the control of this name. The session must survive it."""
    result = env.step(parse_env_action(command.replace("#", f"[{named(env, name)}]", 1) if name else command))
    assert env.log[-1].lost == ()  # type: ignore[union-attr]
    return result


def hits(env: BrowserEnv, path: str) -> int:
    return int(env._driver.host.kit.site.hits[path])  # type: ignore[attr-defined]


@pytest.mark.browser
@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("host", ["", "127.0.0.1", "localhost"])  # same origin; another one; one in its own process
def test_what_covers_a_frame_is_not_pressed(browser: BrowserPool, host: str, full: bool) -> None:
    with elsewhere({"/frame": PRESSED}) as (address, _):
        frame = f"{address.replace('127.0.0.1', host)}/frame" if host else "/frame"
        around = AROUND.replace("FRAME", frame)
        pages = {
            "/": around + COVER.replace("WIDTH", "100%"),
            "/half": around + COVER.replace("WIDTH", "250px"),
            "/delete": "<h1>gone</h1>",
            "/frame": PRESSED,
        }
        allow = [frame.removesuffix("/frame")] if host else []
        env = lab_env(browser, pages, full=full, allow=allow)
        for command in ("CLICK #", "HOVER #", "DRAG # BY 0 9"):
            result = do(env, command, "Next")
            assert (result.error_kind, result.error_message) == ("covered", "[1] is covered by div Delete order")
        do(env, "GOTO /half")
        assert "pressed 300" in do(env, "CLICK #", "Next").observation.text  # three quarters across: it is free there
        assert hits(env, "/delete") == 0
        env.close()


@pytest.mark.browser
def test_a_frame_within_a_frame_that_covers_it_is_not_pressed(browser: BrowserPool) -> None:
    """The inner document is of the outer one's site, and the one between them, which covers it, of another."""
    with elsewhere({"/frame": NEXT}) as (inner, _):
        middle = AROUND.replace("FRAME", f"{inner}/frame") + COVER.replace("WIDTH", "100%")
        with elsewhere({"/middle": middle}) as (address, asked):
            other = address.replace("127.0.0.1", "localhost")
            page = AROUND.replace("FRAME", f"{other}/middle")
            env = lab_env(browser, {"/": page}, full=True, allow=[other, inner])
            assert do(env, "CLICK #", "Next").error_message == "[1] is covered by div Delete order"
            assert asked == ["/middle"]
            env.close()


@pytest.mark.browser
@pytest.mark.parametrize("host", ["", "localhost"])
def test_a_frame_that_is_padded_scaled_or_taller_than_the_window_is_pressed_where_it_says(
    browser: BrowserPool, host: str
) -> None:
    rows = "".join(
        f"<button style='display: block; height: 20px' onclick='t.textContent = {i}'>b{i}" for i in range(150)
    )
    frame = f"<body style='margin: 0'><p id=t style='margin: 0; height: 20px'></p>{rows}"
    with elsewhere({"/frame": frame}) as (address, _):
        source = f"{address.replace('127.0.0.1', host)}/frame" if host else "/frame"
        around = f"<h1>Around</h1><iframe src='{source}' style='width: 300px; height: 3100px; STYLE'></iframe>"
        pages = {"/frame": frame}
        for style in ("padding: 45px", "transform: scale(.5); transform-origin: 0 0", "border: 9px solid"):
            pages["/"] = around.replace("STYLE", style)
            env = lab_env(browser, pages, full=True, allow=[source.removesuffix("/frame")] if host else [])
            for i in (2, 140, 75):
                assert f"text {i}\n" in do(env, "CLICK #", f"b{i}").observation.text, style
            env.close()


@pytest.mark.browser
def test_an_option_is_chosen_by_its_label_and_only_if_it_may_be(browser: BrowserPool) -> None:
    page = """<select aria-label=State id=s><option>Alabama<option>Texas<option>Utah</select>
<select aria-label=Many id=m multiple><option>a<option>b<option>c</select>
<select aria-label=Size><option>S<option disabled>M<optgroup label=Large disabled><option>XL</optgroup></select>
<select aria-label=Late id=l><option>x<option>y</select>
<script>setTimeout(() => { l.disabled = true; m.innerHTML = '<option>a'
s.innerHTML = '<option>Alabama<option>Ohio<option>Texas<option>Utah' }, 700)</script>"""
    for full in (True, False):
        env = lab_env(browser, {"/": page}, full=full)
        time.sleep(1)
        changed = do(env, "SELECT # Texas", "State")
        assert (changed.error_kind, changed.error_message) == ("no_such_option", "the options of [1] have changed")
        assert "Ohio" in changed.observation.text or not full
        assert do(env, "SELECT # Texas", "State").error_kind is None and env.view.values[0] == "Texas"
        late = do(env, "SELECT # y", "Late")
        assert (late.error_kind, env.view.values[3]) == ("disabled", "x")
        for label in ("M", "XL"):
            result = do(env, f"SELECT # {label}", "Size")
            assert (result.error_kind, result.error_message) == ("disabled", f"option {label} of [3] is disabled")
        assert env.view.values[2] == "S"
        env.reset(TASK)
        time.sleep(1)
        assert do(env, "SELECT # c", "Many").error_kind == "no_such_option"
        env.close()


@pytest.mark.browser
def test_fields_that_cannot_be_typed_into_are_left_as_they_are(browser: BrowserPool) -> None:
    page = """<p id=out></p><input type=date aria-label=Fixed value=2020-01-01 readonly>
<input type=date aria-label=Day id=d><input aria-label=Name id=n><input type=color aria-label=Shade>
<script>setTimeout(() => { d.disabled = n.disabled = true }, 700)
onkeydown = () => { out.textContent = "heard" }</script>"""
    env = lab_env(browser, {"/": page}, full=True)
    time.sleep(1)
    said = {
        "Fixed": ("not_taken", "[1] can only be read"),
        "Day": ("disabled", "[2] is disabled"),
        "Name": ("disabled", "[3] is disabled"),
    }
    for name, expected in said.items():
        before = env.reset(TASK)
        time.sleep(1)
        result = do(env, "TYPE # 2026-05-05", name)
        assert (result.error_kind, result.error_message) == expected
        assert "heard" not in result.observation.text and "2020-01-01" in before.text
    assert env.view.values[0] == "2020-01-01"
    text = do(env, "TYPE # #FF0000", "Shade").observation.text
    assert "Shade [4]: #ff0000" in text and "note" not in text
    env.close()


@pytest.mark.browser
def test_acts_that_made_the_page_throw_keep_the_session(browser: BrowserPool, tmp_path: Path) -> None:
    page = """<input type=range aria-label=Any step=any max=1>
<div role=slider tabindex=0 aria-label=Price aria-valuenow=5 aria-valuemin=0 aria-valuemax=10>
<input type=range max=10 oninput="parentNode.ariaValueNow = value"></div>
<label><input type=radio name=r style="display: none" onclick="out.textContent = 'chosen'">Small</label>
<form><input name=requestSubmit aria-label=Field></form><p id=out></p>"""
    env = lab_env(browser, {"/": page}, full=True)
    env._driver.host.file = lambda name: str(tmp_path / name)  # type: ignore[method-assign]
    assert "slider Any [1]: 0.3 " in do(env, "TYPE # 0.3", "Any").observation.text
    assert "slider Price [2]: 7 " in do(env, "TYPE # 7", "Price").observation.text
    for wrong in ("high", "nan"):
        assert do(env, f"TYPE # {wrong}", "Any").error_message == f"a slider must be given a number; got {wrong}"
    upload = do(env, "UPLOAD # a.txt", "Small")
    assert (upload.error_kind, upload.error_message) == ("wrong_role", "radio [4] takes no file")
    assert "chosen" not in upload.observation.text
    thrown = do(env, "SUBMIT #", "Field")
    assert (thrown.error_kind, thrown.broken) == ("not_taken", False)
    assert thrown.error_message == "the page does not take it: TypeError: form.requestSubmit is not a function"
    assert do(env, "TYPE # x", "Field").error_kind is None and env.view.values[4] == "x"
    env.close()


@pytest.mark.browser
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])  # a frame in the same process; one in its own
def test_a_frame_that_has_gone_costs_the_act_and_not_the_session(browser: BrowserPool, host: str) -> None:
    with elsewhere({"/frame": NEXT}) as (address, _):
        far = address.replace("127.0.0.1", host)
        page = f"<h1>Top</h1><iframe id=f src={far}/frame></iframe><script>setTimeout(() => f.remove(), 1500)</script>"
        env = lab_env(browser, {"/": page}, full=True, allow=[far])
        frames = env.view.text()
        time.sleep(2)
        result = do(env, "CLICK [1]")
        assert "button Next [1]" in frames and result.error_kind == "not_taken" and not result.broken
        assert result.observation.text.startswith("heading Top\nerror the page does not take it: ")
        env.close()


@pytest.mark.browser
def test_typing_that_leads_to_another_page_is_taken(browser: BrowserPool) -> None:
    page = "<input aria-label=Code oninput=\"location = '/two'\">"
    env = lab_env(browser, {"/": page, "/two": "<h1>Two</h1>"}, full=True)
    result = do(env, "TYPE # 7", "Code")
    assert (result.error_kind, result.observation.text) == (None, "heading Two")
    env.close()


JOINED = "می\u200cخواهم", "👨\u200d👩\u200d👧"


@pytest.mark.browser
def test_joiners_are_typed_and_options_are_found_with_and_without_them(browser: BrowserPool) -> None:
    page = """<input aria-label=Query oninput="out.textContent = encodeURIComponent(value)"><p id=out></p>
<select aria-label=Pick><option>one<option>می\u200cخواهم<option>👨\u200d👩\u200d👧 family
<option>b\u202e<option>b\u200d</select>"""
    env = lab_env(browser, {"/": page}, full=True)
    for text in JOINED:
        shown = do(env, f"TYPE # {text}", "Query").observation.text
        assert env.view.values[0] == text and ("%E2%80%8C" in shown or "%E2%80%8D" in shown) and "note" not in shown
    do(env, "TYPE # a\u202eb\u200b\u061c\u2060c\U000e0041", "Query")  # bidi, zero width, tags
    assert env.view.values[0] == "abc"
    for said, chosen in {
        "می\u200cخواهم": 1,
        "میخواهم": 1,
        "👨\u200d👩\u200d👧 family": 2,
        "family": 2,
        "b": 3,
        "b\u200d": 4,
    }.items():
        assert do(env, f"SELECT # {said}", "Pick").error_kind is None
        assert env.view.values[1] == env.view.page.controls[1].options[chosen][0], said
    env.close()


@pytest.mark.browser
def test_an_address_without_a_page_is_the_agents_choice_and_no_fault_of_the_world(browser: BrowserPool) -> None:
    env = lab_env(
        browser, {"/": "<h1>Home</h1>", "/empty": Response(status=204), "/hop": "-> http://127.0.0.1:1/"}, full=True
    )
    result = do(env, "GOTO /empty")
    assert (result.error_kind, result.broken) == ("not_taken", False)
    assert result.observation.text.startswith("heading Home\nerror the address has no page to show")
    assert do(env, "GOTO /hop").error_kind == "blocked"  # what may not be loaded is aborted, too
    env.close()


@pytest.mark.browser
def test_find_and_scroll_reach_into_a_frame_of_the_page(browser: BrowserPool) -> None:
    frame = "<div style='height: 3000px'>top</div><p>needle</p>"
    page = """<iframe src=/frame style="position: fixed; inset: 0; width: 100%; height: 100%"></iframe>"""
    env = lab_env(browser, {"/": page, "/frame": frame}, full=True)
    assert "2 below" in env.view.text() or "1 below" in env.view.within(1000, None)[0]  # type: ignore[attr-defined]
    assert "note" not in do(env, "SCROLL DOWN").observation.text
    text = do(env, "FIND needle").observation.text
    assert text.endswith("note found 1 of 1: needle") and "window" not in text.split("needle")[0]
    assert do(env, "SCROLL DOWN").observation.text.endswith("note nothing more below")
    env.close()


class Held:
    """A context whose dialog opens while a page is asked for something."""

    def __init__(self) -> None:
        self.dialog: Any = None
        self.gate = None
        self.opened = asyncio.Event()

    async def unless_dialog(self, work: asyncio.Future[Any]) -> None:
        await asyncio.wait({work, asyncio.ensure_future(self.opened.wait())}, return_when=asyncio.FIRST_COMPLETED)


def test_a_dialog_ends_the_wait_for_a_picture_whenever_it_opens() -> None:
    async def shoot(context: Held, opens_s: float) -> dict[str, Any]:
        async def never(*_: Any) -> None:
            asyncio.get_running_loop().call_later(opens_s, context.opened.set)
            await asyncio.Event().wait()

        tab = SimpleNamespace(evaluate=never)
        context.shown = lambda: tab  # type: ignore[attr-defined]
        context.reader = SimpleNamespace(elements={})  # type: ignore[attr-defined]
        async with asyncio.timeout(5):
            return await BrowserSession(context).picture()  # type: ignore[arg-type]

    assert asyncio.run(shoot(Held(), 0.01)) == {}
    context = Held()
    context.dialog = "open"
    assert asyncio.run(shoot(context, 99.0)) == {}
