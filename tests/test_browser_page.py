"""What is read from a live page: roles, states, frames, shadow roots, stable numbers, the settle rule, the budget."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentq.envs.browser.budget import fit, tokens
from agentq.envs.browser.env import BrowserEnv
from agentq.envs.browser.pool import BrowserPool
from agentq.envs.browser.states import StepLog
from agentq.envs.page import parse
from agentq.types import Command, EnvAction
from tests.browser_lab import TASK, click, elsewhere, lab_env, lab_host, named
from tests.test_envs_page import FORM, FORM_TEXT

RICH = """<h1>Rich <i>page</i></h1>
<h2><a href="/x">Linked heading</a></h2>
<p>one<br>two <span style="display:none">never</span><span aria-hidden=true>never</span></p>
<p style="visibility:hidden">never <button>Never</button></p>
<label>Wrapped <input type=checkbox checked></label>
<fieldset disabled><input aria-label=Off value=v></fieldset>
<input type=radio name=r aria-label=A><input type=radio name=r aria-label=B checked>
<input type=password aria-label=Secret value=abc><input type=range aria-label=Level value=7>
<input placeholder="Type here"><textarea aria-label=Note>line
two</textarea>
<select multiple aria-label=Many><option selected>a<option selected>b<option>c</select>
<input type=submit value="Send it"><img alt="A cat">
<div role=switch aria-checked=true aria-label=Wifi></div><div role=tab aria-selected=true>First tab</div>
<div contenteditable aria-label=Editor>rich text</div>
<div onclick="1">Click area</div><div style="cursor:pointer">Hand</div><p id=late></p>
<script>late.addEventListener('click', () => 0); late.textContent = 'Listens'</script>
<span id=by>Named by</span> <button aria-labelledby=by>x</button> <button title=Tip></button>"""

RICH_TEXT = """heading Rich page
link Linked heading [1]
text one
text two
checkbox Wrapped [2]: checked
textbox Off [3]: v (disabled)
radio A [4]
radio B [5]: checked
textbox Secret [6]: abc
slider Level [7]: 7
textbox Type here [8]
textbox Note [9]: line two
combobox Many [10]: a , b
button Send it [11]
text A cat
switch Wifi [12]: checked
tab First tab [13]: selected
textbox Editor [14]: rich text
clickable Click area [15]
clickable Hand [16]
clickable Listens [17]
text Named by
button Named by [18]
button Tip [19]"""


def text_of(browser: BrowserPool, html: str, strict: bool = False) -> str:
    env = lab_env(browser, {"/": html}, strict=strict)
    try:
        return env.step(EnvAction(Command.SCROLL, text="UP")).observation.text
    finally:
        env.close()


@pytest.mark.browser
def test_the_page_of_the_in_process_tests_reads_the_same(browser: BrowserPool) -> None:
    assert text_of(browser, FORM) == FORM_TEXT


@pytest.mark.browser
def test_roles_names_values_and_states(browser: BrowserPool) -> None:
    assert text_of(browser, RICH) == RICH_TEXT


INNER = st.deferred(lambda: st.one_of(st.sampled_from(["one", " two ", "a &amp; b"]), ELEMENT))
ELEMENT = st.one_of(
    st.tuples(st.sampled_from(["div", "li", "b", "span", "main"]), st.lists(INNER, max_size=3)).map(
        lambda t: f"<{t[0]}>{''.join(t[1])}</{t[0]}>"
    ),
    st.sampled_from(
        [
            "<h2>A <i>heading</i></h2>",  # with a control in it, page.js shows the control
            "<p>a<b>b</b> c</p>",
            "<a href='/x'>Link <b>x</b></a>",
            "<button disabled>No</button>",
            "<button type=button>Go</button>",
            "<input aria-label='Field' value=' v  w '>",
            "<input type=checkbox checked aria-label=Box>",
            "<select aria-label=S><option>a</option><option selected>b </option></select>",
            "<textarea aria-label=T>x y</textarea>",
            "<p role=alert>Oh  no</p>",
            "<p hidden>never</p>",
            "<script>1</script>",
        ]
    ),
)


@pytest.mark.browser
def test_both_readers_find_the_same_lines(browser: BrowserPool) -> None:
    """A twin: envs/page.py and page.js on random pages of the HTML that both know."""
    pages = {"/": "<p>first</p>"}
    env = lab_env(browser, pages)

    @settings(max_examples=60, database=None, derandomize=True)
    @given(st.lists(ELEMENT, min_size=1, max_size=6))
    def compare(elements: list[str]) -> None:
        pages["/"] = "<body>" + "".join(elements)
        here = parse("<!doctype html>" + pages["/"])
        env.reset(TASK)
        assert env.view.text() == here.render(here.initial_values(), 0, 40)

    compare()
    env.close()


FRAMES = """<h1>outer</h1><button>Before</button>
<iframe src="/inner" style="margin:70px"></iframe><iframe src="{there}/far" style="margin:30px"></iframe>
<iframe src="data:text/html,<button>Data</button>"></iframe><iframe srcdoc="<button>Doc</button>"></iframe>
<div id=host></div><button>After</button>
<script>const root = host.attachShadow({mode: 'open'});
root.innerHTML = '<p>in the shadow</p><button>Shade</button><slot></slot>'; host.innerHTML = '<b>slotted</b>';
root.querySelector('button').onclick = (e) => e.target.textContent = 'Shade clicked'</script>"""
INNER_PAGE = "<p>inner</p><button onclick=\"this.textContent='Inner clicked'\">Inner</button>"
FAR_PAGE = "<p>far</p><button onclick=\"this.textContent='Far clicked'\">Far</button><input aria-label=Field>"


@pytest.mark.browser
@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost"]
)  # another origin in the same process; another site's process
def test_frames_and_shadow_roots_are_read_and_acted_in(browser: BrowserPool, host: str) -> None:
    with elsewhere({"/far": FAR_PAGE}) as (address, _):
        there = address.replace("127.0.0.1", host)
        env = lab_env(browser, {"/": FRAMES.replace("{there}", there), "/inner": INNER_PAGE}, allow=[there])
        lines = ["heading outer", "button Before [1]", "text inner", "button Inner [2]", "text far", "button Far [3]"]
        lines += ["textbox Field [4]", "button Doc [5]", "text in the shadow", "button Shade [6]", "text slotted"]
        assert env.step(EnvAction(Command.SCROLL, text="UP")).observation.text.split("\n") == [
            *lines,
            "button After [7]",
        ]
        for name in ("Inner", "Far", "Shade"):
            number = named(env, name)
            result = click(env, name)
            assert result.error_kind is None
            assert f"button {name} clicked [{number}]" in result.observation.text
        env.step(EnvAction(Command.TYPE, named(env, "Field"), "typed"))
        assert env.view.values[named(env, "Field") - 1] == "typed"
        env.close()


LIVING = """<button onclick="list.prepend(Object.assign(document.createElement('button'), {textContent: 'New'}))">Add
</button>
<button onclick="document.querySelector('.old').remove()">Remove</button>
<button onclick="b.textContent = 'Renamed'">Rename</button>
<div id=list><button class=old>A</button><button id=b>B</button></div>"""


@pytest.mark.browser
def test_numbers_stay_with_their_elements_and_are_not_reused(browser: BrowserPool) -> None:
    env = lab_env(browser, {"/": LIVING})
    assert [named(env, name) for name in ("Add", "Remove", "Rename", "A", "B")] == [1, 2, 3, 4, 5]
    click(env, "Add")
    assert (named(env, "New"), named(env, "A"), named(env, "B")) == (6, 4, 5)
    click(env, "Remove")
    click(env, "Rename")
    assert named(env, "Renamed") == 5
    gone = env.step(EnvAction(Command.CLICK, 4))
    assert (gone.error_kind, gone.error_message) == ("no_such_element", "no element [4]")
    click(env, "Add")
    assert env.view.page.controls[6].name == "New"  # number 7: the removed 4 is not given again
    assert env.step(EnvAction(Command.GOTO, text="/")).observation.text.split("\n")[0] == "button Add [1]"
    env.close()


SETTLING = {
    "/": """<button onclick="setTimeout(() => o.textContent = 'done', 30)">Timer</button>
    <button onclick="fetch('/slow').then(r => r.text()).then(t => o.textContent = t)">Fetch</button>
    <button onclick="location = '/next'">Script</button>
    <button onclick="setInterval(() => o.textContent = Math.random(), 5)">Restless</button><p id=o></p>""",
    "/slow": "fetched slowly",
    "/next": "<h1>next</h1><a href=/slow>Slow</a>",
}


@pytest.mark.browser
def test_the_settle_rule_waits_for_what_an_act_began_and_says_so(browser: BrowserPool) -> None:
    env = lab_env(browser, SETTLING)
    for name, seen in (("Timer", "text done"), ("Fetch", "fetched slowly")):
        assert seen in click(env, name).observation.text
        assert isinstance(env.log[-1], StepLog) and env.log[-1].rule == "quiet"
    click(env, "Restless")
    assert isinstance(env.log[-1], StepLog) and env.log[-1].rule == "cap" and env.log[-1].settle_ms >= 5000
    assert click(env, "Script").observation.text == "heading next\nlink Slow [1]"
    assert isinstance(env.log[-1], StepLog) and env.log[-1].rule == "loaded"
    assert click(env, "Slow").observation.text == "text fetched slowly"
    assert isinstance(env.log[-1], StepLog) and env.log[-1].rule == "loaded" and env.log[-1].settle_ms >= 250
    env.close()


ANNOUNCED = """<button onclick="setTimeout(() => o.textContent = 'timed', 700)">Timer</button>
<button onclick="requestAnimationFrame(() => setTimeout('o.textContent = 1 + 1', 700))">Text</button>
<button onclick="setInterval((x) => self.x = x, 5, 1); clearTimeout(setTimeout(() => o.remove(), 700))">Idle</button>
<p id=o></p>"""


@pytest.mark.browser
def test_pages_that_announce_what_they_do_are_settled_once_nothing_is_due(browser: BrowserPool) -> None:
    host = lab_host({"/": ANNOUNCED})
    host.announces, host.quiet_ms = True, 1000
    env = BrowserEnv(host, browser)
    env.reset(TASK)
    for name, seen in (("Timer", "timed"), ("Text", "2"), ("Idle", "2"), ("Timer", "timed")):
        assert click(env, name).observation.text.endswith(f"text {seen}")
        assert isinstance(env.log[-1], StepLog) and env.log[-1].rule == "quiet"  # Idle: due, but nothing changes
    env.close()


IN_PLACE = {  # what a page is started by, one after the other: the status of the request that it took, 0 for none
    "1": 200,
    "2": 0,
    "setTimeout(() => 0, 1e6)": 0,
    "3": 200,  # the timer is left
    "document.body.append(document.createElement('i'))": 200,
    "4": 200,  # the part is left
    "document.querySelector('input').value = 'x'": 200,
    "5": 200,  # the text is left
    "6": 0,
}


@pytest.mark.browser
def test_a_page_is_started_again_in_place_only_where_nothing_is_left(browser: BrowserPool) -> None:
    host = lab_host({"/": "<p>a page</p><input>"})
    start, session = host.start(TASK), browser.open(host.allow, announces=True)
    replies = [
        session.call("visit", url=start.url, cookies=start.cookies, script=script, in_place=True) for script in IN_PLACE
    ]
    assert [reply["status"] for reply in replies] == list(IN_PLACE.values())
    assert {reply["numbers"] for reply in replies if reply["new"]} == {1} and all(reply["new"] for reply in replies)
    session.close()


@pytest.mark.browser
def test_what_cannot_be_pressed_is_data(browser: BrowserPool) -> None:
    cover = "<button>Under</button><div style='position:fixed;inset:0;background:#fff'>cookie banner</div>"
    env = lab_env(browser, {"/": cover})
    result = click(env, "Under")
    assert (result.error_kind, result.error_message) == ("covered", "[1] is covered by div cookie banner")
    assert result.observation.text.endswith("\nerror [1] is covered by div cookie banner")
    env.close()


@pytest.mark.browser
def test_what_is_covered_in_part_is_pressed_where_it_is_free(browser: BrowserPool) -> None:
    cover = "position:absolute;left:0;top:0;width:70px;height:40px;background:#fff"
    button = "position:absolute;left:0;top:0;width:100px;height:40px"
    page = (
        f"<button onclick=\"this.textContent = 'Pressed'\" style='{button}'>Under</button><div style='{cover}'></div>"
    )
    env = lab_env(browser, {"/": page})
    result = click(env, "Under")
    assert result.error_kind is None and "button Pressed [1]" in result.observation.text
    env.close()


GESTURES = """<style>
.far { margin-top: 2000px } .box { height: 60px; overflow: auto } #a { position: absolute; left: 300px; width: 80px }
</style>
<input aria-label=Field><button id=b onmouseover="log('over')">Touch</button>
<button id=a onmousedown="log('down')" onmouseup="log('up')">Thing</button>
<div class=box><p>1<p>2<p>3<p>4<p>5<button onclick="log('deep')">Deep</button></div>
<p class=far><button onmouseup="log('dropped')">Place</button></p><p id=o></p>
<script>
const log = (text) => { o.textContent += text + ' ' };
document.onkeydown = (e) => log(e.isTrusted && (e.ctrlKey ? 'ctrl ' : '') + e.key);
document.onmousemove = (e) => { if (e.buttons) o.dataset.moves = 1 + (+o.dataset.moves || 0) };
document.onmouseup = (e) => log(`${e.clientX - 340} ${o.dataset.moves}`);
</script>"""


@pytest.mark.browser
def test_the_mouse_and_the_keyboard_reach_the_page_as_a_persons_do(browser: BrowserPool) -> None:
    env = lab_env(browser, {"/": GESTURES})

    def told(command: Command, name: str = "", text: str | None = None) -> str:
        before = str(env.view.page.lines[-1])
        result = env.step(EnvAction(command, named(env, name) if name else None, text))
        assert result.error_kind is None, result.error_message
        return str(env.view.page.lines[-1]).removeprefix(before).removeprefix("text ").strip()

    assert told(Command.HOVER, "Touch") == "over"
    assert told(Command.CLICK, "Deep").endswith("deep"), "an element in a box that scrolls is scrolled into it"
    assert told(Command.DRAG, "Thing", "BY 40 -10") == "down 40 8"
    assert told(Command.DRAG, "Thing", f"TO [{named(env, 'Place')}]").startswith("down dropped")
    told(Command.TYPE, "Field", "abc")
    assert told(Command.PRESS, text="Control+A") == "ctrl Control ctrl a"
    assert told(Command.PRESS, text="Backspace 2") == "Backspace Backspace"
    assert env.view.values[named(env, "Field") - 1] == "", "all was selected"
    token = env.snapshot()
    env.step(EnvAction(Command.PRESS, text="Tab"))
    env.restore(token)
    assert env.log[-1].outcome == "exact" and env.view.page == token.view.page  # type: ignore[union-attr]
    env.close()


@pytest.mark.browser
def test_gestures_that_cannot_be_made_are_data(browser: BrowserPool) -> None:
    cover = "<button>Under</button><div style='position:fixed;inset:0;background:#fff'>banner</div>"
    bad = [
        (EnvAction(Command.HOVER, 1), "covered"),
        (EnvAction(Command.DRAG, 1, "BY 4 4"), "covered"),
        (EnvAction(Command.DRAG, 1, "TO [7]"), "no_such_element"),
        (EnvAction(Command.DRAG, 1, "away"), "bad_argument"),
        (EnvAction(Command.PRESS, None, "F13"), "bad_argument"),
    ]
    env, strict = lab_env(browser, {"/": cover}), lab_env(browser, {"/": cover}, strict=True)
    for action, kind in bad:
        assert env.step(action).error_kind == kind, action
        assert strict.step(action).error_kind == "not_taken"
    env.close()
    strict.close()


@pytest.mark.browser
def test_a_list_that_listens_and_a_card_that_holds_buttons_are_numbered(browser: BrowserPool) -> None:
    page = """<ul id=l><li>one<li>two</ul><div id=c><p>Ann's letter</p><button>Bin</button></div><button id=n></button>
    <svg id=s width=9 height=9><circle r=9 fill=red /></svg>
    <script>for (const e of [l, c, s]) e.addEventListener('click', () => {})</script>"""
    env = lab_env(browser, {"/": page})
    *controls, drawing = (control.name for control in env.view.page.controls)
    assert controls == ["one", "two", "Ann's letter", "Bin", "n"]
    assert re.fullmatch(r"svg 9x9 at \d+,\d+ , circle red 18x18 at \d+,\d+", drawing)
    env.close()


@pytest.mark.browser
def test_drawings_and_edges_that_can_be_dragged_are_read_and_used(browser: BrowserPool) -> None:
    page = """<style>body { margin: 0 }</style><svg width=100 height=60 style="display: block">
    <rect fill=none x=50 y=10 width=40 height=40 /><circle id=c cx=20 cy=30 r=5 fill=red />
    <text id=t x=30 y=30 fill=blue>q</text></svg><div style="height: 20px; cursor: e-resize" class=edge></div>
    <p id=out></p>
    <script>for (const e of [c, t]) e.addEventListener("mousedown", () => {});
    addEventListener("click", (e) => { out.textContent = `${e.clientX} ${e.clientY}` })
    setTimeout(() => { out.textContent = "late" }, 600)</script>"""
    env = lab_env(browser, {"/": page})
    first = env.view.text().splitlines()
    assert first[0] == "text rect none 40x40 at 70,30" and first[1] == "clickable circle red 10x10 at 20,30 [1]"
    assert first[2].startswith("clickable q blue ") and first[3] == "clickable edge [3]"
    assert "text late" in env.step(EnvAction(Command.WAIT, None, "1")).observation.text
    assert "text 70 30" in env.step(EnvAction(Command.CLICK_AT, None, "70 30")).observation.text
    env.close()


@pytest.mark.browser
def test_any_text_of_a_page_is_an_observation(browser: BrowserPool) -> None:
    script = "<p id=o></p><script>o.textContent = 'a\\ud800b\\u202e\\0c\\u2028d \\u{1F600}'</script>"
    env = lab_env(browser, {"/": script})
    assert env.view.text() == "text a?b\u202e c d \U0001f600"
    assert len(env.snapshot().observation.fingerprint) == 16
    env.close()


@pytest.mark.browser
def test_dialogs_do_not_block_and_are_recorded(browser: BrowserPool) -> None:
    env = lab_env(browser, {"/": "<button onclick=\"this.textContent = confirm('Sure?')\">Ask</button>"})
    assert "button false [1]" in click(env, "Ask").observation.text
    assert isinstance(env.log[-1], StepLog) and env.log[-1].dialogs == ("Sure?",)
    env.close()


@pytest.mark.browser
def test_a_long_page_is_cut_to_the_budget_and_says_so(browser: BrowserPool) -> None:
    host = lab_host({"/": "".join(f"<p>word{i} word word</p>" for i in range(30))})
    env = BrowserEnv(host, browser, max_tokens=20)
    lines = env.reset(TASK).text.split("\n")
    env.step(EnvAction(Command.SCROLL, text="UP"))
    assert isinstance(env.log[-1], StepLog) and env.log[-1].cut_lines == 30 - (len(lines) - 1)
    assert lines[-1] == f"cut {env.log[-1].cut_lines} lines"
    assert len(env.screenshot()) > 1000 and env.screenshot().startswith(b"\x89PNG")
    env.close()


def test_fit_keeps_whole_lines_and_counts_the_rest() -> None:
    # tokens: pieces of up to six letters, and every mark
    assert [tokens(text) for text in ("word", "longerword", "a, b", "")] == [1, 2, 3, 0]
    lines = ["a b c", "d e", "f"]  # 3 + 2 + 1
    assert fit(lines, 6) == (lines, 0)
    assert fit(lines, 5) == (["a b c", "d e", "cut 1 lines"], 1)
    assert fit(lines, 4) == (["a b c", "cut 2 lines"], 2)
    assert fit(["a b c", "d"], 2) == (["a b", "cut 2 lines"], 2)
    assert fit(["a", "b " * 1_000_000, "c"], 301) == (["a", f"{'b ' * 149}b…", "c", "cut 1 lines"], 1)
