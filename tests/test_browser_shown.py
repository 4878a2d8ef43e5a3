"""What of a page is within reach: long pages, what opens on hover, what takes no clicks, fields of several lines."""

from __future__ import annotations

import re

import pytest

from agentq.agent.commands import parse_env_action, print_env_action
from agentq.envs.browser.breaks import with_breaks, written
from agentq.envs.browser.env import BrowserEnv
from agentq.envs.browser.pool import BrowserPool
from agentq.envs.browser.whole import WholeView
from agentq.types import EnvAction, StepResult
from tests.browser_lab import TASK, lab_env, named

pytestmark = pytest.mark.browser


def do(env: BrowserEnv, command: str, name: str = "") -> StepResult:
    """A command, whose # is the control of this name."""
    return env.step(parse_env_action(command.replace("#", f"[{named(env, name)}]") if name else command))


def lines(env: BrowserEnv) -> list[str]:
    """The page, without what is left of the budget."""
    return env.view.text().split("\n")


def test_of_a_page_that_is_too_long_the_lines_around_the_window_are_read(browser: BrowserPool) -> None:
    page = """<main id=m></main><footer><button>Order</button></footer><script>
m.innerHTML = Array.from({ length: 54 }, (_, i) => "<section>" + Array.from({ length: 100 }, (_, j) =>
  `<div>Row ${i}.${j}</div>`).join("") + "</section>").join("")</script>"""
    env = lab_env(browser, {"/": page}, full=True)
    whole = 5400 + 3  # main, contentinfo, the button
    assert lines(env)[1] == " text Row 0.0"
    for text, shown, hidden in [
        ("Row 53.90", "text Row 53.90", "Row 0.1"),
        ("Order", "button Order [1]", "Row 0.1"),
        ("Row 1.2", "text Row 1.2", "Row 53.99"),
    ]:
        said = do(env, f"FIND {text}").observation.text
        assert f"\n {shown}\n" in said, text
        assert isinstance(env.view, WholeView) and hidden not in env.view.text()
        read = [line for line in env.view.lines if not line.unread]
        assert len(read) == 5000 and sum(line.stands_for for line in env.view.lines) == whole
        found = re.search(r"window: (\d+) lines above, (\d+) below, (\d+) left out", said)
        assert found
        above, below, left = map(int, found.groups())
        assert above + below + sum(line.at == 0 for line in read) == whole
        shown_lines = [line for line in said.split("\n") if re.match(" *(text Row|button|main|contentinfo)", line)]
        gaps = sum(int(gap) for gap in re.findall(r"^\.\.\. (\d+) lines left out", said, re.MULTILINE))
        assert left == gaps == whole - len(shown_lines)


def test_what_hears_the_mouse_over_it_has_a_number_unless_a_control_within_does(browser: BrowserPool) -> None:
    page = """<style>.sub, .pop { display: none } li:hover > .sub, .top:hover + .pop { display: block }
.menu { &:hover { .late { visibility: visible } } } .late { visibility: hidden } .no:hover { color: red }
@media print { .no:hover i { display: block } } .no i { display: none } .row:hover .del { visibility: visible }
.del { visibility: hidden } h1 a { visibility: hidden } h1:hover a { visibility: visible }
pre a { display: none } pre:hover a { display: inline }</style><h1>Top <a href=#t>link to it</a></h1>
<ul><li>Goods<ul class=sub><li><a href=/a>Cups</a></ul></li><li><a href=/b>Help</a><ul class=sub><li>x1</ul></li></ul>
<div class=top>Account</div><div class=pop><a href=/c>Orders</a></div>
<div class=menu>More<a class=late href=/d>About</a></div>
<div class=no>Plain<i>x</i></div><pre>code<a href=/e>copy</a></pre>
<table><tr class=row><td>Ann<td>Rome<td><button class=del>Drop</button></table><div id=js>Script</div>
<div id=page>{}<p>one<p>two<p>three<p>four</div><div id=react>Root</div><div id=holds>Holds <a href=/f>it</a></div>
<div id=empty style="height:9px"></div><script>react._reactListening1 = true
for (const each of [js, page, react, holds, empty, document.body, document])
  each.addEventListener("mouseenter", () => 0)</script>"""
    env = lab_env(browser, {"/": page}, full=True)
    assert lines(env) == [
        "heading Top",
        "- clickable Goods [1] (hover)",
        "- link Help [2]",
        "clickable Account [3] (hover)",
        "clickable More [4] (hover)",
        "text Plain",
        "text code",
        "table",
        " row Ann [5] (hover) | Rome | ",
        "clickable Script [6] (hover)",
        "text {}",
        "text one",
        "text two",
        "text three",
        "text four",
        "text Root",
        "text Holds",
        "link it [7]",
    ]


def test_what_hover_opens_is_pressed(browser: BrowserPool) -> None:
    page = """<style>.m { width: 9em } .m a { display: none } .m:hover a { display: block }</style>
<div class=m>Goods<a href=/a>Cups</a><a href=/b>Pots</a><a href=/c>Pans</a></div><div id=j>Late</div><ul id=k hidden>
<li><a href=/d>Sub</a></ul><script>j.onmouseenter = () => k.hidden = false</script>"""
    env = lab_env(browser, {"/": page, "/b": "<h1>Pots</h1>", "/d": "<h1>Sub</h1>"}, full=True)
    assert "link Pots" in do(env, "HOVER #", "Goods").observation.text
    assert do(env, "CLICK #", "Pots").observation.text == "heading Pots"
    env.reset(TASK)
    assert "link Cups" in do(env, "CLICK #", "Goods").observation.text  # and none of them is pressed
    assert "link Sub" in do(env, "HOVER #", "Late").observation.text
    assert do(env, "CLICK #", "Sub").observation.text == "heading Sub"


def test_what_hears_only_double_clicks_or_the_right_button_is_clicked_so(browser: BrowserPool) -> None:
    page = """<p id=out></p><div ondblclick="out.textContent = 'opened'">File</div><div id=r>Map</div>
<div onclick="out.textContent += ' one'" ondblclick="out.textContent = 'two'">Both</div>
<table><tr ondblclick="out.textContent = 'row'"><td>Ann<td>Rome</table><img alt=Photo oncontextmenu="return false"
 width=9 height=9><script>r.addEventListener("contextmenu", () => { out.textContent = "menu" })</script>"""
    env = lab_env(browser, {"/": page}, full=True)
    assert lines(env) == [
        "clickable File [1] (double click)",
        "clickable Map [2] (right click)",
        "clickable Both [3]",
        "table",
        " row Ann [4] (double click) | Rome",
        "text Photo",
    ]
    for name, said in {"File": "opened", "Map": "menu", "Both": "menu one", "Ann": "row"}.items():
        assert do(env, "CLICK #", name).observation.text.split("\n")[0] == f"text {said}"


def test_what_is_inert_is_disabled(browser: BrowserPool) -> None:
    inner = "<p id=d></p><button>Framed</button><script>d.attachShadow({mode: 'open'}).innerHTML = '<input>'</script>"
    page = f"""<div inert><button>Save</button><a href=/x>Next</a><iframe srcdoc="{inner}"></iframe></div>
<button>Go</button>"""
    env = lab_env(browser, {"/": page}, full=True)
    assert [line.strip() for line in lines(env)] == [
        "button Save [1] (disabled)",
        "link Next [2] (disabled)",
        "frame",
        "textbox [3] (disabled)",
        "button Framed [4] (disabled)",
        "button Go [5]",
    ]
    assert do(env, "CLICK [1]").error_message == "button [1] is disabled"
    assert do(env, "TYPE [3] x").error_kind == "disabled"
    short = lab_env(browser, {"/": page})
    assert [control.disabled for control in short.view.page.controls] == [True, True, True, True, False]


def test_a_click_that_would_reach_only_what_lies_around_is_refused(browser: BrowserPool) -> None:
    page = """<div onclick="out.textContent = 'box'" style="pointer-events: none"><button>Off</button></div>
<div style="transform: scale(0)"><button>Gone</button></div>
<div style="position: absolute; top: -90px"><button>Above</button></div>
<a href=/x style="display: contents"><b>Wrapped</b></a><p id=out></p>
<div onclick="out.textContent += ' ' + event.currentTarget.id" id=list><b style="pointer-events: none">a</b>
<b style="pointer-events: none">b</b><b style="pointer-events: none">c</b></div>"""
    env = lab_env(browser, {"/": page, "/x": "<h1>There</h1>"}, full=True)
    for name, why in {"Off": "takes no clicks", "Gone": "has no size", "Above": "is outside the page"}.items():
        result = do(env, "CLICK #", name)
        assert (result.error_kind, result.error_message) == ("covered", f"[{named(env, name)}] {why}")
    assert "text list" in do(env, "CLICK #", "b").observation.text  # the list hears it for its parts
    assert do(env, "CLICK #", "Wrapped").observation.text == "heading There"


def test_line_breaks_are_typed_where_a_field_takes_several_lines(browser: BrowserPool) -> None:
    page = """<p id=out>-</p><textarea aria-label=Note></textarea><div contenteditable aria-label=Chat id=c></div>
<input aria-label=Path><textarea aria-label=Plain id=p></textarea><script>
c.onkeydown = (event) => { if (event.key == "Enter" && !event.shiftKey) out.textContent = "sent" }
p.oninput = () => { p.value = p.value.replaceAll("\\n", "") }
const note = document.querySelector("textarea")
const tell = () => out.textContent = JSON.stringify([note.value.replaceAll(" ", "_"), c.innerText])
onblur = onclick = tell; setInterval(tell, 20)</script>"""
    env = lab_env(browser, {"/": page}, full=True)
    said = r"def f():\n  return '\\n'\n\nf()"
    assert "note" not in do(env, f"TYPE # {said}", "Note").observation.text
    assert "note" not in do(env, r'TYPE # "Hi Ann,\nsee you"', "Chat").observation.text
    typed = r'text ["def_f():\n__return_' + r"'\\n'" + r'\n\nf()","Hi Ann,\nsee you"]'
    assert typed in do(env, "WAIT 1").observation.text
    assert "note" not in do(env, r"TYPE # C:\new", "Path").observation.text
    assert r"textbox Path [3]: C:\new" in env.view.text()
    env.step(EnvAction(parse_env_action("TYPE [3] x").command, 3, "a\nb"))
    assert "textbox Path [3]: a b" in env.view.text()
    assert do(env, r"TYPE # a\nb", "Plain").observation.text.endswith("note [4] now holds: ab")
    env.step(EnvAction(parse_env_action("TYPE [1] x").command, 1, "one\ntwo"))
    assert r'text ["one\ntwo"' in do(env, "WAIT 1").observation.text


def test_a_command_writes_a_line_break_as_two_characters() -> None:
    action = parse_env_action(r"TYPE [3] a\n b\\n")
    assert action.text == r"a\n b\\n" and print_env_action(action) == r"TYPE [3] a\n b\\n"
    assert with_breaks(action.text) == "a\n b\\n" and with_breaks(r"a\r\nb") == "a\nb"
    assert written("a\nb") == r"a\nb"
