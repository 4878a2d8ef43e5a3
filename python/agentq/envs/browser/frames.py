"""The documents of a tab that can be evaluated in, and how documents of other origins are framed in each other."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentq.envs.browser.tab import Tab


@dataclass(frozen=True, slots=True)
class Frame:
    """A document. `id` is Chromium's name for it; `owner` frames it, in the element with `key`."""

    cdp: Any
    id: str
    owner: Frame | None = None
    key: int = 0


async def framed(tab: Tab, owner: Frame) -> dict[int, Frame]:
    """The documents of other origins framed in `owner`, by the key of their element."""
    found: dict[int, Frame] = {}
    for cdp, frame in await _readable(tab):
        if (cdp, frame) == (owner.cdp, owner.id):
            continue
        with contextlib.suppress(tab.context.Error):
            node = await owner.cdp.send("DOM.getFrameOwner", {"frameId": frame})
            args = {"backendNodeId": node["backendNodeId"], "executionContextId": tab.worlds[id(owner.cdp), owner.id]}
            element = (await owner.cdp.send("DOM.resolveNode", args))["object"].get("objectId")
            if element is None:  # a frame further inside: another document frames it
                continue
            call = {"functionDeclaration": "function() { return agentq.keyOf(this) }", "objectId": element}
            key = (await owner.cdp.send("Runtime.callFunctionOn", call))["result"]["value"]
            found[key] = Frame(cdp, frame, owner, key)
    return found


async def _readable(tab: Tab) -> list[tuple[Any, str]]:
    """Every frame that may be read, with the DevTools session that reaches it."""
    found = []
    for frame in tab.page.frames[1:]:
        if frame not in tab.outside:
            try:
                cdp = await tab.context.playwright.new_cdp_session(frame)
                await tab.listen(cdp)
            except tab.context.Error:
                cdp = None  # it shares its parent's process
            tab.outside[frame] = cdp
    for cdp in [tab.cdp, *filter(None, tab.outside.values())]:
        trees = [(await cdp.send("Page.getFrameTree"))["frameTree"]]
        while trees:
            tree = trees.pop()
            trees += tree.get("childFrames", [])
            if tab.context.may_load(tree["frame"]["url"]):
                found.append((cdp, tree["frame"]["id"]))
    return found
