"""Reads a tab's documents into one page and numbers its elements. An element keeps its number."""

from __future__ import annotations

from typing import Any

from agentq.envs.browser.frames import Frame, framed
from agentq.envs.browser.tab import Tab


class Reader:
    """Numbers run from 1 in document order and start again with every new main document; they are never reused."""

    def __init__(self) -> None:
        self.elements: dict[int, tuple[Frame, int]] = {}  # element id -> (its document, its key there)
        self._numbers: dict[tuple[str, int], int] = {}  # (document, key) -> element id
        self.world = ""

    async def read(self, tab: Tab, seen: Any) -> dict[str, Any]:
        """The page: its lines, each a text or an element id, and its controls by id.

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
        lines, controls, cut = await self._merge(tab, root, seen)
        page = {"url": seen["url"], "lines": lines, "controls": controls, "cut": cut, "html": seen.get("html", "")}
        return page | {"numbers": len(self._numbers), "new": new}

    async def _merge(self, tab: Tab, frame: Frame, seen: dict[str, Any]) -> tuple[list[Any], dict[int, Any], int]:
        """Lines with framed documents in their places, the controls by id, and how many lines were cut."""
        lines: list[Any] = []
        controls: dict[int, Any] = {}
        cut = seen["cut"]
        inside: dict[int, Frame] | None = None
        for line in seen["lines"]:
            if isinstance(line, str):
                lines.append(line)
            elif "control" in line:
                key = line["control"].pop("key")
                number = self._numbers.setdefault((seen["world"], key), len(self._numbers) + 1)
                self.elements[number] = (frame, key)
                controls[number] = line["control"]
                lines.append(number)
            else:
                inside = await framed(tab, frame) if inside is None else inside
                if line["frame"] in inside:
                    inner = inside[line["frame"]]
                    part = await self._merge(tab, inner, await tab.evaluate("agentq.observe()", inner))
                    lines, controls, cut = lines + part[0], controls | part[1], cut + part[2]
        return lines, controls, cut
