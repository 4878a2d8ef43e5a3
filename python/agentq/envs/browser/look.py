"""What a call answers with: settle, leave pages that may not be shown, and read the page."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from agentq.envs.browser.context import WatchedContext
from agentq.envs.browser.tab import ABORTED, Tab

_READS = 5
ANSWER_IT = "answer it by DIALOG ACCEPT or DIALOG DISMISS"


async def look(
    context: WatchedContext, failure: str = "", refusal: tuple[str, str] | None = None, turn: Any = None
) -> dict[str, Any]:
    """What the page shows once it has settled, or what it showed before a dialog that now waits for an answer.

    `failure`: what the network reported. `refusal`: why the page did not accept the act. `turn`: see `Tab.settle`.
    """
    if not context.settings.full:
        return await _look(context, failure, refusal, turn)
    looking = asyncio.create_task(_look(context, failure, refusal, turn))
    try:
        await context.unless_dialog(looking)
        if looking.done():
            context.last = looking.result()
            return context.last
        return _behind_dialog(context, refusal)
    finally:
        looking.cancel()


async def _look(context: WatchedContext, failure: str, refusal: tuple[str, str] | None, turn: Any) -> dict[str, Any]:
    settings = context.settings
    before = context.shown()
    settled, seen = await before.settle(settings.quiet_ms, turn)
    tab, status, said = await _first_shown(context)
    if said != ABORTED and context.asks_for(tab):
        failure = failure or said
    if not context.may_load(tab.page.url):
        failure = _why_left(context, tab, failure)
        await _leave(context, tab)
        tab, seen = context.shown(), None
    page = await _read(context, tab, seen if tab is before else None)
    method, body = tab.document
    page |= {"status": status, "post": body if method == "POST" else None, "settle": settled}
    page["probe"] = await tab.evaluate_there(settings.probe) if settings.probe and turn is None else None
    page["notes"] = await _tabs(context)
    return page | _told(context, refusal or _refusal(context, failure))


def _told(context: WatchedContext, refusal: tuple[str, str] | None) -> dict[str, Any]:
    """What a reply tells besides the page. The call is over, for the gate, too."""
    told: dict[str, Any] = {"refused": refusal, "blocked": context.blocked, "dialogs": context.dialogs}
    if (gate := context.gate) is not None:
        gate.end()
        told["held"], told["gate"] = gate.held, gate.report()
        context.unsafe += told["gate"]["counts"].get("sent", 0)
    return told | {"unsafe": context.unsafe, "said": context.end()}


def _behind_dialog(context: WatchedContext, refusal: tuple[str, str] | None) -> dict[str, Any]:
    """The page as it was read last; its scripts stand still until the dialog is answered."""
    nothing = {
        "url": context.current.page.url,
        "lines": [],
        "controls": {},
        "html": "",
        "numbers": 0,
        "new": True,
    }
    page = {
        **nothing,
        **context.last,
        "status": 0,
        "post": None,
        "settle": {"rule": "dialog", "ms": 0.0},
        "probe": None,
    }
    asks = f"dialog {context.dialog.type}: {context.quoted(context.dialog.message, 500)} ; {ANSWER_IT}"
    if suggested := context.quoted(context.dialog.default_value, 100):
        asks += f" ; suggested text {suggested}"
    page["notes"] = [*(note for note in context.last.get("notes", []) if not note.startswith("dialog ")), asks]
    return page | _told(context, refusal)


async def _tabs(context: WatchedContext) -> list[str]:
    """One line on the open tabs if there are several."""
    if len(context.tabs) < 2 or not context.settings.full:
        return []
    listed = []
    for i, tab in enumerate(context.tabs, 1):
        shown = " (shown)" if tab is context.current else ""
        listed.append(f"{i} {context.quoted(await tab.page.title(), 60)}{shown}")
    return [f"tabs: {' | '.join(listed)}"]


async def _first_shown(context: WatchedContext) -> tuple[Tab, int, str]:
    """The tab to read, its HTTP status, and how loading it failed. Tabs that opened themselves and are empty close."""
    tab = context.shown()
    status, said = await tab.status()
    while not context.asks_for(tab) and _is_empty(context, tab):
        await _leave(context, tab)
        tab = context.shown()
        status, said = await tab.status()
    return tab, status, said


def _is_empty(context: WatchedContext, tab: Tab) -> bool:
    """Whether a tab shows what it may not, or nothing because its page was refused."""
    return not context.may_load(tab.page.url) or (tab.page.url == "about:blank" and context.blocked != [])


def _why_left(context: WatchedContext, tab: Tab, failure: str) -> str:
    """The failure behind a page that may not be shown; a page of a foreign origin is recorded as blocked."""
    if not tab.page.url.startswith("chrome-error:"):
        context.block(tab.page.url, barred=True)
        return failure
    if not failure and context.blocked:  # the tab's first request was refused before it was watched
        context.barred = context.barred or context.blocked[-1]
    return failure or "net::ERR_FAILED"


def _refusal(context: WatchedContext, failure: str) -> tuple[str, str] | None:
    """Why the call failed, if it did."""
    if context.barred:
        return "blocked", f"{context.barred} is not allowed"
    if failure and context.gate is not None and context.gate.distrusted:
        failure = f"the certificate of the site is not trusted: {context.gate.distrusted}"
    return ("network", failure) if failure else None


async def _read(context: WatchedContext, tab: Tab, seen: Any) -> dict[str, Any]:
    """The page of a tab: `seen`, if given. A page that changes faster than it can be read is stopped."""
    for _ in range(_READS):
        with contextlib.suppress(context.Error):
            return await context.reader.read(tab, seen)
        seen = None
        await tab.stop()
    return await context.reader.read(tab, None)


async def _leave(context: WatchedContext, tab: Tab) -> None:
    """Close a tab that shows a page of a foreign origin or scheme; in the first tab, go back."""
    if tab is not context.tabs[0]:
        context.uncover(tab, context.covered)
        await tab.page.close()
        context.closed(tab)
        return
    await tab.go_back(context.settings.quiet_ms)
