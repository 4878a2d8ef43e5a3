"""Decides which requests of a session may be sent. exchange.py consults it before sending anything.

A request with a safe method passes. Any other request needs a rule, or a person's yes to exactly this request. What the
browser reports about a request (`Hint`) affects how it is counted, never whether it is sent.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentq.envs.browser.outgoing import tell
from agentq.envs.browser.rules import SAFE, WEBSOCKET, Rule, rule_for

MAX_SHOWN = 1 << 18  # limit in bytes for a body that a person is shown
_HINT_S = 0.25  # wait for the browser's hint about a request
_OVERRIDES = ("x-http-method-override", "x-http-method", "x-method-override")
COUNTS = ("held", "allowed_by_rule", "allowed_by_person", "sent")


@dataclass(frozen=True, slots=True)
class Hint:
    """The browser's report on a request: its resource type, and whether it loads the document of a whole tab."""

    kind: str
    main: bool


@dataclass(frozen=True, slots=True)
class Head:
    """The first lines of a request: `headers` with lower-case names."""

    method: str
    url: str
    headers: dict[str, str]
    raw: bytes

    @property
    def safe(self) -> bool:
        return self.method in SAFE

    @property
    def navigates(self) -> bool:
        """Whether it requests a document, of a tab or a frame."""
        asks = self.headers.get("sec-fetch-mode") == "navigate"
        return asks or ("sec-fetch-mode" not in self.headers and "upgrade-insecure-requests" in self.headers)

    @classmethod
    def read(cls, raw: bytes, origin: str) -> Head:
        """The head of a request to `origin`. Raises ValueError if it is invalid."""
        first, *lines = raw.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
        method, target, version = first.split(" ")
        named = target.startswith("/") or (method, target) == ("OPTIONS", "*")
        if not (named and version.startswith("HTTP/1.")):
            raise ValueError(f"a request must be of HTTP/1.1; got '{first[:80]}'")
        fields = [(name.strip().lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
        claimed = {value.upper() for name, value in fields if name in _OVERRIDES} - set(SAFE)
        # a server may obey any of them: several together are a method that no rule allows
        return cls(", ".join(sorted(claimed)) or method, origin + target, dict(fields), raw)


class Gate:
    """The rules of a session, its questions to a person, and its counts.

    `begin` sets what the session does now. A request caused by an act is reported (`held`) or asked about (`asked`);
    any other, such as one that a page sends while it loads or by a timer, is only counted.
    """

    def __init__(self, allow: Sequence[Rule], block: Sequence[Rule]) -> None:
        self.allow, self.block = allow, block
        self.counts: Counter[str] = Counter()
        self.tried: Counter[str] = Counter()  # requests kept back, as rules that would allow them
        self.hints: dict[tuple[str, str], Hint] = {}
        self.held: dict[str, Any] | None = None  # the first request of the present act which was kept back
        self.asked: list[tuple[dict[str, Any], asyncio.Future[bool]]] = []
        self.distrusted = ""  # the fault of a site's certificate
        self.number = 0  # number of the latest request that was asked about
        self.before = 0  # the same when the present call began
        self.changed = asyncio.Event()  # there is a question
        self.hinted = asyncio.Event()
        self.own: set[tuple[str, str, str]] = set()  # requests that the page sends by itself: method, url, digest
        self.acts = self.acted = self.asks = self.wary = self.moved = self.answered = False

    def begin(self, *, acts: bool = False, asks: bool = False, wary: bool = False) -> None:
        """A call begins. `acts`: it is an act of the agent. `asks`: a person is asked about its requests. `wary`: what
        it presses has the name of something irreversible, so a GET waits too."""
        self.refuse_all()
        self.acts = self.acted = acts
        self.asks, self.wary = asks, wary
        self.before = self.number
        self.moved = self.answered = False
        self.held, self.distrusted = None, ""
        self.hints.clear()

    async def expect(self, patience_s: float) -> None:
        """Wait for the first question of an act that a person is asked about; a window or worker may send it late."""
        if self.asks and self.number == self.before:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience_s):
                    await self.changed.wait()

    def report(self) -> dict[str, Any]:
        """What was counted and kept back since the last report."""
        told = {"counts": dict(self.counts), "tried": list(self.tried.items())}  # a rule is a text of the page
        self.counts.clear()
        self.tried.clear()
        return told

    def end(self) -> None:
        """The call is over; later requests are the page's own."""
        self.acts = False

    def told(self, method: str, url: str, hint: Hint) -> None:
        """The browser has begun a request."""
        self.hints[method, url] = hint
        self.hinted.set()

    def moves(self, head: Head) -> None:
        """A document loads. If it is that of a tab, the page that was acted on is gone."""
        hint = self.hints.get((head.method, head.url))
        if head.headers.get("sec-fetch-dest", "document") == "document" and (hint is None or hint.main):
            self.moved = True

    def answer(self, number: int, yes: bool) -> None:
        """Pass on the person's answer to request `number`, unless the page has given it up."""
        for told, answer in self.asked:
            if told["number"] == number and not answer.done():
                answer.set_result(yes)
        self._forget(number)

    def refuse_all(self) -> None:
        """Refuse every open question."""
        for told, _ in list(self.asked):
            self.answer(told["number"], yes=False)

    def _forget(self, number: int) -> None:
        self.asked = [each for each in self.asked if each[0]["number"] != number]
        if not self.asked:
            self.changed.clear()

    def by_rule(self, head: Head) -> bool:
        """Whether a rule allows it."""
        allowed = any(rule.matches(head.method, head.url) for rule in self.allow)
        self.counts["allowed_by_rule"] += allowed
        return allowed

    async def passes(self, head: Head, body: bytes | None) -> bool:
        """Whether a person allows a request that no rule allows. `body` None: it is too long."""
        shown = f"more than {MAX_SHOWN} bytes: too long to be asked about".encode() if body is None else body
        told = tell(head.method, head.url, head.headers.get("content-type", "") if body else "", shown)
        self.counts["held"] += 1  # corrected if it is allowed
        if not head.safe:
            self.tried[rule_for(head.method, head.url)] += 1
        if not await self._concerns(head, told):
            return False
        if not self.asks:
            self.held = self.held or told
        elif body is not None and await self._asks(told):
            self.counts["held"] -= 1
            self.counts["allowed_by_person"] += 1
            return True
        return False

    def waits(self, head: Head) -> bool:
        """Whether a request with a safe method is held since the name of what was pressed is suspicious."""
        if not (self.wary and self.acts and not self.moved and not self.answered):
            return False
        hint = self.hints.get((head.method, head.url))
        return head.navigates or (hint is not None and hint.kind in ("xhr", "fetch"))

    async def _concerns(self, head: Head, told: dict[str, Any]) -> bool:
        """Whether the present act caused it. Remembers requests that the page sends by itself."""
        key = (head.method, head.url, told["digest"])
        if self.acts and key not in self.own and not any(rule.matches(head.method, head.url) for rule in self.block):
            hint = await self._hint(head)
            if hint.kind == "ping":  # a beacon, usually telemetry
                return False
            if not self.moved or (head.navigates and hint.main and not self.answered):
                return True
        if not head.navigates and (self.moved or not self.acted):
            self.own.add(key)
        return False

    async def _hint(self, head: Head) -> Hint:
        """The browser's hint if it arrives in time, else a guess."""
        if head.method == WEBSOCKET:
            return Hint("websocket", False)
        try:
            async with asyncio.timeout(_HINT_S):
                while (head.method, head.url) not in self.hints:
                    self.hinted.clear()
                    await self.hinted.wait()
        except TimeoutError:
            ping = "ping-to" in head.headers or head.headers.get("content-type") == "application/csp-report"
            return Hint("ping" if ping else "other", head.headers.get("sec-fetch-dest", "document") == "document")
        return self.hints[head.method, head.url]

    async def _asks(self, told: dict[str, Any]) -> bool:
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.number += 1
        self.asked.append((told | {"number": self.number}, answer))
        number = self.number
        self.changed.set()
        try:
            yes = await answer
        finally:  # also if the page has given up
            self._forget(number)
        self.answered = self.answered or yes
        return yes
