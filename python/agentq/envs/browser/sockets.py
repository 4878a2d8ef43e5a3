"""Web sockets of a session: a page that is drawn over a socket has settled when its questions are answered."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

_ANSWER_S = 1.0  # ours: wait for the answer to a message
_QUIET_S = 0.3  # ours: after an answer
_MOST_S = 3.0  # ours: of a socket that never rests


class Sockets:
    """When the last message was sent and received. `moved` is called at each."""

    def __init__(self, moved: Callable[[], None]) -> None:
        self.moved = moved
        self.begin()

    def begin(self) -> None:
        """Forget earlier messages: only what a call has begun is waited for."""
        self.begun = time.monotonic()
        self.sent = self.received = float("-inf")

    def watch(self, page: Any) -> None:
        """Watch the sockets of a page."""
        page.on("websocket", self._open)

    def _open(self, socket: Any) -> None:
        socket.on("framesent", lambda _: self._note("sent"))
        socket.on("framereceived", lambda _: self._note("received"))

    def _note(self, what: str) -> None:
        setattr(self, what, time.monotonic())
        self.moved()

    def wait_s(self) -> float:
        """Seconds until the page has been quiet for long enough, 0 if it has."""
        until = self.sent + _ANSWER_S if self.sent > self.received else self.received + _QUIET_S
        return max(0.0, min(until, self.begun + _MOST_S) - time.monotonic())
