"""New tabs of a session: which call asked for each, and whether it is shown once it opens.

A page reports a window at once (`window`), its first request next (`asked`), and the browser the page itself once it is
answered (`open`), which may be many calls later.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from agentq.envs.browser.tab import Tab

if TYPE_CHECKING:
    from agentq.envs.browser.context import WatchedContext

MAX_TABS = 5
_SCHEMES = ("http", "https", "about", "blob", "javascript")  # of windows that open; for others none comes


class Popups:
    """The tabs of `context` that are still opening."""

    def __init__(self, context: WatchedContext) -> None:
        self.context = context
        self.first: dict[Any, tuple[int, Tab]] = {}  # first requests: the context's turn then, and the tab shown
        self.coming: set[Any] = set()  # those of them without an answer
        self.since = 0  # tabs asked for in earlier turns are closed once they open
        self.attaching = 0

    def forget(self) -> None:
        """Close what is still opening as soon as it can be closed."""
        self.since = self.context.turn
        self.coming.clear()

    def window(self, event: dict[str, Any]) -> None:
        """A page has asked for a window, which its `Tab` has counted."""
        scheme, colon, _ = event["url"].partition(":")
        if colon and scheme not in _SCHEMES:
            self.context.windows = max(0, self.context.windows - 1)
            self.context.tell(f"a new tab was refused: {self.context.quoted(scheme, 20)}:")
            self.context.moved()

    def asked(self, request: Any) -> None:
        """A tab that is not open yet has sent its first request."""
        self.first[request] = self.context.turn, self.context.current
        self.coming.add(request)

    async def open(self, page: Any) -> None:
        """A page has opened in a tab of its own."""
        context = self.context
        self.attaching += 1
        try:
            first = [request for request in self.first if self._is_of(request, page)]
            turn, opener = self.first[first[0]] if first else (context.turn, context.current)
            for request in first:
                del self.first[request]
                self.coming.discard(request)
            if not page.url or turn < self.since:  # it became a download; a page that was left had asked for it
                await page.close()
            elif len(context.tabs) + self.attaching > MAX_TABS:
                context.block("a new tab beyond the limit")
                await page.close()
            elif self._is_late(turn) and not context.may_load(page.url):
                context.tell(f"a new tab was refused: {context.quoted(page.url, 200)}")
                await page.close()
            else:
                tab = await context.attach(page)
                tab.requested = first
                by = await page.opener()
                context.openers[tab] = next((each for each in context.tabs if each.page == by), opener)
                context.covered[tab] = context.current
                context.front = context.current if self._is_late(turn) else tab
                context.tabs.append(tab)
        finally:
            self.attaching, context.windows = self.attaching - 1, max(0, context.windows - 1)
            context.moved()

    def _is_late(self, turn: int) -> bool:
        """Whether the call that asked for a tab, in `turn`, is over. Where tabs are not listed, none is late."""
        return self.context.settings.full and (turn != self.context.turn or turn % 2 == 0)

    def _is_of(self, request: Any, page: Any) -> bool:
        """Whether a page began with this request."""
        with contextlib.suppress(self.context.Error):
            return bool(request.frame == page.main_frame)
        return False
