"""One tab inside a worker: its documents, the settle rule, and the gate that keeps out documents of foreign origins.

Observation and acts run in an isolated world of each document (page.js) over the tab's own DevTools session. So the
renderer itself orders them relative to the page's events: after an act, one round trip through the page's task queue
shows whether the act began a navigation or opened a window. This makes a settle rule without sleeps possible.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import time
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentq.envs.browser.frames import Frame

if TYPE_CHECKING:
    from agentq.envs.browser.context import WatchedContext

SETTLE_CAP_S = 5.0
_CLOSES_S = 1.0
QUIET_MS = 50  # a page with scripts has settled when nothing changed for so long and none of its requests is open
_WORLD = "agentq"
ABORTED = "net::ERR_ABORTED"  # a download, an empty answer: the page stays as it is
_NO_CONTENT = (204, 205)
_REFUSED = "net::ERR_SOCKS_CONNECTION_FAILED"  # Chromium's error when the proxy refuses a connection


@cache
def source(name: str) -> str:
    """A script beside this file."""
    return (Path(__file__).parent / name).read_text()


@cache
def page_source(full: bool) -> str:
    """The script of the isolated world. `full`: see Host."""
    parts = "".join(source(f"{name}.js") for name in ("page", "names", "person", "heard", "spots", "acts"))
    return f"(() => {{ const FULL = {json.dumps(full)};\n{parts}}})();"


class ScriptError(RuntimeError):
    """An expression threw an error in the page."""


async def _evaluate(cdp: Any, args: dict[str, Any]) -> dict[str, Any]:
    reply = await cdp.send("Runtime.evaluate", args)
    if "exceptionDetails" in reply:
        details = reply["exceptionDetails"]
        raise ScriptError(details.get("exception", {}).get("description", details["text"]))
    result: dict[str, Any] = reply["result"]
    return result


class Tab:
    """A page and its DevTools session. `context` records what is blocked."""

    def __init__(self, context: WatchedContext, page: Any, cdp: Any) -> None:
        self.context, self.page, self.cdp = context, page, cdp
        self.worlds: dict[tuple[int, str], int] = {}  # (DevTools session, frame) -> isolated world
        self.outside: dict[Any, Any] = {}  # frames in a process of their own -> their DevTools session, if any
        self.loading: dict[str, bool] = {}  # frame with a navigation -> whether it has started or was only requested
        self.moved = asyncio.Event()
        self.requested: list[Any] = []  # for the main document, since the last call
        self.document = ("GET", None)  # method and body that led to the present one
        self.override: tuple[str, str] | None = None
        self.frame = ""

    @classmethod
    async def attach(cls, context: WatchedContext, page: Any) -> Tab:
        """A tab with its gate, isolated world and listeners in place."""
        tab = cls(context, page, await context.playwright.new_cdp_session(page))
        page.on("close", lambda _: context.closed(tab))
        page.on("crash", lambda _: context.crash.set())
        page.on("framenavigated", lambda frame: tab.outside.pop(frame, None))
        tab.cdp.on("Page.windowOpen", tab._opens)
        await tab.listen(tab.cdp)
        tab.frame = (await tab.cdp.send("Page.getFrameTree"))["frameTree"]["frame"]["id"]
        return tab

    async def listen(self, cdp: Any) -> None:
        """Watch the frames that a DevTools session reaches, and load page.js into them."""
        for event in ("frameScheduledNavigation", "frameRequestedNavigation", "frameStartedLoading"):
            cdp.on(f"Page.{event}", partial(self._starts, event == "frameStartedLoading"))
        for event in ("frameStoppedLoading", "frameClearedScheduledNavigation", "frameDetached"):
            cdp.on(f"Page.{event}", partial(self._stops, event == "frameClearedScheduledNavigation"))
        cdp.on("Runtime.executionContextCreated", lambda event: self._world(cdp, event["context"]))
        cdp.on("Fetch.requestPaused", lambda event: self._gate(cdp, event))
        world = {"source": page_source(self.context.settings.full), "worldName": _WORLD, "runImmediately": True}
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
        """A scheduled navigation is also cleared when it starts; only one that has not started has been given up."""
        if not (cleared and self.loading.get(event["frameId"])):
            self.loading.pop(event["frameId"], None)
            self.moved.set()

    def _opens(self, _: Any) -> None:
        self.context.windows += 1  # it is waited for

    def _world(self, cdp: Any, world: dict[str, Any]) -> None:
        if world["name"] == _WORLD:
            self.worlds[id(cdp), world["auxData"]["frameId"]] = world["id"]

    def _gate(self, cdp: Any, event: dict[str, Any]) -> None:
        """Every request for a document stops here, each hop of a redirect too."""
        request, answer = event["request"], {"requestId": event["requestId"]}
        if not self.context.may_load(request["url"]):
            barred = event["frameId"] == self.frame and self.context.asks_for(self)
            self.context.block(request["url"], barred=barred)
            self.context.spawn(cdp.send("Fetch.failRequest", answer | {"errorReason": "Aborted"}))
            return
        if self.override and event["frameId"] == self.frame:
            method, body = self.override
            headers = [{"name": key, "value": value} for key, value in request["headers"].items()]
            headers.append({"name": "Content-Type", "value": "application/x-www-form-urlencoded"})
            answer |= {"method": method, "postData": base64.b64encode(body.encode()).decode(), "headers": headers}
            self.override = None
        self.context.spawn(cdp.send("Fetch.continueRequest", answer))

    async def evaluate(self, expression: str, frame: Frame | None = None) -> Any:
        """The value of an expression in the isolated world of a document, by default the main document."""
        return (await self._inside(expression, frame, {"returnByValue": True, "awaitPromise": True})).get("value")

    async def handle(self, expression: str, frame: Frame) -> str:
        """The protocol's name for the element that an expression gives in the isolated world; "" if it gives none."""
        return str((await self._inside(expression, frame, {})).get("objectId", ""))

    async def evaluate_there(self, expression: str) -> Any:
        """The value of an expression in the page's own world."""
        args = {"expression": expression, "returnByValue": True, "awaitPromise": True}
        return (await _evaluate(self.cdp, args)).get("value")

    async def _inside(self, expression: str, frame: Frame | None, how: dict[str, Any]) -> dict[str, Any]:
        frame = frame or Frame(self.cdp, self.frame)
        world = self.worlds.get((id(frame.cdp), frame.id))
        if world is None:  # never the page's own world; a later call finds it once it exists
            await frame.cdp.send("Runtime.evaluate", {"expression": "0"})
            raise self.context.Error("the document has no isolated world yet")
        return await _evaluate(frame.cdp, {"expression": expression, "contextId": world, **how})

    async def click(self, spot: dict[str, float], button: str = "left", times: int = 1) -> None:
        """Move the mouse to a point of the viewport, and press and release a button, `times` in a row."""
        events: list[dict[str, Any]] = [spot | {"type": "mouseMoved"}]
        for count in range(1, times + 1):
            press = spot | {"button": button, "clickCount": count}
            events.append(press | {"type": "mousePressed", "buttons": 1 if button == "left" else 2})
            events.append(press | {"type": "mouseReleased"})
        await asyncio.gather(*(self.cdp.send("Input.dispatchMouseEvent", event) for event in events))

    async def settle(self, quiet_ms: int = QUIET_MS, turn: Any = None) -> tuple[dict[str, Any], Any]:
        """Wait until the page has settled. Returns the rule that applied with its milliseconds, and what is then shown.

        `turn`: what the page's first turn returned, if it is known.

        loaded: no frame is loading and the document has no script. quiet: no frame is loading, no node changed for
        `quiet_ms` (or, where pages announce what they will do, nothing is due for so long) and no request that began
        meanwhile is open. cap: neither within `cap_s`. The second value is None after a cap or if another tab is shown.
        """
        start = time.monotonic()
        rule, seen = "cap", None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.context.cap_s):
                rule, seen = await self._settle(quiet_ms, turn)
        return {"rule": rule, "ms": round((time.monotonic() - start) * 1000, 1)}, seen

    async def _turn(self, quiet_ms: int) -> Any:
        """What the page shows, if it has settled after one turn of its task queue; what an act began starts in it."""
        return await self.evaluate(f"agentq.turn({quiet_ms}, {self._announces}, {self._read})")

    @property
    def _announces(self) -> str:
        """Whether pages announce what they will do, for page.js."""
        return json.dumps(self.context.settings.announces)

    @property
    def _read(self) -> str:
        """The document that was read last, for page.js."""
        return json.dumps(self.context.reader.world)

    async def _settle(self, quiet_ms: int, turn: Any) -> tuple[str, Any]:
        while True:
            if turn is None:
                with contextlib.suppress(self.context.Error):  # the document was replaced while it was asked
                    turn = await self._turn(quiet_ms)
            gone = self.page.is_closed()
            if not gone and (self.loading or self.context.windows):
                await self._until(lambda: not self.loading and not self.context.windows)
                turn = None
                continue
            if self.context.current is not self:
                return (await self.context.current.settle(quiet_ms))[0]["rule"], None
            if gone:
                return "cap", None
            told, turn = turn, None
            if told is None:
                continue
            if told.get("closed"):
                await self._until(self.page.is_closed)
                continue
            if told["rule"] == "loaded" or (told["rule"] and not self.context.open_requests):
                return told["rule"], told["seen"]
            try:
                seen = await self.evaluate(f"agentq.quiet({quiet_ms}, {self.context.cap_s * 1000}, {self._announces})")
            except self.context.Error:
                continue
            wait_s = self.context.sockets.wait_s()
            if seen and not self.loading and not self.context.open_requests and not wait_s:
                return "quiet", seen
            if wait_s:
                await asyncio.sleep(wait_s)
            else:
                await self._until(lambda: not self.context.open_requests)

    async def _until(self, holds: Any) -> None:
        while not holds():
            self.moved.clear()
            await self.moved.wait()

    async def closes(self) -> bool:
        """Whether the tab is closed within a moment. An act that closes it may not be answered."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSES_S):
                await self._until(self.page.is_closed)
        return bool(self.page.is_closed())

    async def navigate(self, url: str, override: tuple[str, str] | None = None) -> str:
        """Load `url`, or send `override` (method, form) to it. Returns the network's error, "" without one."""
        self.override = override
        try:
            async with asyncio.timeout(self.context.answer_s):
                reply = await self.cdp.send("Page.navigate", {"url": url})
        except TimeoutError:
            return await self._late()
        finally:
            self.override = None
        return str(reply.get("errorText", ""))

    async def _late(self) -> str:
        """Give up on a server that does not answer."""
        await self.stop()
        return "net::ERR_TIMED_OUT"  # what Chromium would report, much later

    async def stop(self) -> None:
        """Stop loading."""
        await self.cdp.send("Page.stopLoading")

    async def restart(self, script: str, quiet_ms: int) -> Any:
        """Start the page again by its `script`, as if loaded. Returns its first turn, or None if old state is left."""
        return await self.evaluate(f"agentq.restart({json.dumps(script)}, {quiet_ms}, {self._read})")

    async def go_back(self, quiet_ms: int) -> None:
        """Go to the latest page that may be shown."""
        history = await self.cdp.send("Page.getNavigationHistory")
        for entry in reversed(history["entries"][: history["currentIndex"]]):
            if self.context.may_load(entry["url"]):
                await self.cdp.send("Page.navigateToHistoryEntry", {"entryId": entry["id"]})
                break
        else:
            await self.navigate("about:blank")
        await self.settle(quiet_ms)

    async def status(self) -> tuple[int, str]:
        """HTTP status of the main document if one was loaded since the last call, else 0; and why loading failed."""
        requests, self.requested = self.requested, []
        said = ""
        for request in reversed(requests):
            with contextlib.suppress(self.context.Error):
                try:
                    async with asyncio.timeout(self.context.answer_s):
                        response = await request.response()
                except TimeoutError:
                    return 0, await self._late()
                if response is not None and response.status in _NO_CONTENT:  # the previous page stays
                    said = said or ABORTED
                    continue
                if response is not None:
                    self.document = (request.method, request.post_data)
                    return int(response.status), ""
            if request.failure == _REFUSED and not self.context.may_load(request.url):
                self.context.block(request.url, barred=self.context.asks_for(self))
            return 0, said or request.failure or ""
        return 0, said
