"""One HTML page as the agent reads it: its elements in document order, its forms, its text. Knows nothing of any site.

The text is an accessibility tree with one line per element: `role name [id]: value`. Controls (link, button, textbox,
combobox, checkbox) are numbered from 1 in document order. Everything is read from the DOM alone, so a walker inside a
browser finds the same text. What the user has typed or chosen since is kept apart (`values`) until rendering.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest

from lxml import html as lxml_html
from lxml.html import HtmlElement

CHECKED = "checked"
_HEADINGS = frozenset({"h1", "h2", "h3", "h4"})
_BLOCKS = frozenset(
    {"p", "li", "ul", "ol", "div", "main", "nav", "section", "form", "header", "footer", "table", "tr", "td"}
)
_SKIPPED = frozenset({"label", "script", "style", "template", "head", "title"})
_LIVE_ROLES = frozenset({"alert", "status"})
_LINE_ENDS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


@dataclass(frozen=True, slots=True)
class Control:
    """A numbered element. `value` is the initial value on the page: text, the chosen option's label, or "checked"."""

    role: str
    name: str
    value: str = ""
    form: int | None = None
    field: str = ""
    href: str = ""
    submits: bool = False
    sent_value: str = ""  # the value that a button or a checked box sends
    options: tuple[tuple[str, str], ...] = ()  # (label, value sent)
    disabled: bool = False


@dataclass(frozen=True, slots=True)
class Form:
    """`fields`: (control id, or 0 for a hidden input; name; value of a hidden input) in document order."""

    action: str
    method: str
    fields: tuple[tuple[int, str, str], ...]


@dataclass(frozen=True, slots=True)
class Page:
    """A parsed page, immutable. Each of `lines` is plain text or the id of a control."""

    lines: tuple[str | int, ...]
    controls: tuple[Control, ...]
    forms: tuple[Form, ...]

    def control(self, element: int) -> Control | None:
        """The control numbered `element`, or None."""
        return self.controls[element - 1] if 1 <= element <= len(self.controls) else None

    def initial_values(self) -> tuple[str, ...]:
        """`[controls]` the initial value of each control."""
        return tuple(control.value for control in self.controls)

    def render(self, values: tuple[str, ...], start: int = 0, height: int | None = None) -> str:
        """The observation text with the controls at `values` `[controls]`; `height` lines from line `start`."""
        shown = self.lines if height is None else self.lines[start : start + height]
        return "\n".join(
            line if isinstance(line, str) else self._control_line(line, values[line - 1]) for line in shown
        )

    def _control_line(self, element: int, value: str) -> str:
        control = self.controls[element - 1]
        line = " ".join(word for word in (control.role, control.name, f"[{element}]") if word)
        if value:
            line = f"{line}: {unbroken(value)}"
        return f"{line} (disabled)" if control.disabled else line


def unbroken(text: str) -> str:
    """`text` with a space for each run of control characters and other line ends."""
    return text if text.isprintable() else _LINE_ENDS.sub(" ", text)


@lru_cache(maxsize=4096)
def parse(html: str) -> Page:
    """The page of an HTML document."""
    return _Walker(lxml_html.document_fromstring(html)).page()


def _squeeze(text: str | None) -> str:
    return " ".join(text.split()) if text else ""


class _Walker:
    """Walks one DOM in document order and gathers what a Page holds."""

    def __init__(self, root: HtmlElement) -> None:
        self.lines: list[str | int] = []
        self.controls: list[Control] = []
        self.forms: list[tuple[str, str, list[tuple[int, str, str]]]] = []
        self.words: list[str] = []
        self.form: int | None = None
        self.labels = {label.get("for"): _squeeze(label.text_content()) for label in root.iter("label")}
        body = root.find("body")
        if body is not None:
            self._walk(body)
        self._flush()

    def page(self) -> Page:
        forms = tuple(Form(action, method, tuple(fields)) for action, method, fields in self.forms)
        return Page(tuple(self.lines), tuple(self.controls), forms)

    def _flush(self) -> None:
        text = _squeeze(" ".join(self.words))
        self.words.clear()
        if text:
            self.lines.append(f"text {text}")

    def _walk(self, node: HtmlElement) -> None:
        """The text and children of `node`, not its tail."""
        if node.text:
            self.words.append(node.text)
        for child in node:
            if isinstance(child.tag, str) and child.get("hidden") is None:
                self._element(child, child.tag)
            if child.tail:
                self.words.append(child.tail)

    def _element(self, node: HtmlElement, tag: str) -> None:
        role = node.get("role")
        if tag in _SKIPPED:
            return
        if role in _LIVE_ROLES or tag in _HEADINGS:
            self._flush()
            self.lines.append(f"{role or 'heading'} {_squeeze(node.text_content())}")
        elif tag == "input" and node.get("type") == "hidden":
            self._field(0, node.get("name", ""), node.get("value", ""))
        elif tag in ("a", "button", "input", "select", "textarea"):
            self._flush()
            self._add(_READERS[tag](node, self._name(node), self.form))
        elif tag == "form":
            self._flush()
            self.forms.append((node.get("action", ""), node.get("method", "get").lower(), []))
            self.form = len(self.forms) - 1
            self._walk(node)
            self._flush()
            self.form = None
        elif tag in _BLOCKS:
            self._flush()
            self._walk(node)
            self._flush()
        else:
            self._walk(node)

    def _name(self, node: HtmlElement) -> str:
        """The accessible name: aria-label, else the label of the control, else its text (link and button)."""
        label = _squeeze(node.get("aria-label")) or self.labels.get(node.get("id"), "")
        return label or (_squeeze(node.text_content()) if node.tag in ("a", "button") else "")

    def _add(self, control: Control) -> None:
        self.controls.append(control)
        self.lines.append(len(self.controls))
        if control.field:
            self._field(len(self.controls), control.field, "")

    def _field(self, element: int, name: str, value: str) -> None:
        if self.form is not None and name:
            self.forms[self.form][2].append((element, name, value))


def _read_link(node: HtmlElement, name: str, form: int | None) -> Control:
    return Control("link", name, href=node.get("href", ""))


def _read_button(node: HtmlElement, name: str, form: int | None) -> Control:
    submits = node.get("type", "submit") == "submit"
    field, sent = node.get("name", ""), node.get("value", "")
    return Control("button", name, form=form, field=field, submits=submits, sent_value=sent, disabled=_disabled(node))


def _read_input(node: HtmlElement, name: str, form: int | None) -> Control:
    field, value = node.get("name", ""), node.get("value", "")
    if node.get("type") == "checkbox":
        state = CHECKED if node.get("checked") is not None else ""
        return Control("checkbox", name, state, form, field, sent_value=value or "on", disabled=_disabled(node))
    return Control("textbox", name, value, form, field, disabled=_disabled(node))


def _read_textarea(node: HtmlElement, name: str, form: int | None) -> Control:
    return Control("textbox", name, node.text or "", form, node.get("name", ""), disabled=_disabled(node))


def _read_select(node: HtmlElement, name: str, form: int | None) -> Control:
    options = tuple(_options(node))
    chosen = [_squeeze(option.text) for option in node.iter("option") if option.get("selected") is not None]
    value = chosen[-1] if chosen else (options[0][0] if options else "")
    return Control("combobox", name, value, form, node.get("name", ""), options=options, disabled=_disabled(node))


def _options(node: HtmlElement) -> Iterator[tuple[str, str]]:
    for option in node.iter("option"):
        label = _squeeze(option.text)
        yield label, option.get("value", label)


def _disabled(node: HtmlElement) -> bool:
    return node.get("disabled") is not None


_READERS = {
    "a": _read_link,
    "button": _read_button,
    "input": _read_input,
    "textarea": _read_textarea,
    "select": _read_select,
}


def first_difference(was: str, now: str) -> str:
    """`'a' is now 'b'`: the first line in which two texts differ; empty if none does."""
    for old, new in zip_longest(was.split("\n"), now.split("\n")):
        if old != new:
            return f"'{(old or 'nothing')[:80]}' is now '{(new or 'nothing')[:80]}'"
    return ""
