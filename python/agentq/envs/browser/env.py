"""The Env over Chromium: one browser session of a pool, one host. Same tasks, commands and texts as in process.

State is kept here, not in the browser: `_state` is where the episode is, `_live` what the session shows. Where they
differ (after restore and fork, or when a worker was lost) the session is brought back, the cheapest way first:

    token    the server's memory of the visitor copied, the url (or its form) sent again, the fields filled again
    storage  cookies and storage of the context, the url, the fields; only while nothing unsafe was sent since
    replay   the actions from reset on, every page checked

Each way is checked by the page's fingerprint and recorded as a Return in `log`, beside one StepLog a step.
"""

from __future__ import annotations

import base64
import random
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from agentq.envs.browser.budget import fit
from agentq.envs.browser.hosts import Host, Start
from agentq.envs.browser.pool import BrowserPool, RemoteSession
from agentq.envs.browser.states import Document, Lineage, Return, Snapshot, StepLog, page_print
from agentq.envs.browser.views import command_call, fill_calls, read_view
from agentq.envs.protocol import Ability
from agentq.envs.tab import ActionError, View
from agentq.errors import ConfigError, EnvError
from agentq.types import Command, EnvAction, Observation, StepResult, Task

MAX_TOKENS = 4000
_ATTEMPTS = 2


class BrowserEnv:
    """One live session; see `agentq.envs.protocol.Env`. `max_tokens` bounds the text of an observation."""

    abilities = Ability.RESTORE | Ability.FORK

    def __init__(self, host: Host, pool: BrowserPool, max_tokens: int = MAX_TOKENS) -> None:
        if max_tokens < 1:
            raise ConfigError(f"max_tokens must be at least 1; got {max_tokens}")
        self.name, self.max_steps, self.max_tokens = host.name, host.max_steps, max_tokens
        self.log: list[StepLog | Return] = []
        self._host, self._pool = host, pool
        self._session: RemoteSession | None = None
        self._state: Snapshot | None = None
        self._live: Snapshot | None = None
        self._visitor = ""
        self._lineage = Lineage()
        self._unsafe = 0  # of the session, as last told
        self._astray = False  # the last restore failed

    @property
    def view(self) -> View:
        """The page, its url and what its controls hold now."""
        return self._present().view

    def random_query(self, rng: random.Random) -> str:
        """Something a visitor of this site may search for."""
        return self._host.random_query(rng)

    def reset(self, task: Task) -> Observation:
        """Start `task` afresh. Raises ConfigError for another environment's task, MissingExtra without a browser."""
        self.log.clear()
        self._astray = False
        for attempt in range(_ATTEMPTS):
            try:
                self._state = self._live = self._start(task)
                return self._state.observation
            except EnvError:
                self._drop()
                if attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError

    def step(self, env_action: EnvAction | None) -> StepResult:
        """Act; what the page does not take, and a page that never answers, is data on the result."""
        state, begun = self._present(), time.perf_counter()
        if state.over:
            raise EnvError("step needs a running episode; this one is over, call reset")
        if self._astray:
            message = "the page of the snapshot was not reached again"
            self._state = replace(state, over=True)
            return StepResult(state.observation, truncated=True, error_kind="replay_mismatch", error_message=message)
        lost: list[str] = []
        reply: dict[str, Any] = {}
        view, kind, message = state.view, None, ""
        try:
            if env_action is None:
                raise ActionError("unreadable", "unreadable action")
            view, call = command_call(self._host, state.view, env_action)
            if call is not None:
                reply = self._carry_out(state, call, lost)
                view = self._view(reply, view)
            if reply.get("refused"):
                raise ActionError(*reply["refused"])
        except ActionError as error:
            kind, message = error.kind, str(error)
        note = self._note(state, env_action, message)
        if kind is None and view is not state.view and view.status >= 400:
            kind, message = f"http_{view.status}", view.text().split("\n", 1)[0]
        return self._finish(state, env_action, view, reply, note, kind, message, begun, lost)

    def snapshot(self) -> Snapshot:
        """The present state, immutable. Asks the browser only where the site offers no token."""
        state = self._present()
        if state.memory is None and state.storage is None and self._live is state and self._session is not None:
            state = self._state = self._live = replace(state, storage=self._session.call("storage"))
        return state

    def restore(self, token: Snapshot) -> Observation:
        """Go back to a snapshot; `log[-1]` says by which way. If none leads there, the next step says so and ends."""
        if token.env != self.name:
            raise ConfigError(f"snapshot must be of '{self.name}'; got one of '{token.env}'")
        self._state = token
        self._astray = self._live is not token and not token.over and self._bring(token).outcome == "failed"
        return token.observation

    def fork(self) -> BrowserEnv:
        """An independent session in the same state; it opens when it is first used."""
        twin = BrowserEnv(self._host, self._pool, self.max_tokens)
        twin._state = self.snapshot() if self._state is not None else None
        return twin

    def screenshot(self) -> bytes:
        """The viewport as a PNG."""
        self._sync(self._present())
        return base64.b64decode(self._remote().call("screenshot"))

    def close(self) -> None:
        """Release the session."""
        self._drop()
        self._state = None

    def __del__(self) -> None:
        if self._session is not None:
            self._session.abandon()

    # One step.

    def _carry_out(self, state: Snapshot, call: tuple[str, dict[str, Any]], lost: list[str]) -> dict[str, Any]:
        """The browser's reply. A worker that is lost on the way is replaced and the call made again, once."""
        for _ in range(_ATTEMPTS if self._host.repeatable else 1):
            try:
                self._sync(state)
                reply: dict[str, Any] = self._remote().call(call[0], **call[1])
                return reply
            except EnvError as error:
                lost.append(str(error))
                self._drop()
        raise ActionError("browser_lost", "the page does not answer")

    def _note(self, state: Snapshot, action: EnvAction | None, message: str) -> str:
        if message:
            return f"\nerror {message}"
        if action is not None and action.command is Command.ASK_USER:
            return f"\nuser {self._host.answer(state.task, action.text or '')}"
        return ""

    def _finish(
        self,
        state: Snapshot,
        action: EnvAction | None,
        view: View,
        reply: dict[str, Any],
        note: str,
        kind: str | None,
        message: str,
        begun: float,
        lost: list[str],
    ) -> StepResult:
        steps = state.steps + 1
        looked = "lines" in reply
        memory = self._host.memory(self._visitor) if looked else state.memory
        stopped = action is not None and action.command is Command.STOP
        verdict = self._host.judge(state.task, memory, reply.get("probe"), stopped)
        truncated = not verdict.terminated and steps >= self.max_steps
        lines, cut = fit(view.text().split("\n"), self.max_tokens)
        after = replace(
            state,
            view=view,
            steps=steps,
            over=verdict.terminated or truncated,
            observation=Observation("\n".join(lines) + note, view.url),
            document=self._document(state, reply) if looked else state.document,
            memory=memory,
            lineage=self._lineage,
            unsafe=self._lineage.unsafe,
            storage=None if looked else state.storage,
            action=action,
            parent=state,
        )
        if looked or self._live is state:
            self._live = after
        self._state = after
        settled = reply.get("settle", {"rule": "", "ms": 0.0})
        blocked, dialogs = tuple(reply.get("blocked", ())), tuple(reply.get("dialogs", ()))
        ms = round((time.perf_counter() - begun) * 1000, 1)
        self.log.append(StepLog(str(action), ms, settled["rule"], settled["ms"], cut, blocked, dialogs, tuple(lost)))
        reward, success = (verdict.reward, verdict.success) if verdict.terminated else (0.0, False)
        return StepResult(after.observation, reward, verdict.terminated, truncated, success, kind, message)

    def _document(self, state: Snapshot, reply: dict[str, Any]) -> Document:
        if not reply["status"]:
            return replace(state.document, url=reply["url"]) if state.document.post is None else state.document
        return Document(reply["url"], reply["post"], state.memory if reply["post"] is not None else None)

    def _present(self) -> Snapshot:
        if self._state is None:
            raise EnvError("the environment needs a session; call reset first")
        return self._state
