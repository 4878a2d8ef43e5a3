"""One live session of an environment of the user's, a class of the contract in `contract.py`, in this process.

An exception in `step` is a fault of the class: it ends the run and is reported with file and line. An exception in
`reset` breaks only the task, as everywhere. A failure of the world is data: an `error_kind` of
`error_kinds.WORLD_FAULTS` on the step, or `agentq.EnvError`.
"""

from __future__ import annotations

import re
import weakref
from dataclasses import dataclass
from functools import partial
from typing import Any

from agentq.envs import contract, instances, makers
from agentq.envs.calls import CallThread
from agentq.envs.instances import Make, told, ways_back
from agentq.envs.replies import AboutReply, AdviceReply, R, ResetReply, StepReply, read
from agentq.envs.text_env import TextEnv, asked
from agentq.errors import AgentqError, ConfigError, EnvError
from agentq.types import EnvAction, Observation, StepResult

_WAITS = re.compile("event loop|asyncio loop")  # of asyncio, and of Playwright: only a thread without one may wait


def session(what: str | Make, own: Any, thread: CallThread | None) -> OwnEnv:
    """A session of an instance, which can go back if its class can."""
    return (OwnEnv if ways_back(own) is None else RestorableOwnEnv)(what, own, thread)


class OwnEnv(TextEnv):
    """One live session of a class of the contract; `own` is the instance, `about` its description of itself.

    `what`: the name of the class or function that makes an instance, or that itself. The session has this name, or the
    name that the class gives. `thread`: where a blocking instance is called. `lent`: an instance that is not closed
    here.
    """

    def __init__(self, what: str | Make, own: Any, thread: CallThread | None = None) -> None:
        self.what, self.own, self.thread, self._closed = what, own, thread, False
        self.lent: Any = None
        if thread is not None:
            weakref.finalize(self, thread.end)
        told = contract.about(own)
        name = what if isinstance(what, str) else told["name"]
        try:
            self.about = read(AboutReply, {**told, "name": name})
        except ValueError as error:
            raise ConfigError(f"{name} must have attributes as in agentq.envs.contract; got {error}") from None
        super().__init__(name, self.about.max_steps, self.about.tools)
        self.blocking = bool(getattr(own, "blocking", False))

    def start(self, seed: int) -> ResetReply:
        """The beginning of the episode of `seed`. Raises EnvError with the line that failed."""
        begun = self._read(ResetReply, "reset", self._call("reset", seed, raised=EnvError))
        contract.check_tools(self.own, self.about.tools)
        return begun

    def close(self) -> None:
        """Let the environment tidy up, once. It is not waited for if it still is in a call that was given up."""
        super().close()
        mine, self._closed = not self._closed and self.own is not self.lent, True
        if mine and self.thread is not None and self.thread.busy:
            self.thread.submit(partial(instances.close, self.own))
        elif mine:
            instances.close(self.own, self.thread)

    def _hint(self) -> AdviceReply:
        return self._read(AdviceReply, "expert", self._call("expert"))

    def _act(self, action: EnvAction) -> StepResult:
        return self._told(action, self._read(StepReply, "step", self._call("step", *asked(action).values())))

    def _call(self, method: str, *args: Any, of: Any = None, raised: type[AgentqError] = ConfigError) -> Any:
        """The result of a method. Raises `raised` with the line that failed; agentq's exceptions pass through.

        `of`: a copy in place of this session's instance. After sys.exit it is a ConfigError.
        """
        called = getattr(self.own if of is None else of, method)
        try:
            return called(*args) if self.thread is None else self.thread.run(partial(called, *args))
        except (AgentqError, MemoryError):
            raise
        except Exception as error:
            waits = "; give the class `blocking = True`" if self.thread is None and _WAITS.search(str(error)) else ""
            raise raised(told(error, called) + waits) from error
        except SystemExit as error:
            raise ConfigError(told(error, called)) from error

    def _read(self, kind: type[R], method: str, found: Any) -> R:
        try:
            return read(kind, contract.plain(found))
        except ValueError as error:
            place = contract.place(getattr(self.own, method))
            raise ConfigError(f"{place}{method} must return what docs/protocol.md names; got {error}") from None


@dataclass(frozen=True, slots=True)
class OwnSnapshot:
    """A state of a RestorableOwnEnv: the environment's own token, and the state of the episode."""

    env: str
    token: Any
    shown: Observation
    last: Observation
    steps: int
    over: bool


class RestorableOwnEnv(OwnEnv):
    """An OwnEnv of a class with `snapshot` and `restore`, or `fork`; either gives what search needs."""

    restored = "exact"

    def snapshot(self) -> OwnSnapshot:
        """See `agentq.envs.protocol.Restorable`."""
        self._check_begun()
        if ways_back(self.own) == "fork":
            token: Any = instances.Copy(self._forked(self.own))
        else:
            token = self._apart("snapshot", self._call("snapshot"))
        return OwnSnapshot(self.name, token, self._shown, self._last, self._steps, self._over)

    def restore(self, token: OwnSnapshot) -> Observation:
        """Go back to a snapshot. Raises ConfigError for another environment's."""
        if token.env != self.name:
            raise ConfigError(f"snapshot must be of '{self.name}'; got one of '{token.env}'")
        if isinstance(token.token, instances.Copy):
            left, self.own = self.own, self._forked(token.token.own)
            if left is not self.lent:
                instances.close(left, self.thread)
        else:
            self._call("restore", token.token)
            self._apart("restore", token.token)
        self._go_on(token)
        return self._last

    def fork(self) -> RestorableOwnEnv:
        """An independent session in the same state."""
        begun = self._steps >= 0
        if begun and ways_back(self.own) == "fork":
            twin = RestorableOwnEnv(self.what, self._forked(self.own), CallThread() if self.thread else None)
            twin._go_on(OwnSnapshot(self.name, None, self._shown, self._last, self._steps, self._over))
            return twin
        own, thread = makers.new(self.what)
        if own is self.own:
            raise ConfigError("a second session must have a separate instance; got the same one: give the class")
        twin = RestorableOwnEnv(self.what, own, thread)
        if begun:
            twin.restore(self.snapshot())
        return twin

    def _forked(self, own: Any) -> Any:
        return self._apart("fork", contract.checked(self._call("fork", of=own), self.name), own)

    def _apart(self, method: str, kept: Any, own: Any = None) -> Any:
        """`kept`, unless it is the state itself of an instance, which later steps would change."""
        own = self.own if own is None else own
        if kept is own or kept is getattr(own, "__dict__", own):
            must = "set a copy of the token" if method == "restore" else "return a copy"
            place = contract.place(getattr(own, method))
            raise ConfigError(f"{place}{method} must {must}, as copy.deepcopy makes; got the environment's own state")
        return kept

    def _go_on(self, state: OwnSnapshot) -> None:
        self._shown, self._last, self._steps, self._over = state.shown, state.last, state.steps, state.over
