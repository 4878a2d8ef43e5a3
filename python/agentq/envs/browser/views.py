"""Converts a worker's replies to the in-process browser's views, and commands to a worker's calls. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from agentq.agent.commands import read_drag, read_press
from agentq.envs.browser.hosts import Host
from agentq.envs.browser.whole import Line, WholeView
from agentq.envs.page import CHECKED, Control, Page
from agentq.envs.tab import VIEWPORT_LINES, ActionError, View, resolve, scroll
from agentq.types import ELEMENT_COMMANDS, INPUT_COMMANDS, Command, EnvAction

T = TypeVar("T")
Call = tuple[str, dict[str, Any]]
_GONE = Control("", "")  # keeps the number of an element that is no longer shown
_VERBS = {
    Command.CLICK: "click",
    Command.TYPE: "put",
    Command.CLEAR: "put",
    Command.SUBMIT: "submit",
    Command.SELECT: "choose",
    Command.HOVER: "hover",
    Command.DRAG: "drag",
    Command.PRESS: "press",
}


def read_view(reply: dict[str, Any], url: str, *, full: bool) -> View:
    """The view of a worker's reply; of one in lines of a whole page, a WholeView. At the top of the page."""
    controls, values = [], []
    for number in range(1, reply["numbers"] + 1):
        seen = reply["controls"].get(str(number))
        controls.append(_GONE if seen is None else _control(seen))
        values.append("" if seen is None else seen["live"])
    shown = tuple(reply["lines"])
    if not full:
        return View(url, Page(shown, tuple(controls), ()), tuple(values), reply["status"])
    lines = tuple(Line(*line) for line in shown)
    page = Page(tuple(line.text for line in lines), tuple(controls), ())
    return WholeView(url, page, tuple(values), reply["status"], 0, lines, tuple(reply["notes"]), reply["cut"])


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
    """The view after a command, and the worker's call if one is needed. Raises ActionError for a refused command."""
    if action.command is Command.GOTO:
        return view, ("visit", {"url": host.target(view, action.text or "")})
    if action.command is Command.SCROLL:
        moved = scroll(view, action.text or "")
        shown = [
            line for line in moved.page.lines[moved.scroll : moved.scroll + VIEWPORT_LINES] if isinstance(line, int)
        ]
        return moved, None if host.strict or not shown else ("act", {"command": "show", "element": shown[0]})
    if action.command in INPUT_COMMANDS and host.strict:
        raise ActionError("not_taken", f"this site takes no {action.command}")
    if action.command is Command.PRESS:
        return view, ("act", {"command": "press", "element": 0, "value": _argument(read_press, action)})
    if action.command not in ELEMENT_COMMANDS:
        return view, None
    control, value = resolve(view, action, strict=host.strict)
    call: dict[str, Any] = {"command": _VERBS[action.command], "element": action.element, "value": value}
    if action.command is Command.SELECT:
        call["value"] = [label for label, _ in control.options].index(value)
    if action.command is Command.DRAG:
        call["value"] = target = _argument(read_drag, action)
        if isinstance(target, int):
            resolve(view, EnvAction(Command.HOVER, target), strict=False)
    return view, ("act", call)


def _argument(read: Callable[[str], T], action: EnvAction) -> T:
    """The action's text, converted by `read`."""
    try:
        return read(action.text or "")
    except ValueError as error:
        raise ActionError("bad_argument", str(error)) from None


def fill_calls(view: View) -> list[list[Any]]:
    """The changes of the initial page that give its controls their values in `view`."""
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
