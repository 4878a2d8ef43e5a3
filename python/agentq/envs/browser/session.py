"""One browser session inside a worker: a context, its tabs, its way out (proxy.py).

Every call that can change the page ends with the settle rule and answers with what the page then shows.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import Coroutine
from functools import partial
from typing import Any

from agentq.envs.browser.gate import Gate, Hint
from agentq.envs.browser.gestures import Spot, drag, press
from agentq.envs.browser.origins import is_allowed, origin_of, read_origins
from agentq.envs.browser.proxy import open_proxy
from agentq.envs.browser.reader import Reader
from agentq.envs.browser.rules import SAFE, read_rules
from agentq.envs.browser.secret import Given, Secrets, names
from agentq.envs.browser.tab import ABORTED, QUIET_MS, SETTLE_CAP_S, Frame, Tab, source

CALLS = ("visit", "put_back", "act", "answer", "observe", "storage", "screenshot", "close")
MAX_TABS = 5
_READS = 5
VIEWPORT = {"width": 1280, "height": 800}
_LOADS = 4
_COUNTED = ("xhr", "fetch", "script", "stylesheet")
RULES = ("allow", "block")
Rules = dict[str, list[str]]
"""By kind: requests that are sent without a question, and such that are never asked about."""


class Gone(Exception):
    """The session cannot be used any more; what it held must be rebuilt elsewhere."""


class Refusal(Exception):
    """What the page does not take: data on the step."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class BrowserSession:
    """The newest tab is shown; when it closes, the one before it.

    `Error` is the class of Playwright's errors; `probe` an expression whose value in the page each reply carries;
    `announces`: see Host. `rules`: requests are held (gate.py) but for these; None for a session that holds nothing.
    """

    def __init__(
        self,
        error: type[Exception],
        allow: list[str],
        probe: str,
        quiet_ms: int,
        announces: bool,
        deadline_s: float,
        secrets: Given,
        rules: Rules | None = None,
    ) -> None:
        self.Error, self.probe, self.quiet_ms, self.announces = error, probe, quiet_ms, announces
        self.cap_s, self.answer_s = min(SETTLE_CAP_S, deadline_s / 6), deadline_s / 2  # less than a call in all
        self.secrets = Secrets(secrets)
        self.allowed = read_origins(allow)
        self.gate = None if rules is None else Gate(*(read_rules(rules[kind], allow, kind) for kind in RULES))
        self.doing: list[asyncio.Task[Any]] = []  # of an act that waits for a person
        self.context: Any = None
        self.proxy: Any = None
        self.tabs: list[Tab] = []
        self.tasks: set[asyncio.Task[Any]] = set()
        self.open_requests: set[Any] = set()
        self.windows = self.opening = 0  # asked for; being attached
        self.early: Any = None  # the first request of a tab that is being opened
        self.unsafe = 0  # requests so far that may have changed the server: neither GET nor HEAD
        self.blocked: list[str] = []
        self.barred = ""
        self.visiting = False  # the call asks for one page, and not for what that opens
        self.dialogs: list[str] = []
        self.crashed = False
        self.reader = Reader()

    @classmethod
    async def open(
        cls,
        browser: Any,
        error: type[Exception],
        allow: list[str],
        storage: Any,
        probe: str,
        quiet_ms: int = QUIET_MS,
        announces: bool = False,
        secrets: Given | None = None,
        rules: Rules | None = None,
        deadline_s: float = 30.0,
    ) -> BrowserSession:
        """A fresh context that may touch the origins `allow` only; `storage` is an earlier `storage()`, or None."""
        self = cls(error, allow, probe, quiet_ms, announces, deadline_s, secrets or {}, rules)
        self.proxy = await open_proxy(self.allowed, self.block, self.gate)
        port = self.proxy.sockets[0].getsockname()[1]
        self.context = await browser.new_context(
            accept_downloads=False,
            permissions=[],
            service_workers="block",
            storage_state=storage,
            viewport=VIEWPORT,
            locale="en-US",
            timezone_id="UTC",
            proxy={"server": f"socks5://127.0.0.1:{port}", "bypass": "<-loopback>"},
            ignore_https_errors=self.gate is not None,  # the proxy answers, and checks the site's certificate
        )
        for script in ("listeners.js", "announced.js")[: 1 + announces]:
            await self.context.add_init_script(source(script))
        self.context.on("request", self._request)
        self.context.on("requestfinished", self._request_ends)
        self.context.on("requestfailed", self._request_ends)
        self.context.on("dialog", self._dialog)
        self.tabs.append(await Tab.attach(self, await self.context.new_page()))
        self.context.on("page", lambda page: self.spawn(self._popup(page)))
        return self

    # What the browser tells, between calls and during them.

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Let `work` run beside; its failures are the page's, and show in what the page shows."""

        async def quietly() -> None:
            with contextlib.suppress(self.Error):
                await work

        task = asyncio.create_task(quietly())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def may_load(self, url: str) -> bool:
        """Whether a document of `url` may be loaded and read."""
        return is_allowed(url, self.allowed)

    def block(self, what: str, *, barred: bool = False) -> None:
        """Record what was not allowed; `barred`: it was the page itself, not a part of one."""
        what = self.secrets.mask(what)[:200]
        self.blocked.append(what)
        self.barred = self.barred or (what if barred else "")

    def asks_for(self, tab: Tab) -> bool:
        """Whether what happens to the document of `tab` is what the call led to."""
        return not self.visiting or tab in self.tabs[:1]

    def crash(self) -> None:
        """A renderer has died."""
        self.crashed = True
        self._moved()

    def closed(self, tab: Tab) -> None:
        """A tab is gone; the one before it is shown."""
        if tab in self.tabs[1:]:
            self.tabs.remove(tab)

    async def _popup(self, page: Any) -> None:
        self.opening += 1
        try:
            if len(self.tabs) + self.opening > MAX_TABS:
                self.block("a new tab beyond the limit")
                await page.close()
            else:
                tab = await Tab.attach(self, page)
                tab.requested, self.early = [self.early] if self.early else [], None
                self.tabs.append(tab)
        finally:
            self.opening, self.windows = self.opening - 1, max(0, self.windows - 1)
            self._moved()

    def _moved(self) -> None:
        for tab in self.tabs:
            tab.moved.set()

    def _request(self, request: Any) -> None:
        if request.resource_type in _COUNTED:
            self.open_requests.add(request)
        if self.gate is None:
            self.unsafe += request.method not in SAFE
        elif request.method not in SAFE or self.gate.wary or request.is_navigation_request():
            self._hint(request, self.gate)
        if not request.is_navigation_request():
            return
        try:
            frame = request.frame
        except self.Error:  # it is older than the tab it opens
            self.early = request
            return
        for tab in self.tabs:
            if frame == tab.page.main_frame:
                tab.requested.append(request)

    def _hint(self, request: Any, gate: Gate) -> None:
        """Tell the gate what a request is."""
        main = request.is_navigation_request()
        with contextlib.suppress(self.Error):  # it is older than the tab it opens
            main = main and request.frame.parent_frame is None
        gate.told(request.method, request.url, Hint(request.resource_type, main))

    def _request_ends(self, request: Any) -> None:
        self.open_requests.discard(request)
        self._moved()

    def _dialog(self, dialog: Any) -> None:
        self.dialogs.append(self.secrets.mask(dialog.message)[:200])
        self.spawn(dialog.accept() if dialog.type == "beforeunload" else dialog.dismiss())

    # What the pool may call.

    async def visit(
        self,
        url: str,
        cookies: list[dict[str, str]] | None = None,
        post: str | None = None,
        fill: list[list[Any]] | None = None,
        script: str = "",
        in_place: bool = False,
    ) -> dict[str, Any]:
        """Go to `url` (as a POST of the form `post`), run `script` there, put `fill` into its controls, and look.

        `cookies`, if given, replace those of the session. `fill`: [element id, verb of page.js, value] each.
        `in_place`: `script` alone will do where the page of `url` is shown and nothing but its own has changed; the
        probe is then not asked.
        """
        if cookies is not None:
            await self.context.clear_cookies()
            await self.context.add_cookies(cookies)
        self._begin()
        self.visiting = True
        for tab in self.tabs[1:]:
            await tab.page.close()
        if not self.may_load(url):
            raise Refusal("blocked", f"{self.secrets.mask(url)[:200]} is not allowed")
        tab, failure, turn = self.tabs[0], "", None
        if in_place and tab.page.url == url:
            turn = await tab.restart(script, self.quiet_ms)
        if turn is None:
            failure = await tab.navigate(url, None if post is None else ("POST", post))
            if script:
                await self._loaded(tab)
                await tab.evaluate("agentq.keep()")
                await tab.evaluate_there(script)
        if fill:
            await self._look("")
            await self._fill(fill)
            turn = None
        return await self._look(failure, turn=turn)

    async def put_back(self, url: str, html: str, fill: list[list[Any]]) -> dict[str, Any]:
        """Show the document of `url` again as it came, without asking for it; {} where that cannot be done exactly.

        `html`: as an earlier look told, so it has no script. The page that is shown has none either.
        """
        self._begin()
        tab, args = self.tabs[0], f"{json.dumps(html)}, {json.dumps(url)}"
        if len(self.tabs) > 1 or not self.may_load(url) or not await tab.evaluate(f"agentq.putBack({args})"):
            return {}
        if fill:
            await self.reader.read(tab, None)
            await self._fill(fill)
        return await self._look("")

    async def act(
        self, command: str, element: int, value: Any = None, *, asks: bool = False, wary: bool = False
    ) -> dict[str, Any]:
        """Use the mouse or the keyboard, or do a verb of page.js on a control, and look.

        `asks`, `wary`: see `Gate.begin`. A request that a person is asked about is the whole reply (`asked`); the act
        goes on with `answer`.
        """
        self._begin(acts=True, asks=asks, wary=wary)
        self.doing = [asyncio.create_task(self._try(command, element, value))]
        return await self._act_on()

    async def answer(self, number: int, yes: bool) -> dict[str, Any]:
        """What the person says of a request that was asked about; then the act goes on."""
        if self.gate is None or not self.doing:
            raise Gone("an answer needs a request that was asked about")
        self.gate.answer(number, yes)
        return await self._act_on()

    async def _act_on(self) -> dict[str, Any]:
        """The act, and what the page then shows, unless a person is asked before."""
        (doing,) = self.doing
        if self.gate is None:
            return await self._look("", await doing)
        asked = asyncio.create_task(self.gate.changed.wait())
        looking = asyncio.create_task(self._looked(doing))
        try:
            await asyncio.wait({asked, looking}, return_when=asyncio.FIRST_COMPLETED)
            if self.gate.asked:
                return {"asked": self.gate.asked[0][0], "gate": self.gate.report()}
            return await looking
        finally:
            for task in (asked, looking):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await task

    async def _looked(self, doing: asyncio.Task[Any]) -> dict[str, Any]:
        return await self._look("", await asyncio.shield(doing))

    async def _try(self, command: str, element: int, value: Any) -> tuple[str, str] | None:
        """Do it; why the page refuses, if it does."""
        try:
            await self._do(command, element, value)
        except Refusal as error:
            return error.kind, str(error)
        return None

    async def observe(self) -> dict[str, Any]:
        """Look, without doing anything."""
        self._begin()
        return await self._look("")

    async def storage(self) -> dict[str, Any]:
        """Cookies, local storage and IndexedDB of the context."""
        return dict(await self.context.storage_state(indexed_db=True))

    async def screenshot(self) -> str:
        """The viewport as a PNG, base64."""
        return base64.b64encode(await self._tab().page.screenshot()).decode()

    async def close(self) -> dict[str, Any]:
        """Release the context and its way out; what the gate has counted since the last reply."""
        for task in self.doing:
            task.cancel()
        if self.gate is not None:
            self.gate.begin()
        self.proxy.close()
        await self.context.close()
        return {} if self.gate is None else {"gate": self.gate.report()}

    # How they do it.

    def _tab(self) -> Tab:
        if self.crashed or self.tabs[0].page.is_closed():
            raise Gone("the page crashed" if self.crashed else "the page closed itself")
        return self.tabs[-1]

    def _begin(self, *, acts: bool = False, asks: bool = False, wary: bool = False) -> None:
        self._tab()
        for task in self.doing:
            task.cancel()
        self.doing = []
        if self.gate is not None:
            self.gate.begin(acts=acts, asks=asks, wary=wary)
        self.blocked.clear()
        self.barred = ""
        self.visiting = False
        self.dialogs.clear()
        self.open_requests.clear()
        self.windows = 0

    def _element(self, element: int) -> tuple[Frame, int]:
        if element not in self.reader.elements:
            raise Refusal("no_such_element", f"no element [{element}]")
        return self.reader.elements[element]

    async def _dom(self, verb: str, element: int, value: Any) -> None:
        frame, key = self._element(element)
        if isinstance(value, str):
            value = await self._revealed(value, frame, key)
        if not await self._tab().evaluate(f"agentq.act({json.dumps(verb)}, {key}, {json.dumps(value)})", frame):
            raise Refusal("no_such_element", f"no element [{element}]")

    async def _fill(self, fill: list[list[Any]]) -> None:
        await asyncio.gather(*(self._dom(verb, element, value) for element, verb, value in fill))

    async def _revealed(self, text: str, frame: Frame, key: int) -> str:
        """`text` with secrets for their names, if the element's own document is of their origin."""
        if not self.secrets.origins or not names(text):
            return text
        origin = await self._tab().evaluate(f"agentq.origin({key})", frame)
        for name in names(text):
            if name not in self.secrets.origins:
                raise Refusal("no_such_secret", f"no secret {name}")
            if (bound := self.secrets.origins[name]) != origin_of(origin):
                raise Refusal("secret_origin", f"the secret {name} is for {bound} only , not for {origin}")
        return self.secrets.reveal(text)

    async def _do(self, command: str, element: int, value: Any) -> None:
        page = self._tab().page
        match command:
            case "click":
                await self._tab().click(await self._spot(element))
            case "hover":
                spot = await self._spot(element)
                await page.mouse.move(spot["x"], spot["y"])
            case "drag":
                spot = await self._spot(element)
                await drag(page.mouse, spot, partial(self._end, spot, value))
            case "press":
                await press(page.keyboard, *value)
            case _:
                await self._dom(command, element, value)

    async def _end(self, spot: Spot, value: int | list[int]) -> Spot:
        """Where a drag from `spot` ends: on an element, whatever lies over it, or so many pixels right and down."""
        if isinstance(value, int):
            return await self._spot(value, free=False)
        return {"x": spot["x"] + value[0], "y": spot["y"] + value[1]}

    async def _spot(self, element: int, *, free: bool = True) -> Spot:
        """The middle of the element, scrolled into view; with `free` nothing else may lie over it."""
        frame: Frame | None
        frame, key = self._element(element)
        tab = self._tab()
        spot: Any = await tab.evaluate(f"agentq.point({key}, {json.dumps(free)})", frame)
        if spot is None:
            raise Refusal("no_such_element", f"no element [{element}]")
        if "over" in spot:
            raise Refusal("covered", f"[{element}] is covered by {self.secrets.mask(spot['over'])[:60].rstrip()}")
        while frame is not None and frame.owner is not None:
            corner = await tab.evaluate(f"agentq.corner({frame.key})", frame.owner)
            spot = {"x": spot["x"] + corner["x"], "y": spot["y"] + corner["y"]}
            frame = frame.owner
        return {"x": spot["x"], "y": spot["y"]}

    async def _loaded(self, tab: Tab) -> None:
        """Wait until a page can be asked for what its scripts have made; on a busy machine longer than one settling."""
        for _ in range(_LOADS):
            if (await tab.settle(0))[0]["rule"] != "cap":
                break

    async def _look(self, failure: str, refusal: tuple[str, str] | None = None, turn: Any = None) -> dict[str, Any]:
        """Settle, leave what may not be shown, and read the page. `turn`, of an episode's start: see `Tab.settle`."""
        shown = self._tab()
        settled, seen = await shown.settle(self.quiet_ms, turn)
        tab = self._tab()
        status, said = await tab.status()
        while not self.asks_for(tab) and self._is_empty(tab):
            await self._leave(tab)
            tab = self._tab()
            status, said = await tab.status()
        if said != ABORTED and self.asks_for(tab):
            failure = failure or said
        if not self.may_load(tab.page.url):
            if tab.page.url.startswith("chrome-error:"):  # Chromium's own page about a failure
                if not failure and self.blocked:  # of a tab whose first request was refused before it was watched
                    self.barred = self.barred or self.blocked[-1]
                failure = failure or "net::ERR_FAILED"
            else:
                self.block(tab.page.url, barred=True)
            await self._leave(tab)
            tab, seen = self._tab(), None
        if self.barred and refusal is None:
            refusal = ("blocked", f"{self.barred} is not allowed")
        if failure and self.gate is not None and self.gate.distrusted:
            failure = f"the certificate of the site is not trusted: {self.gate.distrusted}"
        if failure and refusal is None:
            refusal = ("network", failure)
        reply = await self._read(tab, seen if tab is shown else None)
        if self.gate is not None:
            self.gate.end()
            reply["held"], reply["gate"] = self.gate.held, self.gate.report()
            self.unsafe += reply["gate"]["counts"].get("sent", 0)
        method, body = tab.document
        return reply | {
            "status": status,
            "post": body if method == "POST" else None,
            "settle": settled,
            "refused": refusal,
            "blocked": self.blocked,
            "dialogs": self.dialogs,
            "unsafe": self.unsafe,
            "probe": await tab.evaluate_there(self.probe) if self.probe and turn is None else None,
        }

    def _is_empty(self, tab: Tab) -> bool:
        """Whether a tab shows what it may not, or nothing because that was refused."""
        return not self.may_load(tab.page.url) or (tab.page.url == "about:blank" and self.blocked != [])

    async def _read(self, tab: Tab, seen: Any) -> dict[str, Any]:
        """What the tab shows: `seen`, if given. A page that is replaced faster than it can be read is told to stop."""
        for _ in range(_READS):
            with contextlib.suppress(self.Error):
                return await self.reader.read(tab, seen)
            seen = None
            await tab.stop()
        return await self.reader.read(tab, None)

    async def _leave(self, tab: Tab) -> None:
        """Close a tab that shows a page of a foreign origin or scheme; in the first tab, go back."""
        if tab is not self.tabs[0]:
            await tab.page.close()
            self.closed(tab)
            return
        await tab.go_back(self.quiet_ms)
