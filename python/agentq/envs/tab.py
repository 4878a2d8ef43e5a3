"""The in-process browser: carries out one command on one page by the rules of HTML. Keeps no history."""

from __future__ import annotations

from dataclasses import dataclass, replace
from urllib.parse import quote, urljoin, urlsplit

from agentq.envs.page import CHECKED, Control, Page, parse
from agentq.envs.site import Site, SiteSession, encode, printable, read_request
from agentq.types import BROWSER_COMMANDS, ELEMENT_COMMANDS, SEEN_COMMANDS, Command, EnvAction, Verb

VIEWPORT_LINES = 40
_SCROLL_LINES = 20
_MAX_REDIRECTS = 5
_ROLES: dict[Command | Verb, tuple[str, ...]] = {
    Command.CLICK: ("link", "button", "checkbox"),
    Command.TYPE: ("textbox",),
    Command.CLEAR: ("textbox",),
    Command.SELECT: ("combobox",),
}
_URL_CHARACTERS = "/?&=%+:,;@!$'()*~-._"


@dataclass(frozen=True, slots=True)
class View:
    """What the tab shows. Immutable; `values` `[controls]` is what each control holds now, `scroll` is in lines.

    `status` is the HTTP status of the page that the last action loaded, 0 if it loaded none.
    """

    url: str
    page: Page
    values: tuple[str, ...]
    status: int = 200
    scroll: int = 0

    def text(self) -> str:
        """The observation text inside the viewport."""
        return self.page.render(self.values, self.scroll, VIEWPORT_LINES)


class ActionError(Exception):
    """An action that the page does not accept. `kind` and the message become data on the step."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def open_url(site: Site, session: SiteSession, target: str) -> View:
    """GET `target` (path and query), redirects followed."""
    return _fetch(site, session, "GET", target, {})


def act(site: Site, session: SiteSession, view: View, action: EnvAction) -> View:
    """The view after `action`; raises `ActionError`, with nothing changed, if the page does not accept it."""
    if action.command in BROWSER_COMMANDS + SEEN_COMMANDS or isinstance(action.command, Verb):
        raise ActionError("not_taken", f"this site takes no {action.command}")
    if action.command in ELEMENT_COMMANDS:
        return _act_on_element(site, session, view, action)
    if action.command is Command.GOTO:
        return open_url(site, session, local_url(view, action.text or ""))
    if action.command is Command.SCROLL:
        return scroll(view, action.text or "")
    return view


def resolve(view: View, action: EnvAction, *, strict: bool = True) -> tuple[Control, str]:
    """The control and value of an element command. Raises `ActionError` if the page does not accept it.

    Without `strict` anything may be clicked, since in a real browser scripts may wait for it.
    """
    element = action.element or 0
    control = view.page.control(element)
    if control is None or not control.role:
        raise ActionError("no_such_element", f"no element [{element}]")
    if control.disabled:
        raise ActionError("disabled", f"{control.role} [{element}] is disabled")
    roles = _ROLES.get(action.command, (control.role,))
    if control.role not in roles and (strict or action.command is not Command.CLICK):
        raise ActionError("wrong_role", f"cannot {action.command} {control.role} [{element}]")
    submits = action.command is Command.SUBMIT or (strict and action.command is Command.CLICK and control.submits)
    if submits and control.form is None:
        raise ActionError("wrong_role", f"{control.role} [{element}] has no form")
    if action.command is Command.SELECT:
        return control, _option(control, action.text or "")
    return control, printable(action.text or "") if action.command is Command.TYPE else ""


def _act_on_element(site: Site, session: SiteSession, view: View, action: EnvAction) -> View:
    control, value = resolve(view, action)
    element = action.element or 0
    match action.command:
        case Command.CLICK:
            return _click(site, session, view, element, control)
        case Command.SUBMIT:
            return _submit(site, session, view, element, control)
        case _:
            return _with_value(view, element, value)


def _click(site: Site, session: SiteSession, view: View, element: int, control: Control) -> View:
    if control.role == "link":
        return open_url(site, session, local_url(view, control.href))
    if control.role == "checkbox":
        return _with_value(view, element, "" if view.values[element - 1] else CHECKED)
    return _submit(site, session, view, element, control) if control.submits else view


def _submit(site: Site, session: SiteSession, view: View, element: int, control: Control) -> View:
    """Submit the form of `element`; the clicked button, else the form's first one, sends its own name and value."""
    assert control.form is not None
    form = view.page.forms[control.form]
    button = element if control.submits else _default_button(view.page, control.form)
    params: dict[str, str] = {}
    for field_id, name, hidden_value in form.fields:
        sent = _sent(view, field_id, button) if field_id else hidden_value
        if sent is not None:
            params[name] = sent
    return _fetch(site, session, form.method.upper(), local_url(view, form.action or view.url), params)


def _default_button(page: Page, form: int) -> int:
    return next((i for i, c in enumerate(page.controls, 1) if c.submits and c.form == form and not c.disabled), 0)


def _sent(view: View, element: int, button: int) -> str | None:
    """The value that a control sends with its form; None if it sends nothing."""
    control, value = view.page.controls[element - 1], view.values[element - 1]
    if control.disabled:
        return None
    match control.role:
        case "checkbox":
            return control.sent_value if value else None
        case "button":
            return control.sent_value if element == button else None
        case "combobox":
            return dict(control.options).get(value)
        case _:
            return value


def _option(control: Control, wanted: str) -> str:
    """The label of the option meant by `wanted` (case does not matter)."""
    wanted = printable(wanted)
    for label, _ in control.options:
        if printable(label).casefold() == wanted.casefold() and label:
            return label
    raise ActionError("no_such_option", f"no option {wanted or 'without name'}")


def _with_value(view: View, element: int, value: str) -> View:
    return replace(view, status=0, values=(*view.values[: element - 1], value, *view.values[element:]))


def scroll(view: View, direction: str) -> View:
    """The view 20 lines further UP or DOWN."""
    step = {"UP": -_SCROLL_LINES, "DOWN": _SCROLL_LINES}.get(direction.strip().upper())
    if step is None:
        raise ActionError("bad_argument", "SCROLL needs UP or DOWN")
    last = max(0, len(view.page.lines) - VIEWPORT_LINES)
    return replace(view, status=0, scroll=min(max(view.scroll + step, 0), last))


def local_url(view: View, target: str) -> str:
    """`target` as path and query on this site; `ActionError` if it leads elsewhere."""
    try:
        parts = urlsplit(urljoin(view.url, quote(printable(target), safe=_URL_CHARACTERS)))
    except ValueError:
        raise ActionError("bad_url", "not a url") from None
    if parts.scheme or parts.netloc or not parts.path.startswith("/"):
        raise ActionError("bad_url", "GOTO stays on this site , give a path such as /")
    return f"{parts.path}?{parts.query}" if parts.query else parts.path


def _fetch(site: Site, session: SiteSession, method: str, target: str, params: dict[str, str]) -> View:
    """Send a request and follow redirects. A GET form replaces the query of its action, as in HTML."""
    if method == "GET" and params:
        target = f"{urlsplit(target).path}?{encode(params)}"
    for _ in range(_MAX_REDIRECTS):
        response = site.handle(read_request(method, target, params), session)
        if response.location is None:
            page = parse(response.html)
            return View(target, page, page.initial_values(), response.status)
        method, target, params = "GET", response.location, {}
    raise ActionError("too_many_redirects", "the page redirects without end")
