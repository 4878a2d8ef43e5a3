"""Environments of the user and of other packages, in this process: `FILE.py:FUNCTION`, `register`, entry points.

All are classes of the contract in `contract.py`. An exception in `step` is a fault of the class: it ends the run and is
reported with file and line. An exception in `reset` breaks only the task, as everywhere. A failure of the world is
data: an `error_kind` of `error_kinds.WORLD_FAULTS` on the step, or `agentq.EnvError`.
"""

from __future__ import annotations

import atexit
import re
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from agentq import plugins
from agentq.envs import contract, instances
from agentq.envs.calls import CallThread
from agentq.envs.contract import is_file
from agentq.envs.instances import Known, Make, told, ways_back
from agentq.envs.replies import AboutReply, AdviceReply, R, ResetReply, StepReply, read
from agentq.envs.text_env import EnvExpert, TextEnv, asked, tasks_by_reset
from agentq.errors import AgentqError, ConfigError, EnvError
from agentq.types import EnvAction, Observation, Split, StepResult, Task

__all__ = ["expert", "is_file", "is_registered", "knows", "make", "max_sessions", "names", "register", "tasks"]

_made, _here = dict[str, Make](), set[str]()  # what makes each name; the names that only this process knows
_known: dict[str, Known] = {}
_kept: dict[str, OwnEnv] = {}  # by name, a session that was asked something, for the next that is made
_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)*")
_WAITS = re.compile("event loop|asyncio loop")  # of asyncio, and of Playwright: only a thread without one may wait


def register(name: str, make: Make, *, here: bool = True) -> None:
    """See `agentq.envs.register`. Unless only `here`, every process that is asked for the name registers it."""
    if here and not _NAME.fullmatch(name):
        raise ConfigError(f"an environment's name must be of letters, digits and _ . - /; got '{name}'")
    if not callable(make):
        raise ConfigError(f"make must be a function that returns an environment; got {type(make).__name__}")
    _here.update([name] if here else [])
    _made[name] = make
    _known.pop(name, None)
    if (kept := _kept.pop(name, None)) is not None:
        kept.close()


def names() -> list[str]:
    """Names that are registered, and names of installed packages."""
    return sorted({*_made, *plugins.names("environments")})


def knows(name: str) -> bool:
    """Whether `name` is registered or belongs to an installed package."""
    return name in _made or name in plugins.names("environments")


def is_registered(name: str) -> bool:
    """Whether `name` is known in this process alone."""
    return name in _here


def make(what: str | Make, browser: object = None) -> OwnEnv:
    """A session; see `agentq.envs.make`. With a browser it is the same."""
    kept = _kept.pop(what, None) if isinstance(what, str) else None
    return _session(what, *_new(what)) if kept is None else kept


def given(own: Any) -> OwnEnv:
    """The only session of an instance, which its owner closes."""
    checked = contract.checked(own, "env")
    env = _session(lambda: own, checked, CallThread() if getattr(own, "blocking", False) else None)
    env.lent = own
    return env


def tasks(what: str | Make | OwnEnv, seeds: Sequence[int], split: Split) -> list[Task]:
    """Tasks by seed; see `agentq.envs.text_env.tasks_by_reset`. Each instruction of a name is asked for once."""
    known = _known.get(what) if isinstance(what, str) else None
    if known is not None and known.instructions.keys() >= set(seeds):
        return tasks_by_reset(known.about.name, seeds, split, known.about, known.instructions.__getitem__)
    with _asked(what) as env:
        known = _learnt(what, env)

        def instruction(seed: int) -> str:
            if seed not in known.instructions:
                known.instructions[seed] = env.start(seed).instruction
            return known.instructions[seed]

        return tasks_by_reset(known.about.name, seeds, split, known.about, instruction)


def expert(name: str) -> EnvExpert:
    """The environment's own expert. Raises ConfigError if it has none."""
    if name not in _known:
        with _asked(name) as env:
            _learnt(name, env)
    if not _known[name].expert:
        raise ConfigError(f"a scripted expert must be known for this; got {name}, which has no method expert()")
    return EnvExpert()


def max_sessions(what: str | Make) -> None:
    """Limited by memory only."""


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
        token = instances.Copy(self._forked(self.own)) if ways_back(self.own) == "fork" else self._call("snapshot")
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
        self._go_on(token)
        return self._last

    def fork(self) -> RestorableOwnEnv:
        """An independent session in the same state."""
        begun = self._steps >= 0
        if begun and ways_back(self.own) == "fork":
            twin = RestorableOwnEnv(self.what, self._forked(self.own), CallThread() if self.thread else None)
            twin._go_on(OwnSnapshot(self.name, None, self._shown, self._last, self._steps, self._over))
            return twin
        own, thread = _new(self.what)
        if own is self.own:
            raise ConfigError("a second session must have an instance of its own; got the same: give a class, not one")
        twin = RestorableOwnEnv(self.what, own, thread)
        if begun:
            twin.restore(self.snapshot())
        return twin

    def _forked(self, own: Any) -> Any:
        return contract.checked(self._call("fork", of=own), self.name)

    def _go_on(self, state: OwnSnapshot) -> None:
        self._shown, self._last, self._steps, self._over = state.shown, state.last, state.steps, state.over


def _learnt(what: str | Make | OwnEnv, env: OwnEnv) -> Known:
    """What is known of an environment. Of a name it is remembered."""
    known = Known(env.about, callable(getattr(env.own, "expert", None)))
    return _known.setdefault(what, known) if isinstance(what, str) else known


def _session(what: str | Make, own: Any, thread: CallThread | None) -> OwnEnv:
    return (OwnEnv if ways_back(own) is None else RestorableOwnEnv)(what, own, thread)


def _new(what: str | Make) -> tuple[Any, CallThread | None]:
    """What the function, or the function of a name, makes; see `instances.new`."""
    return instances.new(_maker(what), what if isinstance(what, str) else "env")


def _maker(name: str | Make) -> Make:
    if not isinstance(name, str):
        return name
    if is_file(name):
        return _from_file(name)
    if name in _made:
        return _made[name]
    if name.endswith(".py"):
        return contract.from_file(name)  # which says how to name what is in it
    found = plugins.load("environments", name)
    if not callable(found):
        raise ConfigError(f"the entry point '{name}' must be a function; got {type(found).__name__}")
    make: Make = found
    return make


@cache
def _from_file(name: str) -> Make:
    """The file is run once."""
    try:
        return contract.from_file(name)
    except (AgentqError, MemoryError):
        raise
    except Exception as error:
        raise ConfigError(told(error, file=name.rpartition(":")[0])) from error


@contextmanager
def _asked(what: str | Make | OwnEnv) -> Iterator[OwnEnv]:
    """A session for questions. That of a name is kept for the next `make`, that of a function is closed."""
    if isinstance(what, OwnEnv):
        yield what
        return
    env = make(what)
    try:
        yield env
    except BaseException:
        with suppress(Exception):
            env.close()
        raise
    if isinstance(what, str) and what not in _kept:
        _kept[what] = env
    else:
        env.close()


@atexit.register
def _close_kept() -> None:
    while _kept:
        with suppress(Exception):
            _kept.popitem()[1].close()
