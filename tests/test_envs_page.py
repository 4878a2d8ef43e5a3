"""Reading HTML, and the in-process browser: what each command does by the rules of HTML."""

from __future__ import annotations

import pytest

from agentq.envs.page import parse
from agentq.envs.site import Request, Response, SiteSession
from agentq.envs.tab import ActionError, View, act, open_url
from agentq.types import Command, EnvAction

FORM = """<!doctype html><html><head><title>never shown</title><style>p {}</style></head><body>
<h1>Sign  <em>up</em></h1>
<p>Hello <b>you</b> ,
 reader</p><p role="alert">Phone is required</p><p role="status">saved</p><p hidden>secret</p>
<form action="/go?old=1" method="get">
<input type="hidden" name="token" value="7">
<label for="n">Name</label><input id="n" name="name" value="Ann">
<label for="s">Size</label><select id="s" name="size"><option value=""></option><option value="L">large</option>
<option selected>small</option></select>
<input id="a" type="checkbox" name="agree" value="yes" checked><label for="a">I agree</label>
<input type="checkbox" name="plain" aria-label="News">
<input aria-label="Locked" name="locked" value="x" disabled>
<button name="way" value="slow">Send</button><button name="way" value="fast">Send fast</button>
<button type="button" name="dead">Nothing</button>
</form>
<ul><li><a href="/a">First</a> 12 dollars</li><li>plain <a href="b?x=1">Second</a></li></ul>
</body></html>"""

FORM_TEXT = """heading Sign up
text Hello you , reader
alert Phone is required
status saved
textbox Name [1]: Ann
combobox Size [2]: small
checkbox I agree [3]: checked
checkbox News [4]
textbox Locked [5]: x (disabled)
button Send [6]
button Send fast [7]
button Nothing [8]
link First [9]
text 12 dollars
text plain
link Second [10]"""


class Echo:
    """Shows the form, or what it was sent; /loop redirects for ever, /old redirects once, /long is 60 lines."""

    def handle(self, request: Request, session: SiteSession) -> Response:
        session["hits"] = session.get("hits", 0) + 1
        match request.path:
            case "/":
                return Response(FORM)
            case "/post":
                return Response(FORM.replace('method="get"', 'method="post"'))
            case "/loop":
                return Response(status=303, location="/loop")
            case "/old":
                return Response(status=303, location="/a?moved=1")
            case "/long":
                return Response("<body>" + "".join(f"<p>line {i}</p>" for i in range(60)) + "</body>")
            case _:
                sent = " ".join(f"{key}={value}" for key, value in request.params.items())
                return Response(f"<body><h1>{request.method} {request.path}</h1><p>{sent}</p></body>")


def opened(path: str = "/") -> View:
    return open_url(Echo(), {}, path)


def does(view: View, command: Command, element: int | None = None, text: str | None = None) -> View:
    return act(Echo(), {}, view, EnvAction(command, element, text))


def test_parse_reads_every_element_in_document_order() -> None:
    assert opened().text() == FORM_TEXT


def test_parse_drops_comments_scripts_and_templates() -> None:
    page = parse(
        "<body><!-- no --><script>x</script><p>a<template>b</template><!-- c -->d</p><div>e<p>f</p>g</div></body>"
    )
    assert page.render(()) == "text a d\ntext e\ntext f\ntext g"


def test_type_select_and_toggle_change_values_and_keep_ids() -> None:
    view = does(opened(), Command.TYPE, 1, "  Bob \n Hall ")
    view = does(view, Command.SELECT, 2, "LARGE")
    view = does(does(view, Command.CLICK, 3), Command.CLICK, 4)
    lines = view.text().split("\n")
    changed = [
        "textbox Name [1]: Bob Hall",
        "combobox Size [2]: large",
        "checkbox I agree [3]",
        "checkbox News [4]: checked",
    ]
    assert lines[4:8] == changed
    assert lines[:4] + lines[8:] == FORM_TEXT.split("\n")[:4] + FORM_TEXT.split("\n")[8:]
    assert does(view, Command.CLEAR, 1).text().split("\n")[4] == "textbox Name [1]"
    assert does(view, Command.CLICK, 3).values[2] == "checked"


def test_get_form_replaces_the_query_and_sends_only_successful_controls() -> None:
    view = does(does(opened(), Command.SELECT, 2, "large"), Command.CLICK, 7)
    assert view.url == "/go?token=7&name=Ann&size=L&agree=yes&way=fast"
    assert view.text().startswith("heading GET /go\n")


def test_submit_uses_the_first_button_and_any_element_of_the_form() -> None:
    assert does(opened(), Command.SUBMIT, 1).url.endswith("&way=slow")
    assert does(opened(), Command.SUBMIT, 7).url.endswith("&way=fast")
    with pytest.raises(ActionError, match=r"link \[9\] has no form"):
        does(opened(), Command.SUBMIT, 9)


def test_post_form_sends_fields_in_the_body_and_keeps_the_query() -> None:
    view = does(does(opened("/post"), Command.CLICK, 3), Command.CLICK, 6)
    assert view.url == "/go?old=1"
    assert view.text() == "heading POST /go\ntext old=1 token=7 name=Ann size=small way=slow"


def test_links_resolve_against_the_page_and_redirects_are_followed() -> None:
    assert does(opened(), Command.CLICK, 9).url == "/a"
    assert does(opened(), Command.CLICK, 10).url == "/b?x=1"
    assert does(opened(), Command.GOTO, text="/old").url == "/a?moved=1"


def test_button_that_does_not_submit_changes_nothing() -> None:
    view = opened()
    assert does(view, Command.CLICK, 8) is view


@pytest.mark.parametrize(
    ("action", "kind", "message"),
    [
        (EnvAction(Command.CLICK, 11), "no_such_element", "no element [11]"),
        (EnvAction(Command.CLICK), "no_such_element", "no element [0]"),
        (EnvAction(Command.CLICK, 1), "wrong_role", "cannot CLICK textbox [1]"),
        (EnvAction(Command.TYPE, 2, "x"), "wrong_role", "cannot TYPE combobox [2]"),
        (EnvAction(Command.CLEAR, 9), "wrong_role", "cannot CLEAR link [9]"),
        (EnvAction(Command.SELECT, 1, "large"), "wrong_role", "cannot SELECT textbox [1]"),
        (EnvAction(Command.SELECT, 2, "huge"), "no_such_option", "no option huge"),
        (EnvAction(Command.SELECT, 2, ""), "no_such_option", "no option without name"),
        (EnvAction(Command.TYPE, 5, "x"), "disabled", "textbox [5] is disabled"),
        (
            EnvAction(Command.GOTO, text="http://else.where/"),
            "bad_url",
            "GOTO stays on this site , give a path such as /",
        ),
        (EnvAction(Command.GOTO, text="//else/where"), "bad_url", "GOTO stays on this site , give a path such as /"),
        (EnvAction(Command.GOTO, text="/loop"), "too_many_redirects", "the page redirects without end"),
        (EnvAction(Command.SCROLL, text="SIDEWAYS"), "bad_argument", "SCROLL needs UP or DOWN"),
    ],
    ids=lambda value: str(value) if isinstance(value, EnvAction) else "",
)
def test_act_refuses_what_the_page_does_not_take(action: EnvAction, kind: str, message: str) -> None:
    with pytest.raises(ActionError) as refused:
        act(Echo(), {}, opened(), action)
    assert (refused.value.kind, str(refused.value)) == (kind, message)


def test_scroll_moves_a_long_page_only_and_stops_at_its_ends() -> None:
    view = opened("/long")
    assert view.text().split("\n")[0] == "text line 0" and view.text().count("\n") == 39
    down = does(view, Command.SCROLL, text="down")
    assert down.text().split("\n")[0] == "text line 20" and down.text().split("\n")[-1] == "text line 59"
    assert does(down, Command.SCROLL, text="DOWN").text() == down.text()
    assert does(down, Command.SCROLL, text="UP").text() == view.text()
    assert does(opened(), Command.SCROLL, text="DOWN").text() == FORM_TEXT
