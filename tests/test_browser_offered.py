"""Options that a field offers, rows that share one listener, and first pages that a gateway answers for."""

from __future__ import annotations

import pytest

from agentq.agent.commands import parse_env_action
from agentq.envs.browser.env import BrowserEnv
from agentq.envs.browser.pool import BrowserPool
from agentq.envs.site import Response
from agentq.errors import EnvError
from agentq.types import StepResult
from tests.browser_lab import click, lab_env, named

pytestmark = pytest.mark.browser


def do(env: BrowserEnv, command: str, name: str) -> StepResult:
    """A command, whose # is the control of this name."""
    return env.step(parse_env_action(command.replace("#", f"[{named(env, name)}]")))


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_first_page_from_a_gateway_is_tried_again_and_breaks_the_task(browser: BrowserPool, status: int) -> None:
    pages = {"/": Response("<h1>No backend</h1>", status)}
    with pytest.raises(EnvError, match=f"the first page must load; got HTTP {status} at http://127.0.0.1"):
        lab_env(browser, pages)


def test_a_first_page_that_the_site_answers_with_an_error_is_shown(browser: BrowserPool) -> None:
    for status in (404, 500):
        env = lab_env(browser, {"/": Response("<h1>Oops</h1>", status)}, full=True)
        assert env.view.text() == "heading Oops"
        env.close()


def test_suggestions_are_shown_by_what_the_field_takes(browser: BrowserPool) -> None:
    page = """<input list=l aria-label=Fruit><datalist id=l><option value=Apple><option>Pear
<option value=DE label=Germany><option value=FR>France</datalist><div role=combobox aria-label=Old>x</div>"""
    env = lab_env(browser, {"/": page}, full=True)
    assert "combobox Fruit [1] (options: Apple | Pear | DE Germany | FR France)" in env.view.text()
    assert do(env, "SELECT # Apple", "Fruit").error_message == "combobox [1] is typed into ; use TYPE"
    assert do(env, "SELECT # x", "Old").error_message == "combobox [2] has no list ; CLICK it , then an option"
    assert do(env, "TYPE # DE", "Fruit").error_kind is None and env.view.values[0] == "DE"
    env.close()


@pytest.mark.parametrize("full", [True, False])
def test_options_of_the_same_label_are_told_apart_by_their_group(browser: BrowserPool, full: bool) -> None:
    page = """<select aria-label=Month onchange="out.textContent = value"><optgroup label=2025>
<option value=25-1>January<option>March</optgroup><optgroup label=2026>
<option value=26-1>January</optgroup></select><p id=out></p>"""
    env = lab_env(browser, {"/": page}, full=full)
    assert [label for label, _ in env.view.page.controls[0].options] == ["2025 January", "March", "2026 January"]
    assert env.view.values[0] == "2025 January"
    assert do(env, "SELECT # January", "Month").error_kind == "no_such_option"
    assert "text 26-1" in do(env, "SELECT # 2026 January", "Month").observation.text
    assert env.view.values[0] == "2026 January"
    state = env.snapshot()
    do(env, "SELECT # March", "Month")
    env.restore(state)
    assert env.view.values[0] == "2026 January" and "text 26-1" in env.view.text()
    env.close()


def rows(around: str, row: str) -> str:
    """A page of twelve rows, whose clicks the element around them hears."""
    listed = "".join(row.replace("#", str(n)) for n in range(12))
    opened, closed = ("<table>", "</table>") if around == "tbody" else ("", "")
    return f"""<aside id=out></aside>{opened}<{around} id=list>{listed}</{around}>{closed}<script>
list.addEventListener("click", ({{ target }}) => {{
  if (!target.matches("a,button")) out.textContent = "open " + target.closest("[data-id]").dataset.id }})</script>"""


@pytest.mark.parametrize(
    ("around", "row"),
    [
        ("div", "<div data-id=#><b>Row #</b> <i>new</i> <a href=/x>about</a></div>"),
        ("ul", "<li data-id=#>Row # <button>x</button>"),
        ("ul", "<li data-id=# style='display: inline-block'>Row # <button>in the middle</button>"),
        ("tbody", "<tr data-id=#><td>Row #<td>new<td><button>x</button>"),
    ],
    ids=["div", "ul", "narrow", "tbody"],
)
def test_each_row_behind_one_listener_is_pressed_by_its_first_text(browser: BrowserPool, around: str, row: str) -> None:
    env = lab_env(browser, {"/": rows(around, row)}, full=True)
    assert [control.name for control in env.view.page.controls[::2]] == [f"Row {n}" for n in range(12)]
    assert len(env.view.page.controls) == 24
    for number in (0, 11):
        assert f"text open {number}" in click(env, f"Row {number}").observation.text
    env.close()


@pytest.mark.parametrize(
    ("around", "row"),
    [
        ("div", "<p data-id=#>Words <a href=/x>about</a> more"),  # what is read
        ("div", "<div class=part#>Words <a href=/x>about</a></div>"),  # the parts of a page differ
        ("div", "<div>Words <input></div>"),
        ("div", "<div><h2>Words</h2><button>x</button></div>"),
    ],
    ids=["prose", "parts", "fields", "sections"],
)
def test_parts_that_are_no_rows_get_no_numbers(browser: BrowserPool, around: str, row: str) -> None:
    env = lab_env(browser, {"/": rows(around, row)}, full=True)
    assert "clickable" not in env.view.text()
    env.close()


def test_rows_below_the_root_of_a_framework_get_no_numbers(browser: BrowserPool) -> None:
    page = rows("div", "<div>Row # <button>x</button></div>").replace("list.add", "list._reactListening1 = 1; list.add")
    env = lab_env(browser, {"/": page}, full=True)
    assert "clickable" not in env.view.text()
    env.close()
