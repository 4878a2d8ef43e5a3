"""Converts a worker's replies to the in-process browser's views, and commands to a worker's calls. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from agentq.agent.commands import read_dialog, read_drag, read_point, read_press, read_tab, read_wait
from agentq.envs.browser.breaks import has_breaks, without_breaks
from agentq.envs.browser.hosts import Host
from agentq.envs.browser.whole import Line, WholeView
from agentq.envs.page import CHECKED, Control, Page
from agentq.envs.site import printable
from agentq.envs.tab import VIEWPORT_LINES, ActionError, View, resolve, scroll
from agentq.error_kinds import WORLD_FAULTS
from agentq.types import BROWSER_COMMANDS, ELEMENT_COMMANDS, SEEN_COMMANDS, Command, EnvAction, Verb
from agentq.verbs import INPUT_COMMANDS

T = TypeVar("T")
_JOINERS = "\N{ZERO WIDTH NON-JOINER}\N{ZERO WIDTH JOINER}"
Call = tuple[str, dict[str, Any]]
_GONE = Control("", "")  # keeps the number of an element that is no longer shown
_VERBS: dict[Command | Verb, str] = {
    Command.CLICK: "click",
    Command.TYPE: "put",
    Command.CLEAR: "put",
    Command.SUBMIT: "submit",
    Command.SELECT: "choose",
    Command.HOVER: "hover",
    Command.DRAG: "drag",
    Command.PRESS: "press",
}

_ANYWHERE = (Command.WAIT, Command.CLICK_AT)  # taken by pages that are not read in full, too
_TYPED = ("textbox", "searchbox", "spinbutton", "combobox", "slider", "clickable", "gridcell", "cell")
_READ: dict[Command | Verb, Callable[[str], Any]] = {
    Command.SCROLL: str,
    Command.PRESS: read_press,
    Command.FIND: str,
    Command.BACK: str,
    Command.CLICK_AT: read_point,
    Command.WAIT: read_wait,
    Command.TAB: read_tab,
    Command.DIALOG: read_dialog,
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
    offers = frozenset(int(number) for number, seen in reply["controls"].items() if seen["offers"])
    page = Page(tuple(line.text for line in lines if not line.unread), tuple(controls), ())
    return WholeView(url, page, tuple(values), reply["status"], 0, lines, tuple(reply["notes"]), offers)


def why_not_loaded(url: str, reply: dict[str, Any]) -> str:
    """Why a task's first page, `url`, did not load; "" if it did. A gateway's answer is not the site's page."""
    if "lines" in reply and not reply["refused"]:
        return f"HTTP {reply['status']} at {url}" if f"http_{reply['status']}" in WORLD_FAULTS else ""
    kind, said = reply["refused"]
    if kind == "blocked":
        return f"{said}; {url} leads there: name its origin in allow="
    return f"{said} at {url}" + (": nothing listens there, or its name is unknown" if "SOCKS" in said else "")


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


def full_call(host: Host, view: View, action: EnvAction) -> tuple[View, Call | None]:
    """Like `command_call`, on a page read in full."""
    match action.command:
        case Command.GOTO:
            return view, ("visit", {"url": host.target(view, action.text or "")})
        case Command.ASK_USER | Command.STOP:
            return view, None
        case command if command in ELEMENT_COMMANDS:
            call = _on_element(host, view, action)
        case Command.SCROLL if action.text not in ("UP", "DOWN"):
            element = int((action.text or "").strip("[]"))
            _control_of(view, element)
            call = ("show", element, None)
        case _:
            call = (action.command.lower(), 0, _argument(_READ[action.command], action))
    does, element, value = call
    return view, ("act", {"command": does, "element": element, "value": value})


def _on_element(host: Host, view: View, action: EnvAction) -> tuple[str, int, Any]:
    """The command, element and value of a worker's call."""
    element, said = action.element or 0, action.text or ""
    control = _control_of(view, element)
    if control.disabled:
        raise ActionError("disabled", f"{control.role} [{element}] is disabled")
    native = bool(control.options)
    match action.command:
        case Command.TYPE | Command.CLEAR if control.role not in _TYPED or native:
            better = "UPLOAD" if control.role == "file" else "SELECT" if native else "CLICK"
            raise ActionError("wrong_role", f"cannot {action.command} {control.role} [{element}] ; use {better}")
        case Command.TYPE | Command.CLEAR:
            return "type", element, _typed(said) if action.command is Command.TYPE else ""
        case Command.SELECT if isinstance(view, WholeView) and element in view.offers:
            raise ActionError("wrong_role", f"{control.role} [{element}] is typed into ; use TYPE")
        case Command.SELECT if not native:
            raise ActionError("wrong_role", f"{control.role} [{element}] has no list ; CLICK it , then an option")
        case Command.SELECT:
            return "choose", element, _option(control, said)
        case Command.CLICK if control.role == "file":
            raise ActionError("wrong_role", f"file [{element}] takes UPLOAD")
        case Command.UPLOAD if control.role in ("radio", "checkbox"):
            raise ActionError("wrong_role", f"{control.role} [{element}] takes no file")
        case Command.UPLOAD:
            return "upload", element, host.file(said)
        case Command.DRAG:
            target = _argument(read_drag, action)
            if isinstance(target, int):
                _control_of(view, target)
            return "drag", element, target
    return "enter" if action.command is Command.SUBMIT else action.command.lower(), element, None


def _control_of(view: View, element: int) -> Control:
    control = view.page.control(element)
    if control is None or not control.role:
        raise ActionError("no_such_element", f"no element [{element}]")
    return control


def _typed(text: str) -> str:
    """`text` as `printable` returns it, with the joiners that shape letters and emoji.

    If it has line breaks, its lines keep their spaces.
    """
    text = text.replace("\t", " ") if has_breaks(text) else without_breaks(text)
    return "".join(c for c in text if c.isprintable() or c in _JOINERS or c == "\n")


def _option(control: Control, said: str) -> list[Any]:
    """The index and label of the option meant by `said`: its label, or the only label with `said` in it.

    Labels differ by joiners only if one of them is exactly `said`.
    """
    wanted, exact = printable(said).casefold(), " ".join(said.split())
    labels = [printable(label).casefold() for label, _ in control.options]
    found = [i for i, (label, _) in enumerate(control.options) if label == exact]
    found = found or [i for i, label in enumerate(labels) if label == wanted]
    found = found or [i for i, label in enumerate(labels) if wanted in label]
    if not wanted or not found or (len(found) > 1 and labels[found[0]] != wanted):
        alike = " | ".join(control.options[i][0] for i in found[:10])
        named = printable(said) or "without name"
        raise ActionError("no_such_option", f"no option {named}{f' alone: {alike}' if alike else ''}")
    return [found[0], control.options[found[0]][0]]


def command_call(host: Host, view: View, action: EnvAction) -> tuple[View, Call | None]:
    """The view after a command, and the worker's call if one is needed. Raises ActionError for a refused command."""
    if isinstance(action.command, Verb):
        raise ActionError("not_taken", f"a page takes no {action.command}")
    if host.full:
        return full_call(host, view, action)
    taken = () if host.strict else INPUT_COMMANDS + _ANYWHERE
    if action.command in BROWSER_COMMANDS + SEEN_COMMANDS and action.command not in taken:
        raise ActionError("not_taken", f"this site takes no {action.command}")
    if action.command is Command.GOTO:
        return view, ("visit", {"url": host.target(view, action.text or "")})
    if action.command is Command.SCROLL:
        moved = scroll(view, action.text or "")
        shown = [
            line for line in moved.page.lines[moved.scroll : moved.scroll + VIEWPORT_LINES] if isinstance(line, int)
        ]
        return moved, None if host.strict or not shown else ("act", {"command": "show", "element": shown[0]})
    if action.command in (Command.PRESS, *_ANYWHERE):
        value = _argument(_READ[action.command], action)
        return view, ("act", {"command": action.command.lower(), "element": 0, "value": value})
    if action.command not in ELEMENT_COMMANDS:
        return view, None
    control, value = resolve(view, action, strict=host.strict)
    call: dict[str, Any] = {"command": _VERBS[action.command], "element": action.element, "value": value}
    if action.command is Command.SELECT:
        call["value"] = [[label for label, _ in control.options].index(value), value]
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
                calls.append([number, "choose", [labels.index(value), value]])
        elif value != control.value and control.role == "textbox":
            calls.append([number, "put", value])
    return calls
