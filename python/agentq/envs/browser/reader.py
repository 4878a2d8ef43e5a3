"""Reads a tab's documents into one page and numbers its elements. An element keeps its number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agentq.envs.browser.frames import Frame, framed
from agentq.envs.browser.origins import origin_of
from agentq.envs.browser.tab import Tab
from agentq.envs.browser.whole import control_text
from agentq.envs.page import unbroken


class Reader:
    """Numbers run from 1 in document order and start again with every new main document; they are never reused.

    `mask` puts names in place of secrets. It is applied before any text is shortened, which could leave a part of one.
    """

    def __init__(self, mask: Callable[[Any], Any]) -> None:
        self._mask = mask
        self.elements: dict[int, tuple[Frame, int]] = {}  # element id -> (its document, its key there)
        self._numbers: dict[tuple[str, int], int] = {}  # (document, key) -> element id
        self.world = ""

    async def read(self, tab: Tab, seen: Any) -> dict[str, Any]:
        """The page: its lines and its controls by id.

        A line is a text or an element id; of a page read in full (see Host), the fields of a whole.Line.
        `seen`: what the main document shows, if that is known. In the result, `new` says whether the main document has
        changed; `html` is that of a new document without scripts, as it came.
        """
        root = Frame(tab.cdp, tab.frame)
        seen = seen or await tab.evaluate("agentq.observe()", root)
        new = seen["world"] != self.world
        if new:
            self.world = seen["world"]
            self._numbers.clear()
            self.elements.clear()
        page = _Merged()
        await self._merge(tab, root, seen, page)
        told = {"url": seen["url"], "lines": page.lines, "controls": page.controls}
        return told | {"html": seen.get("html", ""), "numbers": len(self._numbers), "new": new}

    async def _merge(self, tab: Tab, frame: Frame, seen: dict[str, Any], page: _Merged, depth: int = 0) -> None:
        """Add a document's lines to `page`, with framed documents in their places."""
        inside: dict[int, Frame] | None = None
        for line in seen["lines"]:
            if isinstance(line, str):
                page.lines.append(line)
                continue
            if "control" in line:
                page.lines.append(self._number(line["control"], frame, seen["world"], page))
                continue
            parts = line.get("parts", [line])
            if any("frame" in part for part in parts if isinstance(part, dict)):
                inside = await framed(tab, frame) if inside is None else inside
            texts = []
            for part in parts:
                if isinstance(part, str):
                    texts.append(part)
                elif "control" in part:
                    number = self._number(part["control"], frame, seen["world"], page)
                    texts.append(control_text(number, part["control"], begins=not texts))
                elif "most" in part:
                    texts.append(self._shortened(part))
                elif "name" in part:
                    known = "" if part["frame"] in (inside or {}) else " (not read)"
                    where = _origin(self._mask(part["url"]))
                    texts.append(" ".join(filter(None, ("frame", part["name"], where))) + known)
            level = depth + line.get("depth", 0)
            if texts or line.get("unread"):
                page.lines.append([level, unbroken("".join(texts)), line["at"], line["first"], line.get("unread", 0)])
            for part in parts:
                if isinstance(part, dict) and part.get("frame") in (inside or {}):
                    assert inside is not None
                    inner = inside[part["frame"]]
                    shown = await tab.evaluate("agentq.observe()", inner)
                    await self._merge(tab, inner, shown, page, level + 1)

    def _number(self, control: dict[str, Any], frame: Frame, world: str, page: _Merged) -> int:
        """The control's id. Adds it to the page."""
        key = control.pop("key")
        if "most" in control:
            control |= {"name": self._shortened(control), "said": self._mask(control["said"])}
        number = self._numbers.setdefault((world, key), len(self._numbers) + 1)
        self.elements[number] = (frame, key)
        page.controls[number] = control
        return number

    def _shortened(self, named: dict[str, Any]) -> str:
        """A name without secrets, of at most `most` characters; 0: all of them."""
        name, most = str(self._mask(named["name"])), int(named["most"])
        return f"{name[:most]}…" if 0 < most < len(name) else name


class _Merged:
    """The lines of all documents, and the controls by id."""

    def __init__(self) -> None:
        self.lines: list[Any] = []
        self.controls: dict[int, Any] = {}


def _origin(url: str) -> str:
    """What a line says of a frame's address."""
    return str(origin_of(url) or url[:60])
