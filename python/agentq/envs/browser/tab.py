"""One tab inside a worker: its documents, the settle rule, and the gate that documents of foreign origins do not pass.

Observation and acts run in an isolated world of each document (page.js) over the tab's own DevTools session, so their
order relative to the page's events is the renderer's own: after an act, one round trip through the page's task queue
tells whether the act began a navigation or opened a window. That is what makes a settle rule without sleeps possible.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import time
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

SETTLE_CAP_S = 5.0
QUIET_MS = 50  # a page with scripts is settled when nothing has changed for so long and no request of it is open
_WORLD = "agentq"
ABORTED = "net::ERR_ABORTED"  # a download, an empty answer: the page stays as it is
_NO_CONTENT = (204, 205)
_REFUSED = "net::ERR_SOCKS_CONNECTION_FAILED"  # what Chromium says when the proxy does not let it through


@cache
def source(name: str) -> str:
    """A script beside this file."""
    return (Path(__file__).parent / name).read_text()


@dataclass(frozen=True, slots=True)
class Frame:
    """A document that can be evaluated in. `id` is Chromium's; `owner` frames it, in its element `key`."""

    cdp: Any
    id: str
    owner: Frame | None = None
    key: int = 0


class Tab:
    """`session` is told of what is blocked; `loading` are the frames that a navigation keeps busy."""

    def __init__(self, session: Any, page: Any, cdp: Any) -> None:
        self.session, self.page, self.cdp = session, page, cdp
        self.contexts: dict[tuple[int, str], int] = {}  # (DevTools session, frame) -> isolated world
        self.outside: dict[Any, Any] = {}  # frames in a process of their own -> their DevTools session, if any
        self.loading: dict[str, bool] = {}  # frame -> whether it has started to load, or only asked to
        self.moved = asyncio.Event()
        self.requested: list[Any] = []  # for the main document, since the last call
        self.document = ("GET", None)  # method and body that led to the present one
        self.override: tuple[str, str] | None = None
        self.frame = ""

    @classmethod
    async def attach(cls, session: Any, page: Any) -> Tab:
        """Put the gate, the isolated world and the listeners in place."""
        tab = cls(session, page, await session.context.new_cdp_session(page))
        page.on("close", lambda _: session.closed(tab))
        page.on("crash", lambda _: session.crash())
        page.on("framenavigated", lambda frame: tab.outside.pop(frame, None))
        tab.cdp.on("Page.windowOpen", tab._opens)
        await tab._listen(tab.cdp)
        tab.frame = (await tab.cdp.send("Page.getFrameTree"))["frameTree"]["frame"]["id"]
        return tab

    async def _listen(self, cdp: Any) -> None:
        for event in ("frameScheduledNavigation", "frameRequestedNavigation", "frameStartedLoading"):
            cdp.on(f"Page.{event}", partial(self._starts, event == "frameStartedLoading"))
        for event in ("frameStoppedLoading", "frameClearedScheduledNavigation", "frameDetached"):
            cdp.on(f"Page.{event}", partial(self._stops, event == "frameClearedScheduledNavigation"))
        cdp.on("Runtime.executionContextCreated", lambda event: self._world(cdp, event["context"]))
        cdp.on("Fetch.requestPaused", lambda event: self._gate(cdp, event))
        world = {"source": source("page.js"), "worldName": _WORLD, "runImmediately": True}
        await asyncio.gather(
            cdp.send("Page.enable"),
            cdp.send("Runtime.enable"),
            cdp.send("Fetch.enable", {"patterns": [{"resourceType": "Document"}]}),
            cdp.send("Page.addScriptToEvaluateOnNewDocument", world),
        )

    def _starts(self, started: bool, event: dict[str, Any]) -> None:
        if event.get("disposition", "currentTab") == "currentTab":
            self.loading[event["frameId"]] = started or self.loading.get(event["frameId"], False)

    def _stops(self, cleared: bool, event: dict[str, Any]) -> None:
        """A scheduled navigation is cleared when it starts, too; only one that has not started is given up."""
        if not (cleared and self.loading.get(event["frameId"])):
            self.loading.pop(event["frameId"], None)
            self.moved.set()

    def _opens(self, _: Any) -> None:
        self.session.windows += 1  # it is waited for

    def _world(self, cdp: Any, context: dict[str, Any]) -> None:
        if context["name"] == _WORLD:
            self.contexts[id(cdp), context["auxData"]["frameId"]] = context["id"]

    def _gate(self, cdp: Any, event: dict[str, Any]) -> None:
        """Every request for a document stops here, each hop of a redirect too."""
        request, answer = event["request"], {"requestId": event["requestId"]}
        if not self.session.may_load(request["url"]):
            barred = event["frameId"] == self.frame and self.session.asks_for(self)
            self.session.block(request["url"], barred=barred)
            self.session.spawn(cdp.send("Fetch.failRequest", answer | {"errorReason": "Aborted"}))
            return
        if self.override and event["frameId"] == self.frame:
            method, body = self.override
            headers = [{"name": key, "value": value} for key, value in request["headers"].items()]
            headers.append({"name": "Content-Type", "value": "application/x-www-form-urlencoded"})
            answer |= {"method": method, "postData": base64.b64encode(body.encode()).decode(), "headers": headers}
            self.override = None
        self.session.spawn(cdp.send("Fetch.continueRequest", answer))

    async def evaluate(self, expression: str, frame: Frame | None = None) -> Any:
        """The value of an expression in the isolated world of a document, the main one by default."""
        frame = frame or Frame(self.cdp, self.frame)
        context = self.contexts.get((id(frame.cdp), frame.id))
        if context is None:  # never the page's own world: whoever asks again finds it once it is there
            await frame.cdp.send("Runtime.evaluate", {"expression": "0"})
            raise self.session.Error("the document has no isolated world yet")
        return await self._evaluate(frame.cdp, {"expression": expression, "contextId": context})

    async def evaluate_there(self, expression: str) -> Any:
        """The value of an expression in the page's own world."""
        return await self._evaluate(self.cdp, {"expression": expression})

    async def _evaluate(self, cdp: Any, args: dict[str, Any]) -> Any:
        reply = await cdp.send("Runtime.evaluate", args | {"returnByValue": True, "awaitPromise": True})
        if "exceptionDetails" in reply:
            details = reply["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description", details["text"]))
        return reply["result"].get("value")

    async def click(self, spot: dict[str, float]) -> None:
        """Move the mouse to a point of the viewport, press and release its left button."""
        press = spot | {"button": "left", "clickCount": 1}
        events = [spot | {"type": "mouseMoved"}, press | {"type": "mousePressed", "buttons": 1}]
        events.append(press | {"type": "mouseReleased"})
        await asyncio.gather(*(self.cdp.send("Input.dispatchMouseEvent", event) for event in events))

    async def settle(self, quiet_ms: int = QUIET_MS, turn: Any = None) -> tuple[dict[str, Any], Any]:
        """Wait until the page has settled: which rule said so, after how many milliseconds; what the page then shows.

        `turn`, if given, is what the page's first turn has told.

        loaded: no frame is loading and the document has no script. quiet: besides, no node changed for `quiet_ms` (or,
        where pages announce what they do, nothing is due for so long) and no request that began meanwhile is open.
        cap: neither within the session's cap; then, and where another tab is shown, the second is None.
        """
        start = time.monotonic()
        rule, seen = "cap", None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.session.cap_s):
                rule, seen = await self._settle(quiet_ms, turn)
        return {"rule": rule, "ms": round((time.monotonic() - start) * 1000, 1)}, seen

    async def _turn(self, quiet_ms: int) -> Any:
        """What the page shows if it has settled once its task queue has come round; whatever an act began has begun."""
        return await self.evaluate(f"agentq.turn({quiet_ms}, {json.dumps(self.session.announces)}, {self._read})")

    @property
    def _read(self) -> str:
        """The document that was read last, for page.js."""
        return json.dumps(self.session.reader.world)

    async def _settle(self, quiet_ms: int, turn: Any) -> tuple[str, Any]:
        announces = json.dumps(self.session.announces)
        while True:
            if turn is None:
                with contextlib.suppress(self.session.Error):  # the document was replaced while it was asked
                    turn = await self._turn(quiet_ms)
            gone = self.session.crashed or self.page.is_closed()
            if not gone and (self.loading or self.session.windows):
                await self._until(lambda: not self.loading and not self.session.windows)
                turn = None
                continue
            if self.session.tabs[-1] is not self:
                return (await self.session.tabs[-1].settle(quiet_ms))[0]["rule"], None
            if gone:
                return "cap", None
            told, turn = turn, None
            if told is None:
                continue
            if told["rule"] == "loaded" or (told["rule"] and not self.session.open_requests):
                return told["rule"], told["seen"]
            try:
                seen = await self.evaluate(f"agentq.quiet({quiet_ms}, {self.session.cap_s * 1000}, {announces})")
            except self.session.Error:
                continue
            if seen and not self.loading and not self.session.open_requests:
                return "quiet", seen
            await self._until(lambda: not self.session.open_requests)

    async def _until(self, holds: Any) -> None:
        while not holds() and not self.session.crashed:
            self.moved.clear()
            await self.moved.wait()

    async def navigate(self, url: str, override: tuple[str, str] | None = None) -> str:
        """Load `url`, or post `override` (method, form) to it; what the network said, if it failed."""
        self.override = override
        try:
            async with asyncio.timeout(self.session.answer_s):
                reply = await self.cdp.send("Page.navigate", {"url": url})
        except TimeoutError:
            return await self._late()
        finally:
            self.override = None
        return str(reply.get("errorText", ""))

    async def _late(self) -> str:
        """Give up a server that does not answer."""
        await self.stop()
        return "net::ERR_TIMED_OUT"  # as Chromium would say, much later

    async def stop(self) -> None:
        """Give up what is still being loaded."""
        await self.cdp.send("Page.stopLoading")

    async def restart(self, script: str, quiet_ms: int) -> Any:
        """Start the page again by its `script`, as if loaded: its first turn; None if something of before is left."""
        return await self.evaluate(f"agentq.restart({json.dumps(script)}, {quiet_ms}, {self._read})")

    async def go_back(self, quiet_ms: int) -> None:
        """To the latest page that may be shown."""
        history = await self.cdp.send("Page.getNavigationHistory")
        for entry in reversed(history["entries"][: history["currentIndex"]]):
            if self.session.may_load(entry["url"]):
                await self.cdp.send("Page.navigateToHistoryEntry", {"entryId": entry["id"]})
                break
        else:
            await self.navigate("about:blank")
        await self.settle(quiet_ms)

    async def status(self) -> tuple[int, str]:
        """The HTTP status of the main document if one was loaded since the last call, else 0; how loading it failed."""
        requests, self.requested = self.requested, []
        said = ""
        for request in reversed(requests):
            with contextlib.suppress(self.session.Error):
                try:
                    async with asyncio.timeout(self.session.answer_s):
                        response = await request.response()
                except TimeoutError:
                    return 0, await self._late()
                if response is not None and response.status in _NO_CONTENT:  # the page before it stays
                    said = said or ABORTED
                    continue
                if response is not None:
                    self.document = (request.method, request.post_data)
                    return int(response.status), ""
            if request.failure == _REFUSED and not self.session.may_load(request.url):
                self.session.block(request.url, barred=self.session.asks_for(self))
            return 0, said or request.failure or ""
        return 0, said

    async def framed(self, owner: Frame) -> dict[int, Frame]:
        """The documents of other origins framed in `owner`, by the key of their element."""
        found: dict[int, Frame] = {}
        for cdp, frame in await self._frames():
            if (cdp, frame) == (owner.cdp, owner.id):
                continue
            with contextlib.suppress(self.session.Error):
                node = await owner.cdp.send("DOM.getFrameOwner", {"frameId": frame})
                context = self.contexts[id(owner.cdp), owner.id]
                args = {"backendNodeId": node["backendNodeId"], "executionContextId": context}
                element = (await owner.cdp.send("DOM.resolveNode", args))["object"]["objectId"]
                call = {"functionDeclaration": "function() { return agentq.keyOf(this) }", "objectId": element}
                key = (await owner.cdp.send("Runtime.callFunctionOn", call))["result"]["value"]
                found[key] = Frame(cdp, frame, owner, key)
        return found

    async def _frames(self) -> list[tuple[Any, str]]:
        """Every frame that may be read, with the DevTools session that reaches it."""
        found = []
        for frame in self.page.frames[1:]:
            if frame not in self.outside:
                try:
                    cdp = await self.session.context.new_cdp_session(frame)
                    await self._listen(cdp)
                except self.session.Error:
                    cdp = None  # it lives in its parent's process
                self.outside[frame] = cdp
        for cdp in [self.cdp, *filter(None, self.outside.values())]:
            trees = [(await cdp.send("Page.getFrameTree"))["frameTree"]]
            while trees:
                tree = trees.pop()
                trees += tree.get("childFrames", [])
                if self.session.may_load(tree["frame"]["url"]):
                    found.append((cdp, tree["frame"]["id"]))
        return found
