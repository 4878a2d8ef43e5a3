"""Pages of somebody else's are read whole, as a person sees them, within a token budget."""

from __future__ import annotations

import pytest

from agentq.envs.browser.budget import tokens
from agentq.envs.browser.env import BrowserEnv
from agentq.envs.browser.pool import BrowserPool
from agentq.envs.browser.whole import Line, WholeView
from agentq.envs.page import Page
from agentq.types import Command, EnvAction
from tests.browser_lab import TASK, click, lab_env, lab_host, named

WIDGETS = """<nav aria-label=Primary><ul><li><a href=#x>Home</a><li>Plain<ul><li>deep</ul></ul></nav>
<main><h1>Hello <b>you</b></h1><p>Some <b>bold</b> text</p>
<table><caption>People</caption><thead><tr><th>Name<th>City<th>Act</thead>
<tr><td>Ann<td>Rome<td><button>Edit</button> <a href=d>del</a>
<tr><td>Bob<td><td><input type=checkbox checked aria-label=pick></table>
<label>Email <input type=email required placeholder=you@x.y></label><label for=d>Date</label><input id=d type=date>
<input type=password value=secret aria-label=Pw><input type=number min=1 max=9 aria-label=Many value=3>
<fieldset><legend>Colour</legend><label><input type=radio name=c> Red</label>
<label><input type=radio name=c checked>Blue</label></fieldset>
<style>.h{display:none}</style><label><input class=h type=checkbox checked> Fancy</label>
<label>Photo<input type=file class=h accept=.png></label>
<select aria-label=City><option>Rome<option selected>Paris</select>
<select multiple aria-label=All><option selected>a<option>b</select>
<input list=l aria-label=Lang><datalist id=l><option>en<option>de</datalist>
<span id=n>Given by</span> <button aria-labelledby=n>x</button>
<button aria-expanded=false><svg><title>Burger</title></svg></button>
<button disabled>Save</button><div draggable=true>Card</div><div tabindex=0>Focus</div>
<x-a></x-a><x-b>Slotted</x-b><details><summary>More</summary>unseen</details>
<dialog open aria-label=Confirm>Sure?<button>Yes</button></dialog>
<iframe srcdoc="<p>within <button>There</button>" title=Inner></iframe>
<iframe src="http://127.0.0.1:9/" title=Ads></iframe>
<div role=status>Saved</div></main>
<script>
customElements.define("x-a", class extends HTMLElement {
  constructor() { super(); this.attachShadow({ mode: "closed" }).innerHTML = "<label>Closed <input></label>"; }
});
customElements.define("x-b", class extends HTMLElement {
  constructor() {
    super();
    this.attachShadow({ mode: "open" }).innerHTML = "<button><slot></slot></button>";
    this.addEventListener("click", () => 0);
  }
});
</script>"""
WIDGETS_TEXT = """navigation Primary
 - link Home [1]
 - Plain
   - deep
main
 heading Hello you
 text Some bold text
 table People
  row Name | City | Act
  row Ann | Rome | button Edit [2] link del [3]
  row Bob |  | checkbox pick [4]: checked
 textbox Email [5] (required, email, such as you@x.y)
 textbox Date [6] (YYYY-MM-DD)
 textbox Pw [7]: ******** (password)
 spinbutton Many [8]: 3 (from 1 to 9)
 group Colour
  radio Red [9]
  radio Blue [10]: checked
 checkbox Fancy [11]: checked
 file Photo [12] (a file, accepts .png)
 combobox City [13]: Paris (options: Rome | Paris)
 listbox All [14]: a (options: a | b)
 combobox Lang [15] (options: en | de)
 text Given by
 button Given by [16]
 button Burger [17] (collapsed)
 button Save [18] (disabled)
 clickable Card [19] (draggable)
 clickable Focus [20]
 textbox Closed [21]
 button Slotted [22]
 button More [23] (collapsed)
 dialog Confirm
  text Sure?
  button Yes [24]
 frame Inner
  text within
  button There [25]
 frame Ads http://127.0.0.1:9 (not read)
 status Saved"""


@pytest.mark.browser
def test_what_a_person_sees_of_each_control_is_read(browser: BrowserPool) -> None:
    env = lab_env(browser, {"/": WIDGETS}, full=True)
    shown = env.reset(TASK).text.split("\n")
    assert shown == [*WIDGETS_TEXT.split("\n"), *shown[len(WIDGETS_TEXT.split("\n")) :]]
    assert [line for line in shown[len(WIDGETS_TEXT.split("\n")) :] if not line.startswith("window: ")] == []


@pytest.mark.browser
def test_what_is_refused_says_why_and_long_lists_say_how_many(browser: BrowserPool) -> None:
    options = "".join(f"<option>{i}" for i in range(40))
    page = f"""<form><label>Name <input required name=q></label><button>Go</button></form>
<input aria-label=Code aria-invalid=true aria-errormessage=e><p id=e>Four digits</p>
<label>Number <select>{options}</select></label>"""
    env = lab_env(browser, {"/": page}, full=True)
    assert "textbox Name [1] (required)" in env.view.text()
    text = env.step(EnvAction(Command.CLICK, named(env, "Go"))).observation.text
    assert "textbox Name [1] (required, invalid Please fill out this field.)" in text
    assert "textbox Code [3] (invalid Four digits)" in text
    assert "| 29 | 10 more: SELECT a part of one)" in text
    assert env.step(EnvAction(Command.SELECT, named(env, "Number"), "39")).error_kind is None
    result = env.step(EnvAction(Command.SELECT, named(env, "Number"), "1"))
    assert result.error_kind is None and "]: 1 (" in result.observation.text
    assert env.step(EnvAction(Command.SELECT, named(env, "Number"), "9x")).error_kind == "no_such_option"


@pytest.mark.browser
def test_each_part_of_a_widget_that_listens_as_a_whole_is_a_control(browser: BrowserPool) -> None:
    page = """<p id=said></p><div id=days><span>1</span><span>2</span><span>3</span></div>
<div id=card><b>Title</b><i>more</i></div><script>
days.addEventListener("click", (event) => { said.textContent = "day " + event.target.textContent });
card.onclick = () => { said.textContent = "card" };</script>"""
    env = lab_env(browser, {"/": page}, full=True)
    assert env.view.text() == "clickable 1 [1]\nclickable 2 [2]\nclickable 3 [3]\nclickable Titlemore [4]"
    assert "text day 2" in env.step(EnvAction(Command.CLICK, 2)).observation.text
    assert "text card" in env.step(EnvAction(Command.CLICK, 4)).observation.text


@pytest.mark.browser
def test_only_what_a_person_may_see_is_read_and_icons_have_words(browser: BrowserPool) -> None:
    page = """<style>.pen::before { content: '\\e010' } .slash::before { content: '/' / '' }</style>
<div role=dialog style="position:absolute;top:-900px"><button>Far</button></div>
<div style="visibility:hidden"><a href=/x onclick="1">Gone</a><img alt=Unseen src=data:,></div>
<button><i class="fas pen"></i></button><button title="Edit page"><i class="fas pen"></i></button>
<button title=Create>\u2795</button><a href=/y class=slash>Path</a>
<div id=files><ul><li>notes.txt</li><li>sums.txt</li><li></li></ul></div>
<script>files.addEventListener("click", (event) => document.title = event.target.textContent)</script>"""
    env = lab_env(browser, {"/": page}, full=True)
    assert env.reset(TASK).text.split("\n") == [
        "button fas pen [1]",
        "button Edit page [2]",
        "button \u2795 [3] (Create)",
        "link Path [4]",
        "clickable notes.txt [5]",
        "clickable sums.txt [6]",
    ]


@pytest.mark.browser
def test_a_long_table_is_read_near_the_window_and_the_rest_is_counted(browser: BrowserPool) -> None:
    page = """<table id=t></table><script>t.innerHTML = Array.from({ length: 10000 }, (_, i) =>
`<tr><td>${i + 1}<td><a href=#${i}>Person ${i + 1}</a>`).join("")</script>"""
    env = lab_env(browser, {"/": page}, full=True)
    text = env.view.text()
    assert "row 1 | link Person 1 [1]" in text and "more here: SCROLL or FIND)" in text and len(text) < 10_000
    found = env.step(EnvAction(Command.FIND, text="person 7777")).observation.text
    assert "row 7777 | link Person 7777" in found and "note found 1 of 1: person 7777" in found


@pytest.mark.browser
def test_scrolling_loads_what_a_list_loads_at_its_end(browser: BrowserPool) -> None:
    page = """<div id=list></div><script>
const add = () => { for (let i = 0; i < 30; i++) { const p = document.createElement("p");
  p.textContent = `item ${list.children.length + 1}`; list.append(p); } };
add(); onscroll = () => { if (innerHeight + scrollY > document.body.scrollHeight - 50) add(); };</script>"""
    env = lab_env(browser, {"/": page}, full=True)
    assert "text item 30" in env.view.text() and "item 31" not in env.view.text()
    for _ in range(2):
        text = env.step(EnvAction(Command.SCROLL, text="DOWN")).observation.text
    assert "text item 31" in text and "lines above" in text
    for _ in range(4):
        text = env.step(EnvAction(Command.SCROLL, text="UP")).observation.text
    assert text.endswith("note nothing more above")


@pytest.mark.browser
def test_what_appears_is_shown_first_however_long_the_page(browser: BrowserPool) -> None:
    page = f"""<button onclick="d.showModal()">Open</button>{("<div>" + "<p>filler text here</p>" * 100 + "</div>") * 4}
<dialog id=d aria-label=Sure>Really?<button>Yes</button></dialog>"""
    env = BrowserEnv(lab_host({"/": page}, full=True), browser, max_tokens=200)
    first = env.reset(TASK).text
    assert tokens(first) <= 230 and " left out" in first.split("\n")[-1]
    text = env.step(EnvAction(Command.CLICK, 1)).observation.text
    assert "dialog Sure\n text Really?\n button Yes [2]" in text and tokens(text) <= 230
    assert env.log[-1].cut_lines > 300


def view(*lines: Line) -> WholeView:
    """A view of these lines."""
    return WholeView("/", Page(tuple(line.text for line in lines), (), ()), (), 200, 0, lines, ())


def test_the_budget_goes_to_news_then_the_window_then_what_is_below_then_above() -> None:
    lines = [Line(0, f"text {word}", at) for word, at in [("a", -1), ("b", -1), ("c", 0), ("d", 1), ("e", 1)]]
    page, before = view(*lines), view(*lines[:4])
    assert page.within(1000, None) == (
        "text a\ntext b\ntext c\ntext d\ntext e\nwindow: 2 lines above, 2 below, 0 left out",
        0,
    )
    one = 3  # tokens of each line with its end
    assert page.within(20 + one, None)[0] == (
        "... 2 lines left out\ntext c\n... 2 lines left out\nwindow: 2 lines above, 2 below, 4 left out"
    )
    assert "text e" in page.within(20 + one, before)[0]  # it is new
    assert "text d" in page.within(20 + 2 * one, None)[0]
    assert "text b" in page.within(20 + 4 * one, None)[0]
    assert view(Line(0, "text a")).within(1000, None) == ("text a", 0)
    assert view(Line(0, "", -1, unread=5), Line(0, "text a"), Line(0, "", 1, unread=7)).within(1000, None) == (
        "... 5 lines left out\ntext a\n... 7 lines left out\nwindow: 5 lines above, 7 below, 12 left out",
        12,
    )
    long, left = view(Line(0, "word " * 500), Line(0, "b")).within(50, None)
    assert tokens(long) < 80 and left == 1


def test_one_huge_line_hides_no_other() -> None:
    huge = "word " * 2_000_000
    for at, first in ((0, False), (0, True), (1, False)):
        text, left = view(Line(0, "a"), Line(1, huge, at, first), Line(0, "button b")).within(1000, None)
        lines = text.split("\n")
        assert (lines[0], lines[2], left) == ("a", "button b", 0)
        assert lines[1].startswith(" word word") and lines[1].endswith("…") and 400 < tokens(lines[1]) < 1000
    assert 3900 < tokens(view(Line(0, huge)).within(4000, None)[0]) < 4000
    text, left = view(*[Line(0, huge)] * 9).within(4000, None)
    assert tokens(text) < 4000 and left == 9 - sum(line.endswith("…") for line in text.split("\n")) > 0


@pytest.mark.browser
def test_a_box_that_listens_for_a_framework_or_shows_nothing_is_no_control(browser: BrowserPool) -> None:
    page = """<div id=react>Saved</div><div id=popup><p style="display: none">One <i class=check></i></p></div>
    <div id=own>Open</div><script>react["_reactListening1"] = true
    react.onclick = () => {}
    for (const box of [react, popup, own]) box.addEventListener("click", () => {})</script>"""
    env = lab_env(browser, {"/": page}, full=True)
    assert env.view.text().splitlines() == ["text Saved", "clickable Open [1]"]


@pytest.mark.browser
def test_a_dialog_that_listens_a_list_within_its_combobox_and_the_edges_of_columns(browser: BrowserPool) -> None:
    page = """<div role=combobox aria-expanded=true aria-label=Fruit tabindex=0>Plum<div role=listbox>
<div role=option>Fig</div><div role=option aria-selected=true>Plum</div></div></div>
<table><tr><td>1<span style="display: inline-block; width: 6px; height: 9px" onclick="0"></span></table>
<div role=dialog aria-label=Sure id=box><p>Why?<p><button>Yes</button></div>
<script>box.addEventListener("click", () => 0)</script>"""
    assert lab_env(browser, {"/": page}, full=True).view.text().splitlines() == [
        "combobox Fruit [1]: Plum (expanded)",
        " listbox",
        "  option Fig [2]",
        "  option Plum [3] (selected)",
        "table",
        " row 1",
        "dialog Sure",
        " text Why?",
        " button Yes [4]",
    ]


HIDING = (
    "hidden",
    "title",
    "children",
    "nodeType",
    "localName",
    "matches",
    "getAttribute",
    "parentElement",
    "shadowRoot",
)
HIDING += ("childNodes", "style", "id", "elements", "isConnected", "getRootNode", "ownerDocument", "querySelector")
HIDING += ("getBoundingClientRect", "hasAttribute", "closest", "type", "form", "textContent", "tabIndex", "draggable")


@pytest.mark.browser
@pytest.mark.parametrize("full", [True, False], ids=["full", "short"])
def test_a_form_is_read_whatever_its_fields_are_called(browser: BrowserPool, full: bool) -> None:
    pages = {"/": "<p>first</p>"}
    env = lab_env(browser, pages, full=full)
    top, space = ("search\n", " ") if full else ("", "")
    for name in HIDING:
        pages["/"] = f"""<h1>Films</h1><form role=search><label>Title <input name={name}></label><button>Find</button>
</form><form onclick="0" ondrop="0"><img name={name} alt=Poster src=data:,></form>"""
        shown = env.reset(TASK).text
        assert shown.startswith(f"heading Films\n{top}{space}textbox Title [1]\n{space}button Find [2]\n"), name
        assert shown.endswith("clickable Poster [3]" + " (takes drops)" * full), name
    env.close()


ODD = {  # markup: its lines
    "<div id=d></div><script>d.attachShadow({mode: 'open'}).innerHTML = '<legend>Terms</legend><p>in</p>'</script>": [
        "text Terms",
        "text in",
    ],
    "<p id=d></p><script>d.attachShadow({mode: 'open'}).innerHTML = '<summary role=button>More</summary>'</script>": [
        "button More [1] (collapsed)"
    ],
    """<div id=d></div><script>const odd = document.createElementNS(null, 'input'); odd.setAttribute('role', 'button');
    odd.textContent = 'Odd'; d.append(odd)</script>""": ["button Odd [1]"],
    "<svg><input aria-label=a /><select></select><textarea></textarea><slot /><label>a</label></svg>": [],
    "<math><mi role=button>x</mi></math>": ["button x [1]"],
    # an error that no rule foresees costs one element: here a form with the role of a combobox is asked for its labels
    "<form role=combobox><input name=querySelectorAll aria-label=Field></form>": ["textbox Field [1]"],
}


@pytest.mark.browser
def test_odd_markup_costs_no_more_than_itself(browser: BrowserPool) -> None:
    pages = {"/": "<p>first</p>"}
    env = lab_env(browser, pages, full=True)
    for odd, lines in ODD.items():
        pages["/"] = f"<h1>Top</h1>{odd}<button>Last</button>"
        *shown, last = env.reset(TASK).text.split("\n")
        assert shown == ["heading Top", *lines], odd
        assert last.startswith("button Last ["), odd
    env.close()


DOT = "src=data:image/gif;base64,R0lGODlhAQABAAAAACw= width=50 height=50"
PICTURES = f"""<p>Milk <img {DOT} alt=Remove onclick="say('image')"></p><img {DOT} alt="" onclick="say('plain')" id=bin>
<img {DOT} alt=Seen><button><img {DOT} alt=Inner onclick="0"></button>
<svg width=50 height=50 onclick="say('drawing')"><title>Heart</title><circle r=30 /></svg>
<svg width=90 height=50><defs><g role=button tabindex=0><rect width=9 height=9 /></g></defs><title>Map</title>
<g role=button tabindex=0 aria-label=Texas onclick="say('group')"><rect width=40 height=40 /></g>
<g onclick="say('titled')"><title>Utah</title><rect x=45 width=40 height=40 /></g></svg>
<svg width=90 height=50><a href=/linked><text y=20>Linked</text></a></svg>
<svg width=90 height=50><foreignObject width=90 height=50><button onclick="say('within')">Within</button>
</foreignObject></svg><p id=out>-</p><div style="height:1500px"></div>
<img {DOT.replace("50", "100")} usemap=#m><map name=m>
<area href=/box alt=Box shape=rect coords=60,10,90,40><area href=/ring alt=Ring shape=circle coords=30,70,9>
<area href=/rest title=Rest shape=default></map><map name=unused><area href=/none alt=None></map>
<script>const say = (text) => {{ out.textContent = text }}</script>"""


@pytest.mark.browser
def test_pictures_and_parts_of_drawings_that_can_be_pressed_are_controls(browser: BrowserPool) -> None:
    led = {f"/{name}": f"<h1>{name}</h1>" for name in ("linked", "box", "ring", "rest")}
    env = lab_env(browser, {"/": PICTURES, **led}, full=True)
    assert env.view.text().splitlines() == [
        "text Milk",
        "clickable Remove [1]",
        "clickable bin [2]",
        "text Seen",
        "button Inner [3]",
        "clickable Heart [4]",
        "text Map",
        "button Texas [5]",
        "clickable Utah [6]",
        "link Linked [7]",
        "button Within [8]",
        "text -",
        "link Box [9]",
        "link Ring [10]",
        "link Rest [11]",
    ]
    said = {
        "Remove": "image",
        "bin": "plain",
        "Heart": "drawing",
        "Texas": "group",
        "Utah": "titled",
        "Within": "within",
    }
    for name, text in said.items():
        assert f"\ntext {text}\n" in click(env, name).observation.text
    for name in ("linked", "box", "ring", "rest"):
        env.reset(TASK)
        assert click(env, name.capitalize()).observation.text == f"heading {name}"
    env.close()


@pytest.mark.browser
@pytest.mark.parametrize("full", [True, False], ids=["full", "short"])
def test_a_frame_is_read_by_the_document_that_it_shows(browser: BrowserPool, full: bool) -> None:
    page = """<h1>Top</h1><iframe id=own srcdoc="<p>own</p>"></iframe><iframe id=led></iframe><script>
const blob = new Blob(["<p>blob</p>"], { type: "text/html" });
led.contentWindow.location = URL.createObjectURL(blob);</script>"""
    shown = lab_env(browser, {"/": page}, full=full).view.text().splitlines()
    assert shown == (["heading Top", "frame", " text own", "frame (not read)"] if full else ["heading Top", "text own"])


@pytest.mark.browser
def test_no_name_holds_what_a_password_field_does(browser: BrowserPool) -> None:
    page = """<div id=l>Login <input type=password value=hunter2 aria-label=Pw></div>
<button aria-labelledby=l>x</button>
<label for=x>Code <input type=password value=hunter2><input type=password role=slider value=hunter2></label>
<input id=x>"""
    text = lab_env(browser, {"/": page}, full=True).view.text()
    assert "hunter2" not in text and "button Login Pw [2]" in text and "textbox Code [5]" in text
