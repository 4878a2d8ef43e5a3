"""Between a worker's replies and the in-process browser's views, and from commands to a worker's calls. Pure."""

from __future__ import annotations

from typing import Any

from agentq.envs.browser.hosts import Host
from agentq.envs.page import CHECKED, Control, Page
from agentq.envs.tab import VIEWPORT_LINES, View, resolve, scroll
from agentq.types import ELEMENT_COMMANDS, Command, EnvAction

Call = tuple[str, dict[str, Any]]
_GONE = Control("", "")  # keeps the number of an element that the page does not show any more
_VERBS = {Command.CLICK: "click", Command.TYPE: "put", Command.CLEAR: "put", Command.SUBMIT: "submit"}


def read_view(reply: dict[str, Any], url: str) -> View:
    """The view of a worker's reply, at the top of the page."""
    controls, values = [], []
    for number in range(1, reply["numbers"] + 1):
        seen = reply["controls"].get(str(number))
        controls.append(_GONE if seen is None else _control(seen))
        values.append("" if seen is None else seen["live"])
    return View(url, Page(tuple(reply["lines"]), tuple(controls), ()), tuple(values), reply["status"])


def _control(seen: dict[str, Any]) -> Control:
    return Control(
        seen["role"],
        seen["name"],
        seen["value"],
        seen["form"],
        seen["field"],
        seen["href"],
        seen["submits"],
        options=tuple((label, value) for label, value in seen["options"]),
        disabled=seen["disabled"],
    )


def command_call(host: Host, view: View, action: EnvAction) -> tuple[View, Call | None]:
    """What a worker is to do, if anything, and the view to go on from. Raises ActionError for what the page refuses."""
    if action.command is Command.GOTO:
        return view, ("visit", {"url": host.target(view, action.text or "")})
    if action.command is Command.SCROLL:
        moved = scroll(view, action.text or "")
        shown = [
            line for line in moved.page.lines[moved.scroll : moved.scroll + VIEWPORT_LINES] if isinstance(line, int)
        ]
        return moved, None if host.strict or not shown else ("act", {"command": "show", "element": shown[0]})
    if action.command not in ELEMENT_COMMANDS:
        return view, None
    control, value = resolve(view, action, strict=host.strict)
    call = {"command": _VERBS.get(action.command, "choose"), "element": action.element, "value": value}
    if action.command is Command.SELECT:
        call["value"] = [label for label, _ in control.options].index(value)
    return view, ("act", call)


def fill_calls(view: View) -> list[list[Any]]:
    """What must be done on the page as it came for its controls to hold what they hold in `view`."""
    calls: list[list[Any]] = []
    for number, (control, value) in enumerate(zip(view.page.controls, view.values, strict=True), 1):
        if value != control.value and control.role in ("checkbox", "radio"):
            calls.append([number, "check", value == CHECKED])
        elif value != control.value and control.options:
            labels = [label for label, _ in control.options]
            if value in labels:
                calls.append([number, "choose", labels.index(value)])
        elif value != control.value and control.role == "textbox":
            calls.append([number, "put", value])
    return calls
