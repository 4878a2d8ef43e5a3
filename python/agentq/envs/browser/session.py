"""One browser session inside a worker: the calls that the pool may make.

Every call that can change the page ends with the settle rule, and answers with what the page then shows (look.py).
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import Coroutine
from typing import Any

from agentq.envs.browser.context import Gone, Refusal, SessionSettings, WatchedContext
from agentq.envs.browser.gestures import Fill, fill_in, perform
from agentq.envs.browser.hands import HANDS
from agentq.envs.browser.look import ANSWER_IT, look
from agentq.envs.browser.tab import ABORTED, ScriptError, Tab

CALLS = ("visit", "put_back", "act", "answer", "observe", "storage", "screenshot", "picture", "close")
WEBP_QUALITY = 60
_LOADS = 4
_NO_PAGE = "the address has no page to show: a download or an empty answer"


class BrowserSession:
    """The calls on one context."""

    def __init__(self, context: WatchedContext) -> None:
        self.context, self.gate = context, context.gate
        self.doing: list[asyncio.Task[Any]] = []  # the act that waits for a person

    @classmethod
    async def open(cls, browser: Any, error: type[Exception], settings: SessionSettings) -> BrowserSession:
        """A session in a context of its own; `error` is the class of Playwright's errors."""
        context = WatchedContext(error, settings)
        try:
            await context.open(browser)
        except BaseException:
            await context.close()
            raise
        return cls(context)

    async def visit(
        self,
        url: str,
        cookies: list[dict[str, str]] | None = None,
        post: str | None = None,
        fill: Fill | None = None,
        script: str = "",
        in_place: bool = False,
    ) -> dict[str, Any]:
        """Go to `url` (as a POST of the form `post`), run `script` there, put `fill` into its controls, and look.

        `cookies`, if given, replace those of the session. `in_place`: where the page of `url` is shown already and only
        its own scripts have changed it, `script` alone starts it again; the probe is then not evaluated.
        """
        context = self.context
        if context.dialog is not None:
            await context.answer_dialog(accepts=False)
        if cookies is not None:
            await context.playwright.clear_cookies()
            await context.playwright.add_cookies(cookies)
        self._begin()
        context.visiting = True
        await context.close_tabs()
        if not context.may_load(url):
            raise Refusal("blocked", f"{context.secrets.mask(url)[:200]} is not allowed")
        tab, failure, turn = context.tabs[0], "", None
        if in_place and tab.page.url == url:
            turn = await tab.restart(script, context.settings.quiet_ms)
        if turn is None:
            failure = await tab.navigate(url, None if post is None else ("POST", post))
            if script:
                await _loaded(tab)
                await tab.evaluate("agentq.keep()")
                await tab.evaluate_there(script)
        if fill:
            await look(context)
            await fill_in(context, fill)
            turn = None
        told = await look(context, failure, turn=turn)
        return told | {"refused": ("not_taken", _NO_PAGE)} if told["refused"] == ("network", ABORTED) else told

    async def put_back(self, url: str, html: str, fill: Fill) -> dict[str, Any]:
        """Show the document of `url` again without asking the server; {} where that cannot be done exactly.

        `html`: as an earlier look returned it, which implies no script. The page that is shown has none either.
        """
        if self.context.dialog is not None:
            return {}
        self._begin()
        context, args = self.context, f"{json.dumps(html)}, {json.dumps(url)}"
        tab = context.tabs[0]
        if len(context.tabs) > 1 or not context.may_load(url) or not await tab.evaluate(f"agentq.putBack({args})"):
            return {}
        if fill:
            await context.reader.read(tab, None)
            await fill_in(context, fill)
        return await look(context)

    async def act(
        self, command: str, element: int, value: Any = None, *, asks: bool = False, wary: bool = False
    ) -> dict[str, Any]:
        """Use the mouse or the keyboard, or do a verb of page.js on a control, and look.

        `asks`, `wary`: see `Gate.begin`. If a person must be asked about a request, the reply is `asked` alone, and
        the act goes on with `answer`.
        """
        self._begin(acts=True, asks=asks, wary=wary)
        self.doing = [asyncio.create_task(self._try(command, element, value))]
        return await self._act_on()

    async def answer(self, number: int, yes: bool) -> dict[str, Any]:
        """The person's answer about request `number`; then the act goes on."""
        if self.gate is None or not self.doing:
            raise Gone("an answer needs a request that was asked about")
        self.gate.answer(number, yes)
        return await self._act_on()

    async def observe(self) -> dict[str, Any]:
        """Look, without doing anything."""
        self._begin()
        return await look(self.context)

    async def storage(self) -> dict[str, Any]:
        """Cookies, local storage and IndexedDB of the context; {} if they hold a secret, or a dialog is open."""
        kept = await self._unless_dialog(self.context.playwright.storage_state(indexed_db=True))
        text = json.dumps(kept or {}, ensure_ascii=False)
        return dict(kept) if kept and self.context.secrets.mask(text) == text else {}

    async def screenshot(self) -> str:
        """The viewport as a PNG, base64; nothing while a dialog holds the page up."""
        shot = await self._unless_dialog(self.context.shown().page.screenshot())
        return base64.b64encode(shot or b"").decode()

    async def picture(self, *, marks: bool = False) -> dict[str, Any]:
        """The viewport as a WebP, base64, its size, and the box of each element in it by number, in CSS pixels.

        `marks`: boxes and numbers are drawn. {} while a dialog holds the page up.
        """
        return await self._unless_dialog(self._picture(marks)) or {}

    async def _picture(self, marks: bool) -> dict[str, Any]:
        tab, elements = self.context.shown(), self.context.reader.elements
        own = {number: key for number, (frame, key) in elements.items() if frame.owner is None}
        shown = await tab.evaluate(f"agentq.boxes({json.dumps(own)})")
        shot = await tab.cdp.send("Page.captureScreenshot", {"format": "webp", "quality": WEBP_QUALITY})
        if marks:
            drawn = f"agentq.mark({json.dumps(shot['data'])}, {json.dumps(shown['boxes'])}, {WEBP_QUALITY / 100})"
            shot["data"] = await tab.evaluate(drawn)
        return {**shown, "webp": shot["data"]}

    async def close(self) -> dict[str, Any]:
        """Release the context; returns what the gate has counted since the last reply."""
        for task in self.doing:
            task.cancel()
        if self.gate is not None:
            self.gate.begin()
        await self.context.close()
        return {} if self.gate is None else {"gate": self.gate.report()}

    async def _unless_dialog(self, work: Coroutine[Any, Any, Any]) -> Any:
        """The result of `work`; None if a dialog is open or opens meanwhile, which holds the page up."""
        if self.context.dialog is not None:
            work.close()
            return None
        doing = asyncio.create_task(work)
        try:
            await self.context.unless_dialog(doing)
            return doing.result() if doing.done() else None
        finally:
            doing.cancel()

    def _begin(self, *, acts: bool = False, asks: bool = False, wary: bool = False) -> None:
        self.context.shown()
        for task in self.doing:
            task.cancel()
        self.doing = []
        if self.gate is not None:
            self.gate.begin(acts=acts, asks=asks, wary=wary)
        self.context.begin()

    async def _try(self, command: str, element: int, value: Any) -> tuple[str, str] | None:
        """Do it; why the page refuses, if it does. An error of a script or the protocol is a refusal, too."""
        tab = self.context.shown()
        try:
            if self.context.dialog is not None and command != "dialog":
                raise Refusal("not_taken", f"a dialog is open: {ANSWER_IT}")
            if command in HANDS and (self.context.settings.full or command in ("wait", "click_at")):
                await HANDS[command](self.context, element, value)
            else:
                await perform(self.context, command, element, value)
        except Refusal as error:
            return error.kind, str(error)
        except ScriptError as error:
            return "not_taken", f"the page does not take it: {self._brief(error)}"
        except self.context.Error as error:
            if await tab.closes():
                return None
            if self.context.crash.is_set():
                raise
            return "not_taken", f"the page does not take it: {self._brief(error)}"
        return None

    def _brief(self, error: Exception) -> str:
        """What an error says, without the names of calls."""
        said = str(error).strip().partition("\n")[0].rpartition("): ")[2]
        return self.context.quoted(said, 120)

    async def _act_on(self) -> dict[str, Any]:
        """The act and what the page then shows, unless a person must be asked first."""
        (doing,) = self.doing
        if self.gate is None:
            return await self._look_after(doing)
        asked = asyncio.create_task(self.gate.changed.wait())
        looking = asyncio.create_task(self._look_after(doing))
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

    async def _look_after(self, doing: asyncio.Task[Any]) -> dict[str, Any]:
        """What the page shows once the act is done, or has opened a dialog, which holds it up."""
        await self.context.unless_dialog(doing)
        refusal = doing.result() if doing.done() else None
        if self.gate is not None and doing.done() and refusal is None:
            await self.gate.expect(self.context.cap_s)
        return await look(self.context, refusal=refusal)


async def _loaded(tab: Tab) -> None:
    """Wait until the page's scripts have run; on a busy machine that takes longer than one settling."""
    for _ in range(_LOADS):
        if (await tab.settle(0))[0]["rule"] != "cap":
            break
