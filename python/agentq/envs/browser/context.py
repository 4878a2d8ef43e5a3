"""The watched context of one session: its tabs, its way out (proxy.py), and what the browser reports about both."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from agentq.envs.browser.gate import Gate, Hint
from agentq.envs.browser.origins import is_allowed, read_origins
from agentq.envs.browser.popups import Popups
from agentq.envs.browser.proxy import open_proxy
from agentq.envs.browser.reader import Reader
from agentq.envs.browser.rules import SAFE, read_rules
from agentq.envs.browser.secret import Given, Secrets
from agentq.envs.browser.sockets import Sockets
from agentq.envs.browser.tab import QUIET_MS, SETTLE_CAP_S, Tab, source
from agentq.envs.page import unbroken

VIEWPORT = {"width": 1280, "height": 800}
RULES = ("allow", "block")
Rules = dict[str, list[str]]
"""By kind: requests that are sent without a question, and requests that are never asked about."""
_COUNTED = ("xhr", "fetch", "script", "stylesheet")


class Gone(Exception):
    """The session can no longer be used; its state must be rebuilt elsewhere."""


class Refusal(Exception):
    """Something that the page does not accept: data on the step."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """What the pool asks of a session.

    `allow`: the only origins that it may touch. `storage`: an earlier `storage()`, or None. `probe`: an expression that
    is evaluated in the page for each reply. `announces`, `full`: see Host. `rules`: exceptions from holding requests
    (gate.py); None holds nothing.
    """

    allow: list[str]
    storage: Any = None
    probe: str = ""
    quiet_ms: int = QUIET_MS
    announces: bool = False
    full: bool = False
    secrets: Given | None = None
    rules: Rules | None = None
    deadline_s: float = 30.0


class WatchedContext:
    """One Playwright context. A tab is shown when the call that asks for it is under way, else only listed.

    When the tab that is shown closes, the one that opened it is shown. `Error` is the class of Playwright's errors.
    """

    def __init__(self, error: type[Exception], settings: SessionSettings) -> None:
        self.Error, self.settings = error, settings
        self.cap_s = min(SETTLE_CAP_S, settings.deadline_s / 6)
        self.answer_s = settings.deadline_s / 2  # less than a whole call may take
        self.secrets = Secrets(settings.secrets or {})
        self.allowed = read_origins(settings.allow)
        self.gate: Gate | None = None
        if settings.rules is not None:
            self.gate = Gate(*(read_rules(settings.rules[kind], settings.allow, kind) for kind in RULES))
        self._counted = (*_COUNTED, "image") if settings.announces else _COUNTED  # there an image comes at once
        self.reader = Reader(self.secrets.mask)
        self.playwright: Any = None
        self.proxy: Any = None
        self.tabs: list[Tab] = []
        self.tasks: set[asyncio.Task[Any]] = set()
        self.open_requests: set[Any] = set()
        self.windows = 0  # that pages have asked for, and that have not come
        self.turn = 0  # number of the call, which is odd, or of the pause after it, which is even
        self.popups = Popups(self)
        self.unsafe = 0  # requests so far that may have changed the server: neither GET nor HEAD
        self.blocked: list[str] = []
        self.barred = ""
        self.visiting = False  # the call asks for one page, and not for what that page opens
        self.dialogs: list[str] = []
        self.said: list[str] = []  # what an act has to tell besides the page
        self.dialog: Any = None  # waits for an answer
        self.opened = asyncio.Event()  # it is there
        self.last: dict[str, Any] = {}  # what was read last: a page with an open dialog cannot be read
        self.front: Tab | None = None  # the tab that is shown; None: the newest
        self.openers: dict[Tab, Tab] = {}
        self.covered: dict[Tab, Tab] = {}  # by tab: the tab that was shown when it came
        self.sockets = Sockets(self.moved)
        self.crash = asyncio.Event()  # of a renderer; it ends the call (worker.py)

    async def open(self, browser: Any) -> None:
        """Make the context and its first tab."""
        self.proxy = await open_proxy(self.allowed, self.block, self.gate)
        port = self.proxy.sockets[0].getsockname()[1]
        self.playwright = await browser.new_context(
            accept_downloads=False,
            permissions=[],
            service_workers="block",
            storage_state=self.settings.storage,
            viewport=VIEWPORT,
            locale="en-US",
            timezone_id="UTC",
            proxy={"server": f"socks5://127.0.0.1:{port}", "bypass": "<-loopback>"},
            ignore_https_errors=self.gate is not None,  # the proxy answers, and checks the site's certificate
        )
        for script in ("listeners.js", "announced.js")[: 1 + self.settings.announces]:
            await self.playwright.add_init_script(source(script))
        self.playwright.on("request", self._request)
        self.playwright.on("requestfinished", self._request_ends)
        self.playwright.on("requestfailed", self._request_ends)
        self.playwright.on("dialog", self._dialog)
        if self.settings.full:
            self.playwright.on("page", self.sockets.watch)
        self.tabs.append(await self.attach(await self.playwright.new_page()))
        self.playwright.on("page", lambda page: self.spawn(self.popups.open(page)))

    async def close(self) -> None:
        """Release the context and its way out."""
        if self.proxy is not None:
            self.proxy.close()
        if self.playwright is not None:
            await self.playwright.close()

    def begin(self) -> None:
        """A call begins: forget what the last one reported."""
        self.turn += 1 + self.turn % 2
        self.blocked.clear()
        self.barred = ""
        self.visiting = False
        self.dialogs.clear()
        self.sockets.begin()
        self.open_requests.clear()
        self.windows = 0

    def end(self) -> list[str]:
        """The call is over: what it has to tell. What happens before the next call is told by the next."""
        self.turn += self.turn % 2
        if self.popups.coming:
            self.tell("a new tab is still loading")
        told, self.said = self.said, []
        return told

    def tell(self, note: str) -> None:
        """Tell the agent something besides the page, if its page is read in full."""
        if self.settings.full and note not in self.said:
            self.said.append(note)

    def shown(self) -> Tab:
        """The tab that is shown. Raises Gone if there is none any more."""
        if self.tabs[0].page.is_closed():
            raise Gone("the page closed itself")
        return self.current

    @property
    def current(self) -> Tab:
        """The tab that is shown, if any is."""
        return self.front if self.front in self.tabs and self.front is not None else self.tabs[-1]

    def may_load(self, url: str) -> bool:
        """Whether a document of `url` may be loaded and read."""
        return is_allowed(url, self.allowed)

    def block(self, what: str, *, barred: bool = False) -> None:
        """Record what was not allowed; `barred`: it was the page itself, not a part of one."""
        what = self.secrets.mask(what)[:200]
        self.blocked.append(what)
        self.barred = self.barred or (what if barred else "")

    def quoted(self, text: str, most: int) -> str:
        """The beginning of a page's text as a part of a line: single-spaced, without secrets."""
        masked: str = self.secrets.mask(" ".join(unbroken(text).split()))
        return masked[:most]

    def asks_for(self, tab: Tab) -> bool:
        """Whether the call itself led to what happens to the document of `tab`."""
        return not self.visiting or tab in self.tabs[:1]

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run `work` in the background. Its failures are the page's and show in what the page shows."""

        async def quietly() -> None:
            with contextlib.suppress(self.Error):
                await work

        task = asyncio.create_task(quietly())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def close_tabs(self) -> None:
        """Close all tabs but the first, and those that are still opening as soon as they can be closed."""
        self.popups.forget()
        for tab in self.tabs[1:]:
            await tab.page.close()

    def closed(self, tab: Tab) -> None:
        """A tab has closed. If it was shown, the one that opened it is."""
        if tab in self.tabs[1:]:
            self.uncover(tab, self.openers)
            self.tabs.remove(tab)
        tab.moved.set()

    def uncover(self, tab: Tab, under: dict[Tab, Tab]) -> None:
        """If `tab` is shown, show the first open tab that `under` has below it."""
        below = under.get(tab)
        while below is not None and below not in self.tabs:
            below = under.get(below)
        if self.current is tab:
            self.front = below

    async def attach(self, page: Any) -> Tab:
        """A watched tab of a page."""
        tab = await Tab.attach(self, page)
        tab.cdp.on("Page.windowOpen", self.popups.window)
        page.on("download", lambda file: self.tell(f"download: {self.quoted(file.suggested_filename, 100)} (not kept)"))
        return tab

    def moved(self) -> None:
        """Wake what waits for a tab to settle."""
        for tab in self.tabs:
            tab.moved.set()

    def _request(self, request: Any) -> None:
        if request.resource_type in self._counted:
            self.open_requests.add(request)
        if self.gate is None:
            self.unsafe += request.method not in SAFE
        elif request.method not in SAFE or self.gate.wary or request.is_navigation_request():
            self._hint(request, self.gate)
        if not request.is_navigation_request():
            return
        try:
            frame = request.frame
        except self.Error:  # the request is older than the tab it opens
            self.popups.asked(request)
            return
        for tab in self.tabs:
            if frame == tab.page.main_frame:
                tab.requested.append(request)

    def _hint(self, request: Any, gate: Gate) -> None:
        """Tell the gate what a request is."""
        main = request.is_navigation_request()
        with contextlib.suppress(self.Error):  # the request is older than the tab it opens
            main = main and request.frame.parent_frame is None
        gate.told(request.method, request.url, Hint(request.resource_type, main))

    def _request_ends(self, request: Any) -> None:
        self.open_requests.discard(request)
        self.popups.coming.discard(request)
        self.moved()

    def _dialog(self, dialog: Any) -> None:
        message = self.quoted(dialog.message, 200)
        self.dialogs.append(message)
        if self.settings.full and dialog.type in ("confirm", "prompt"):
            self.dialog = dialog
            self.opened.set()
            self.moved()
            return
        if dialog.type == "alert":
            self.tell(f"alert: {message}")
        self.spawn(dialog.accept() if dialog.type == "beforeunload" else dialog.dismiss())

    async def answer_dialog(self, accepts: bool, text: str = "") -> None:
        """Answer the open dialog."""
        dialog, self.dialog = self.dialog, None
        self.opened.clear()
        await (dialog.accept(text) if accepts else dialog.dismiss())

    async def unless_dialog(self, work: asyncio.Future[Any]) -> None:
        """Wait until `work` is done or a dialog is open."""
        opened = asyncio.ensure_future(self.opened.wait())
        try:
            await asyncio.wait({work, opened}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            opened.cancel()
