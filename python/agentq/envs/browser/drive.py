"""Tracks the state that a browser session shows, and brings it to another state, by the cheapest way first.

    token    copy the server's memory of the visitor, put the document back (if it has a script, request its url or form
             again), fill the fields again
    storage  cookies and storage of the context, the url, the fields; only if nothing unsafe was sent since, or replay
             is forbidden
    resume   the page after the last step that was allowed, by storage, then the steps since
    replay   repeat the actions from reset and check every page; never past a step that the user allowed once

Each way is checked by the page's fingerprint. A Return in `log` records which way succeeded, and its outcome.
"""

from __future__ import annotations

import base64
import itertools
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from agentq.envs.browser.guard import Guard
from agentq.envs.browser.hosts import Host, Start
from agentq.envs.browser.pool import BrowserPool, RemoteSession
from agentq.envs.browser.secret import Secret, check_secrets, names
from agentq.envs.browser.states import (
    BrowserSnapshot,
    Document,
    Lineage,
    Return,
    StepLog,
    base_of,
    difference,
    page_print,
)
from agentq.envs.browser.views import Call, command_call, fill_calls, read_view, why_not_loaded
from agentq.envs.tab import VIEWPORT_LINES, ActionError, View
from agentq.errors import EnvError
from agentq.picture import Picture
from agentq.types import EnvAction, Observation, Task

Reply = dict[str, Any]
_ATTEMPTS = 2
_STUCK = "the browser was lost; its page is not reached again without a reset, since requests may not be sent twice"


class Driver:
    """`live` is the state that the session shows; None if unknown."""

    def __init__(
        self, host: Host, pool: BrowserPool, secrets: Mapping[str, Secret], guard: Guard | None = None
    ) -> None:
        self.host, self.pool, self.secrets, self.guard = host, pool, secrets, guard
        self._given = check_secrets(secrets, host.allow)
        self.log: list[StepLog | Return] = []
        self.live: BrowserSnapshot | None = None
        self.session: RemoteSession | None = None
        self.lineage = Lineage()
        self._visitor = ""
        self._unsafe = 0  # requests of the session, as last reported
        self._lost = False  # the browser was lost, and no way back has been gone since

    @property
    def memory(self) -> Any:
        """What the server remembers of the visitor now."""
        return self.host.memory(self._visitor)

    @property
    def moving(self) -> bool:
        """Whether the page, read in full, was still changing when it was read last."""
        last = next((entry for entry in reversed(self.log) if isinstance(entry, StepLog) and entry.rule), None)
        return self.host.full and last is not None and last.rule == "cap"

    def start(self, task: Task, name: str) -> BrowserSnapshot:
        """The first page of `task`, in a session that shares nothing with earlier ones. Tries twice."""
        self._lost = False
        start = self.host.start(task)
        for attempt in range(_ATTEMPTS):
            try:
                view, reply = self._start(start if attempt == 0 else self.host.start(task))
                break
            except EnvError:
                self.drop()
                if attempt == _ATTEMPTS - 1:
                    raise
        document, shown = Document(reply["url"], html=reply["html"]), Observation("", view.url)
        self.live = BrowserSnapshot(name, task, view, 0, False, shown, document, self.memory, self.lineage, 0)
        settled, told = reply["settle"], (tuple(reply["blocked"]), tuple(reply["dialogs"]))
        self.log.append(StepLog("reset", 0.0, settled["rule"], settled["ms"], 0, *told))
        return self.live

    def call(self, state: BrowserSnapshot, call: Call, lost: list[str]) -> Reply:
        """The browser's reply at `state`. A lost worker is replaced and, if that is safe, the call is repeated.

        Raises ActionError if the browser does not answer; `lost` then says why.
        """
        once = call[1].get("asks", False) or not self.host.repeatable
        for _ in range(1 if once else _ATTEMPTS):
            try:
                self.sync(state)
                reply: Reply = self._call(*call)
                return reply
            except EnvError as error:
                lost.append(str(error))
                self.drop()
                self._lost = True
        stuck = not self._may_repeat(state) and next(self._ways(state, False), None) is None
        raise ActionError("browser_lost", _STUCK if stuck else "the page does not answer")

    def guarded(self, call: Call, view: View, action: EnvAction) -> Call:
        """The call, with what the session's gate must know about the action."""
        if self.guard is None or call[0] != "act":
            return call
        return call[0], call[1] | {"asks": self.guard.asks is not None, "wary": self.guard.wary(view, action)}

    def answer(self, number: int, yes: bool, lost: list[str]) -> Reply:
        """The browser's reply after the user's answer. Raises ActionError if the browser does not answer."""
        try:
            reply: Reply = self._call("answer", {"number": number, "yes": yes})
            return reply
        except EnvError as error:
            lost.append(str(error))
            self.drop()
        raise ActionError("browser_lost", "the page does not answer")

    def look(self, reply: Reply, before: View | None) -> View:
        """The view in a reply; unsafe requests are counted in the lineage."""
        self.lineage.unsafe += reply.get("unsafe", self._unsafe) - self._unsafe
        self._unsafe = reply.get("unsafe", self._unsafe)
        if "lines" not in reply:
            assert before is not None
            return before
        view = read_view(reply, self.host.shown_url(reply["url"]), full=self.host.full)
        if before is None or reply["new"] or self.host.full:
            return view
        return replace(view, scroll=min(before.scroll, max(0, len(view.page.lines) - VIEWPORT_LINES)))

    def sync(self, state: BrowserSnapshot) -> None:
        """Bring the session to `state` unless it is there already. Raises EnvError if no way succeeds."""
        replays = not self._lost or self._may_repeat(state)
        if self.live is not state and self.bring(state, replays=replays).outcome == "failed":
            raise EnvError("the browser must return to the page; every way failed")

    def bring(self, state: BrowserSnapshot, *, replays: bool = True) -> Return:
        """Bring the session to `state`. `replays`: whether the actions that led there may be repeated."""
        begun, tried = time.perf_counter(), []
        found, outcome = "none", "failed"
        for way, would_be in self._ways(state, replays):
            try:
                view = getattr(self, f"_by_{way}")(state)
                if view is not None and page_print(view) == state.print:
                    found, outcome = way, would_be
                    break
                tried.append(way if view is None else f"{way}: {difference(state.view, view)}")
            except EnvError as error:
                tried.append(f"{way}: {error}")
                self.drop()
        self.live = None
        if outcome != "failed":
            self.live, self._lost = state, False
        back = Return(found, outcome, round((time.perf_counter() - begun) * 1000, 1), tuple(tried))
        self.log.append(back)
        return back

    def storage(self) -> Any:
        """Cookies and storage of the context; None if they contain a secret, since secrets are not kept."""
        storage = self._call("storage")
        return None if not storage or names(str(storage)) else storage

    def screenshot(self, state: BrowserSnapshot) -> str:
        """The viewport at `state` as a PNG, base64."""
        self.sync(state)
        return str(self._call("screenshot"))

    def picture(self, wanted: bool, marks: bool) -> Picture | None:
        """What the window shows, if `wanted` or with `marks`. None also behind a dialog, and without a browser."""
        try:
            shown = self._call("picture", {"marks": marks}) if wanted or marks else None
        except EnvError:
            shown = None
        if not shown:
            return None
        boxes = {int(number): (x, y, w, h) for number, (x, y, w, h) in shown["boxes"].items()}
        width, height = shown["size"]
        return Picture(base64.b64decode(shown["webp"]), (width, height), boxes, marks)

    def drop(self) -> None:
        """Release the session; its state can be rebuilt."""
        session, self.session, self.live = self.session, None, None
        self.host.dismiss(self._visitor)
        self._visitor = ""
        if session is not None:
            self._hear(session.close())

    def abandon(self) -> None:
        """Like drop, for a finalizer: the pool closes the session when it next opens one."""
        self.host.dismiss(self._visitor)
        if self.session is not None:
            self.session.abandon()

    def _may_repeat(self, state: BrowserSnapshot) -> bool:
        """Whether the actions that led to `state` may be repeated without a request for it."""
        return self.host.repeatable or self.guard is not None or state.unsafe == 0

    def _ways(self, state: BrowserSnapshot, replays: bool) -> Iterator[tuple[str, str]]:
        asked = state.document
        hides = names(f"{asked.url} {asked.post}") != []  # its request had a secret, which must be typed again
        if state.memory is not None and not hides:
            yield "token", "exact"
        unchanged = state.lineage.unsafe == state.unsafe or state.committed
        if state.storage is not None and unchanged and asked.post is None and not hides:
            yield "storage", "approximate"
        if state.committed and base_of(state) is not None:
            yield "resume", "approximate"
        if not state.committed and replays:
            yield "replay", "exact" if self.host.repeatable else "approximate"

    def _by_token(self, state: BrowserSnapshot) -> View | None:
        asked = state.document
        if self._visitor and asked.html and not names(asked.html):
            self.host.remember(self._visitor, state.memory)
            reply = self._call("put_back", {"url": asked.url, "html": asked.html, "fill": fill_calls(state.view)})
            if "lines" in reply and page_print(view := self.look(reply, state.view)) == state.print:
                return view
        start = self.host.resume(state.memory if asked.post is None else asked.before)
        reply = self._visit(replace(start, url=asked.url), asked.post, fill_calls(state.view))
        return self.look(reply, state.view) if "lines" in reply and self.memory == state.memory else None

    def _by_storage(self, state: BrowserSnapshot) -> View | None:
        self.drop()
        self.session, self.lineage = self._open(state.storage), state.lineage
        reply = self._visit(Start(state.document.url), None, fill_calls(state.view))
        return self.look(reply, state.view) if "lines" in reply else None

    def _by_resume(self, state: BrowserSnapshot) -> View | None:
        base = base_of(state)
        assert base is not None
        view, path = self._by_storage(base), state.path()
        return None if view is None else self._repeat(path[path.index(base) :], view)

    def _by_replay(self, state: BrowserSnapshot) -> View | None:
        return self._repeat(state.path(), self._start(self.host.start(state.task))[0])

    def _repeat(self, path: list[BrowserSnapshot], live: View) -> View | None:
        """What the actions of `path` lead to from its first page, `live`; None if they do not lead along it."""
        for before, after in itertools.pairwise(path):
            if page_print(live) != before.print:
                return None
            try:
                if after.action is not None:
                    shown = live
                    live, call = command_call(self.host, shown, after.action)
                    if call is not None:
                        live = self.look(self._call(*self.guarded(call, shown, after.action)), live)
            except ActionError:
                pass  # it was refused the first time, too
        return live

    def _start(self, start: Start) -> tuple[View, Reply]:
        if not self.host.repeatable:
            self.drop()  # a fresh context, which gets a fresh session on the server
        self.lineage, self._unsafe = Lineage(), 0 if self.session is None else self._unsafe
        reply = self._visit(start, None, [])
        if wrong := why_not_loaded(start.url, reply):
            raise EnvError(f"the first page must load; got {wrong}")
        return self.look(reply, None), reply

    def _visit(self, start: Start, post: str | None, fill: list[list[Any]]) -> Reply:
        self.host.dismiss(self._visitor)
        self._visitor = start.visitor
        args = {"cookies": start.cookies, "post": post, "fill": fill, "script": start.script}
        reply: Reply = self._call("visit", {"url": start.url, "in_place": start.in_place, **args})
        return reply

    def _call(self, call: str, args: dict[str, Any] | None = None) -> Any:
        if self.session is None:
            self.session = self._open(None)
        if call in ("visit", "put_back", "act", "answer"):
            self.live = None
        return self._hear(self.session.call(call, **(args or {})))

    def _hear(self, reply: Any) -> Any:
        """The reply, after its gate's counts are passed to the guard."""
        if self.guard is not None and isinstance(reply, dict) and "gate" in reply:
            self.guard.hear(reply.pop("gate"))
        return reply

    def _open(self, storage: Any) -> RemoteSession:
        self._unsafe = 0
        h, rules = self.host, None if self.guard is None else self.guard.rules
        how: dict[str, Any] = {"probe": h.probe, "quiet_ms": h.quiet_ms, "announces": h.announces, "full": h.full}
        return self.pool.open(h.allow, storage=storage or h.storage, secrets=self._given, rules=rules, **how)
