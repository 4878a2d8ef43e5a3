"""An accessibility tree as agentq's lines: one per element, a role word first, `role name [id]: value`.

Words of a page always follow a role word on its line, so they cannot begin a line. The name of a control is not
repeated as text. Runs in any Python 3.9 with the standard library.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_ROLES = {
    "searchbox": "textbox",
    "spinbutton": "textbox",
    "Date": "textbox",
    "DateTime": "textbox",
    "InputTime": "textbox",
    "ColorWell": "textbox",
    "listbox": "combobox",
    "DisclosureTriangle": "button",
}
_FIELDS = frozenset({"textbox", "combobox", "slider"})
_CONTROLS = _FIELDS | {"link", "button", "checkbox", "radio", "switch", "tab", "treeitem"}
_CONTROLS |= {"menuitem", "menuitemcheckbox", "menuitemradio"}
_WORDED = frozenset({"heading", "alert", "status"})  # one line with the words in it, unless it contains a control
_PICTURES = frozenset({"image", "img"})
_STATES = ("checked", "selected", "pressed", "expanded")

Node = dict[str, Any]


def squeeze(text: Any) -> str:
    """`text` on one line, single-spaced."""
    return " ".join(str(text).split())


class Tree:
    """The nodes of Chromium's accessibility tree as BrowserGym gives them, root first, with its ids and properties.

    After `lines`, `numbered` has the ids of the elements that got a number.
    """

    def __init__(self, nodes: list[Node], properties: dict[str, Any]) -> None:
        self.nodes = {node["nodeId"]: node for node in nodes}
        self.root, self.properties = nodes[0], properties
        self.labels = {_name(node) for node in nodes if self._control(node) and _has(node, "labelledby")}
        self.numbered: list[str] = []

    def lines(self, numbers: dict[str, int]) -> list[str]:
        """The page, line by line. `numbers`: numbers of elements by id; an element without one gets the next."""
        return list(self._lines(self.root, "", numbers))

    def _lines(self, node: Node, said: str, numbers: dict[str, int]) -> Iterator[str]:
        """Lines of a node and its descendants, without text that is in `said`."""
        role = _role(node)
        if self._control(node) or self._clickable(node):
            kind = role if role in _CONTROLS or role == "option" else "clickable"
            said = _name(node) or (self._words(node) if kind == "clickable" else "")
            number = numbers.setdefault(node["browsergym_id"], len(numbers) + 1)
            self.numbered.append(node["browsergym_id"])
            line = " ".join(word for word in (kind, said, f"[{number}]") if word)
            value = self._value(node, kind)
            yield (f"{line}: {value}" if value else line) + (" (disabled)" if _has(node, "disabled") else "")
            if kind in ("textbox", "slider"):  # its value is below it
                return
        elif role == "StaticText" or role in _PICTURES:
            name = _name(node)
            if name and name not in said:
                yield f"text {name}"
        elif role == "option":
            yield squeeze(f"option {_name(node)}")
            return
        elif role in _WORDED and not self._acts(node):
            if words := self._words(node) or _name(node):
                yield f"{role} {words}"
            return
        elif role == "LabelText" and self._words(node) in self.labels:
            said = self._words(node)
        for child in self._children(node):
            yield from self._lines(child, said, numbers)

    def _children(self, node: Node) -> Iterator[Node]:
        for child in node["childIds"]:
            if child in self.nodes and child != node["nodeId"]:
                yield self.nodes[child]

    def _below(self, node: Node) -> Iterator[Node]:
        for child in self._children(node):
            yield child
            yield from self._below(child)

    def _control(self, node: Node) -> bool:
        """Whether its role allows actions; for an option, whether it can be clicked."""
        role = _role(node)
        return "browsergym_id" in node and (role in _CONTROLS or (role == "option" and self._clicks(node)))

    def _clicks(self, node: Node) -> bool:
        return bool(self.properties.get(node.get("browsergym_id", ""), {}).get("clickable"))

    def _clickable(self, node: Node) -> bool:
        """Whether it handles clicks itself, and not only those on controls inside it."""
        if _role(node) in ("RootWebArea", "LabelText") or not self._clicks(node):
            return False
        return not any(map(self._control, self._below(node)))

    def _acts(self, node: Node) -> bool:
        return any(self._control(each) or self._clicks(each) for each in self._below(node))

    def _words(self, node: Node) -> str:
        """The text below a node."""
        worded = (each for each in self._below(node) if _role(each) == "StaticText" or _role(each) in _PICTURES)
        return squeeze(" ".join(map(_name, worded)))

    def _value(self, node: Node, kind: str) -> str:
        if kind == "combobox" and not node.get("value", {}).get("value"):
            return " , ".join(_name(each) for each in self._below(node) if _has(each, "selected"))
        if kind in _FIELDS:
            return squeeze(node.get("value", {}).get("value", ""))
        return next((state for state in _STATES if _has(node, state)), "")


def _role(node: Node) -> str:
    if node.get("ignored"):
        return ""
    role = str(node["role"]["value"])
    return _ROLES.get(role, role)


def _name(node: Node) -> str:
    return squeeze(node.get("name", {}).get("value", ""))


def _has(node: Node, name: str) -> bool:
    """Whether a property is true or refers to other nodes."""
    found: Node = next((each["value"] for each in node.get("properties", ()) if each["name"] == name), {})
    return found.get("value") in (True, "true") or bool(found.get("relatedNodes"))
