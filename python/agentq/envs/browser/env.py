"""The Env over Chromium: same tasks, commands and texts as in process.

The state of the episode is kept here, not in the browser; drive.py tracks what the browser shows and brings it to a
state. So a session can be restored, forked, or lost with its worker while the episode goes on.
"""

from __future__ import annotations

import base64
import contextlib
import random
import time
from collections.abc import Mapping
from dataclasses import replace

from agentq.envs.browser.budget import MAX_TOKENS, fit
from agentq.envs.browser.drive import Driver, Reply
from agentq.envs.browser.guard import Allows, Guard, final_step
from agentq.envs.browser.hosts import Host
from agentq.envs.browser.outgoing import OutgoingRequest
from agentq.envs.browser.pool import BrowserPool
from agentq.envs.browser.secret import Secret
from agentq.envs.browser.states import BrowserSnapshot, Return, StepLog
from agentq.envs.browser.views import command_call
from agentq.envs.browser.whole import WholeView
from agentq.envs.page import unbroken
from agentq.envs.tab import ActionError, View
from agentq.errors import ConfigError, EnvError
from agentq.types import Command, EnvAction, Observation, StepResult, Task

MAX_REPEATS = 5  # ours


class BrowserEnv:
    """One live session; see `agentq.envs.protocol.Env`.

    `log` has a StepLog for each step of the episode and a Return for each way back, in order.

    Args:
        host: the site.
        pool: opens its pages.
        max_tokens: bound on the text of an observation, at least 1.
        max_repeats: if the same action leaves the page unchanged so many times in a row, the episode is truncated with
            error_kind `loop`; at least 2, or 0 for no limit.
        secrets: values that the agent may type without knowing them: `TYPE [3] <secret:NAME>`.
        guard: holds requests of pages. A step that would send one ends the episode with error_kind `held` and sends
            nothing; `carry_out` then does the step. A step that the user has refused fails with `refused`.
        pictures: whether the last observation of an episode has a screenshot. Secrets are not masked in it.
    """

    blocking = True

    def __init__(
        self,
        host: Host,
        pool: BrowserPool,
        max_tokens: int = MAX_TOKENS,
        *,
        max_repeats: int = MAX_REPEATS,
        secrets: Mapping[str, Secret] | None = None,
        guard: Guard | None = None,
        pictures: bool = False,
    ) -> None:
        if max_tokens < 1:
            raise ConfigError(f"max_tokens must be at least 1; got {max_tokens}")
        if max_repeats < 2 and max_repeats != 0:
            raise ConfigError(f"max_repeats must be at least 2, or 0 for no limit; got {max_repeats}")
        self.name, self.max_steps = host.name, host.max_steps
        self.max_tokens, self.max_repeats = max_tokens, max_repeats
        self.guard, self.pictures = guard, pictures
        self.screenshots = self.marks = False  # whether each observation has a picture of its page; one with marks
        self._driver = Driver(host, pool, secrets or {}, guard)
        self._state: BrowserSnapshot | None = None
        self._astray = False  # the last restore failed

    @property
    def view(self) -> View:
        """The page, its url and what its controls hold now."""
        return self._present().view

    @property
    def done(self) -> tuple[EnvAction, ...]:
        """The actions that the page has accepted since reset, in order."""
        return tuple(state.action for state in self._present().path() if state.action is not None)

    @property
    def log(self) -> list[StepLog | Return]:
        """What happened since reset."""
        return self._driver.log

    @property
    def restored(self) -> str:
        """The outcome of the last restore."""
        return next((entry.outcome for entry in reversed(self.log) if isinstance(entry, Return)), "exact")

    def random_query(self, rng: random.Random) -> str:
        """Something a visitor of this site may search for."""
        return self._driver.host.random_query(rng)

    def reset(self, task: Task) -> Observation:
        """Start `task`. Raises ConfigError for another environment's task, MissingExtra without a browser."""
        self.log.clear()
        self._astray = False
        state = self._driver.start(task, self.name)
        self.max_steps = self._driver.host.max_steps
        text, picture = self._text(state.view)[0], self._driver.picture(self.screenshots, self.marks)
        self._state = self._driver.live = replace(state, observation=Observation(text, state.view.url, picture=picture))
        return self._state.observation

    def step(self, env_action: EnvAction | None) -> StepResult:
        """Act. A refused action, and a page that never answers, are data on the result."""
        state, begun = self._present(), time.perf_counter()
        if state.over:
            raise EnvError("step needs a running episode; this one is over, call reset")
        if self._astray:
            message = "the page of the snapshot was not reached again"
            self._state = replace(state, over=True)
            return StepResult(state.observation, truncated=True, error_kind="replay_mismatch", error_message=message)
        lost: list[str] = []
        reply: Reply = {}
        view, kind, message, held = state.view, None, "", None
        sent = len(self.guard.sent) if self.guard is not None else 0
        try:
            if env_action is None:
                raise ActionError("unreadable", "unreadable action")
            view, call = command_call(self._driver.host, state.view, env_action)
            if call is None and self._driver.moving:
                call = ("observe", {})  # the page has changed since it was read
            if call is not None:
                reply = self._driver.call(state, self._driver.guarded(call, state.view, env_action), lost)
                reply = self._asked(reply, state.view, env_action, lost)
                view = self._driver.look(reply, view)
            if reply.get("held"):
                held = final_step(state.view, env_action, OutgoingRequest.read(reply["held"]))
            if held is not None and self.guard is not None and held in self.guard.refused:
                held = None
                raise ActionError("refused", "the user does not allow this step")
            if reply.get("refused"):
                raise ActionError(*reply["refused"])
        except ActionError as error:
            kind, message = error.kind, str(error)
        if held is not None:
            view, kind, message = state.view, "held", str(held)
        note = "".join(f"\nnote {unbroken(said)}" for said in reply.get("said", ()))
        note += self._note(state, env_action, kind, message)
        after, cut = self._after(state, env_action, view, reply, note)
        committed = self.guard is not None and len(self.guard.sent) > sent
        after = replace(after, held=held, committed=state.committed + committed)
        if kind is None and reply and view.status >= 400:
            kind, message = f"http_{view.status}", view.text().split("\n", 1)[0]
        self._record(env_action, reply, cut, begun, lost)
        return self._result(after, env_action, reply, kind, message)

    @property
    def held(self) -> BrowserSnapshot | None:
        """The present state if its last step is held, for `carry_out`."""
        return self._state if self._state is not None and self._state.held is not None else None

    def carry_out(self, held: BrowserSnapshot, allows: Allows) -> StepResult:
        """Do the step that is held: from its page, once, and never in a replay.

        Each request that it sends waits for `allows`. After a yes the request is sent and recorded in `guard.sent`. The
        episode then continues, with its budget of steps renewed. If the page that the user saw is not reached again,
        nothing is done (`replay_mismatch`).
        """
        if held.parent is None or held.held is None or self.guard is None:
            raise ConfigError("carry_out must be given a state that is held")
        self.restore(held.parent)
        with self.guard.lifted(allows):
            result = self.step(held.held.action)
        self._go_on()
        return result

    def snapshot(self) -> BrowserSnapshot:
        """The present state, immutable. Asks the browser only if neither token nor replay is exact."""
        state = self._present()
        exact = state.memory is not None or self._driver.host.repeatable
        if not exact and state.storage is None and self._driver.live is state:
            state = self._state = self._driver.live = replace(state, storage=self._driver.storage())
        return state

    def restore(self, token: BrowserSnapshot) -> Observation:
        """Go back to a snapshot; `log[-1]` says by which way. If none succeeds, the next step ends the episode."""
        if token.env != self.name:
            raise ConfigError(f"snapshot must be of '{self.name}'; got one of '{token.env}'")
        self._state = token
        live = self._driver.live is token or token.over  # nothing can be done in an episode that is over
        self._astray = not live and self._driver.bring(token).outcome == "failed"
        return token.observation

    def fork(self) -> BrowserEnv:
        """An independent session in the same state; it is opened at its first use."""
        driver, limits = self._driver, {"max_tokens": self.max_tokens, "max_repeats": self.max_repeats}
        twin = BrowserEnv(
            driver.host, driver.pool, secrets=driver.secrets, guard=self.guard, pictures=self.pictures, **limits
        )
        twin.screenshots, twin.marks = self.screenshots, self.marks
        twin._state = self.snapshot() if self._state is not None else None
        return twin

    def screenshot(self) -> bytes:
        """The viewport as a PNG."""
        return base64.b64decode(self._driver.screenshot(self._present()))

    def close(self) -> None:
        """Release the session."""
        self._driver.drop()
        self._state = None

    def __del__(self) -> None:
        if "_driver" in self.__dict__:
            self._driver.abandon()

    def _text(self, view: View, before: View | None = None) -> tuple[str, int]:
        """The observation's text, and how many lines the token budget left out; `before` was shown before."""
        if isinstance(view, WholeView):
            return view.within(self.max_tokens, before)
        lines, cut = fit(view.text().split("\n"), self.max_tokens)
        return "\n".join(lines), cut

    def _go_on(self) -> None:
        """Count the episode's steps and repetitions from here on."""
        state = self._present()
        self._state = replace(state, steps=0, repeats=0, over=False)
        if self._driver.live is state:
            self._driver.live = self._state

    def _asked(self, reply: Reply, view: View, action: EnvAction, lost: list[str]) -> Reply:
        """The reply once the user has been asked about each request that waits. Raises ActionError with all refused."""
        answers = []
        while "asked" in reply:
            assert self.guard is not None
            answers.append(self.guard.answer(final_step(view, action, OutgoingRequest.read(reply["asked"]))))
            reply = self._driver.answer(reply["asked"]["number"], answers[-1], lost)
        if answers and not any(answers):
            self._driver.look(reply, view)
            raise ActionError("refused", "the user does not allow this step")
        return reply

    def _note(self, state: BrowserSnapshot, action: EnvAction | None, kind: str | None, message: str) -> str:
        if message:
            return f"\n{'held' if kind == 'held' else 'error'} {unbroken(message)}"
        if action is not None and action.command is Command.ASK_USER:
            return f"\nuser {self._driver.host.answer(state.task, action.text or '')}"
        return ""

    def _after(
        self, state: BrowserSnapshot, action: EnvAction | None, view: View, reply: Reply, note: str
    ) -> tuple[BrowserSnapshot, int]:
        """The state after a step, and how many lines were cut."""
        text, cut = self._text(view, state.view)
        same = "lines" not in reply
        picture = state.observation.picture if same else self._driver.picture(self.screenshots, self.marks)
        after = replace(
            state,
            view=view,
            steps=state.steps + 1,
            observation=Observation(text + note, view.url, picture=picture),
            action=None if view is state.view else action,  # an action without effect is not repeated in a replay
            taken=str(action),
            repeats=state.repeats_after(action, view),
            parent=state,
        )
        if not same:
            memory, lineage = self._driver.memory, self._driver.lineage
            now = state.document_after(reply)
            after = replace(after, document=now, memory=memory, lineage=lineage, unsafe=lineage.unsafe, storage=None)
        return after, cut

    def _result(
        self, after: BrowserSnapshot, action: EnvAction | None, reply: Reply, kind: str | None, message: str
    ) -> StepResult:
        """The verdict on `after`, which becomes the present state."""
        stopped = action is not None and action.command is Command.STOP
        verdict = self._driver.host.judge(after.task, after.memory, reply.get("probe"), stopped or kind == "held")
        loop = not verdict.terminated and 0 < self.max_repeats <= after.repeats
        if loop:
            kind, message = "loop", f"the same action changed nothing {after.repeats} times in a row"
        truncated = not verdict.terminated and (loop or after.steps >= self.max_steps)
        after = replace(after, over=verdict.terminated or truncated)
        if "lines" in reply or (self._driver.live is after.parent and after.held is None):
            self._driver.live = after
        self._state = after
        reward, success = (verdict.reward, verdict.success) if verdict.terminated else (0.0, False)
        shown = after.observation
        if self.pictures and verdict.terminated and self._driver.live is not None:
            with contextlib.suppress(EnvError):  # the judge then reads only the text
                shown = replace(shown, screenshot=base64.b64decode(self._driver.screenshot(self._driver.live)))
        return StepResult(shown, reward, verdict.terminated, truncated, success, kind, message)

    def _record(self, action: EnvAction | None, reply: Reply, cut: int, begun: float, lost: list[str]) -> None:
        settled = reply.get("settle", {"rule": "", "ms": 0.0})
        blocked, dialogs = tuple(reply.get("blocked", ())), tuple(reply.get("dialogs", ()))
        ms = round((time.perf_counter() - begun) * 1000, 1)
        self.log.append(StepLog(str(action), ms, settled["rule"], settled["ms"], cut, blocked, dialogs, tuple(lost)))

    def _present(self) -> BrowserSnapshot:
        if self._state is None:
            raise EnvError("the environment needs a session; call reset first")
        return self._state
