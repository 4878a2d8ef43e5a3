"""The Env that speaks to a server, and the sessions that environments of one process share.

A session that does not answer in time is disconnected, which ends its process; the step is then data and ends the
episode. The next reset opens another session. Sessions of a closed environment are kept for the next one, since
starting a process costs seconds. What a server said is kept, too, until it has closed all of these: a server that was
started again may serve another version of the environment.
"""

from __future__ import annotations

import atexit
import contextlib
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

from agentq.envs.remote import address
from agentq.envs.remote.connection import Busy, Closed, Connection, Hello, SessionLost
from agentq.envs.replies import AdviceReply, ResetReply, StepReply, one_line
from agentq.envs.text_env import EnvExpert, TextEnv, asked, tasks_by_reset
from agentq.errors import ConfigError, EnvError
from agentq.types import EnvAction, Split, StepResult, Task

CLOSE_S = 5.0
PATIENCE_S = 600.0  # with a server whose sessions are all open
AWAY_S = 60.0  # that resets wait for a server that has answered before and listens no more (ours)
_AGAIN_S = 0.2  # between attempts; the server waits some seconds itself
_ATTEMPTS = 2
_RESETS = 8  # at once, to learn the instructions of tasks
_idle: dict[str, list[Connection]] = {}
_hellos: dict[str, Hello] = {}
_gone: set[str] = set()  # environments whose server has closed all idle sessions since its hello
_waited: set[str] = set()  # servers that had no session free, which is told once
_away: dict[str, float] = {}  # servers that resets found not listening, since when
_lock = threading.RLock()  # of these; a session may be kept by garbage collection at any time


def _take(name: str, *, away_s: float = 0.0) -> Connection:
    """An idle session of an environment, or a new one. It is waited for if the server has none free.

    A server that has answered before may be away for `away_s`, together for all who ask.

    Raises:
        ConfigError: if no session becomes free in time.
        EnvError: if no server listens.
    """
    env, at = address.split(name)
    until = time.monotonic() + PATIENCE_S
    while True:
        with _lock:
            if kept := _kept(name):
                _gone.discard(name)  # it still serves a session that was in use
                return kept.pop()
        try:
            session = Connection(at)
            break
        except Busy as error:
            if time.monotonic() > until:
                raise ConfigError(f"{at} must have a session free within {PATIENCE_S:g} s; got {error}") from None
            if at not in _waited:
                print(f"agentq: waits for a session of {at}: {error}", file=sys.stderr)
            _waited.add(at)
            time.sleep(_AGAIN_S)
        except SessionLost:
            raise
        except EnvError as error:
            if name not in _hellos or _is_away(at, away_s, error):
                raise
            time.sleep(_AGAIN_S)
    with _lock:
        _away.pop(at, None)
    if session.hello.name != env:
        session.hang_up()
        raise ConfigError(f"the server at {at} serves '{one_line(session.hello.name)}'; got '{env}'")
    _hellos[name] = session.hello
    _gone.discard(name)
    return session


def _is_away(at: str, away_s: float, error: EnvError) -> bool:
    """Whether a server has not listened for `away_s`. That it is waited for is told once."""
    if not away_s:
        return True
    now = time.monotonic()
    with _lock:
        if at not in _away:
            print(f"agentq: waits {away_s:g} s for a server that was there: {error}", file=sys.stderr)
        return now - _away.setdefault(at, now) >= away_s


def release() -> None:
    """Close the idle sessions of this process, so that others can open as many as the server has."""
    with _lock:
        idle = [session for kept in _idle.values() for session in kept]
        _idle.clear()
    for session in idle:
        _end(session)


def _end(session: Connection) -> None:
    with contextlib.suppress(EnvError, ConfigError):
        if not session.busy:  # else a thread still waits for an answer
            session.call(Closed, "close", CLOSE_S)
    session.hang_up()


def _kept(name: str) -> list[Connection]:
    """The idle sessions that the server still holds open. Needs the lock."""
    idle = _idle.setdefault(name, [])
    ended = [session for session in idle if not session.alive()]
    for session in ended:
        idle.remove(session)
        session.hang_up()
    if ended and not idle:
        _gone.add(name)
        instruction.cache_clear()
    return idle


def _keep(name: str, session: Connection) -> None:
    with _lock:
        _idle.setdefault(name, []).append(session)


@atexit.register
def _close() -> None:
    for session in list(Connection.live):
        _end(session)


def greet(name: str) -> Hello:
    """The hello of the server of `NAME@ADDRESS`. Raises ConfigError for another name, EnvError without a server."""
    with _lock:
        _kept(name)
        known = _hellos.get(name)
    if known is None or name in _gone:
        try:
            session = _take(name)
        except EnvError:
            if known is None:
                raise
            return known  # the server is away for now; a reset says so
        known = session.hello
        _keep(name, session)
    return known


@lru_cache(maxsize=65536)
def instruction(name: str, seed: int) -> str:
    """The instruction that environment `name` gives at reset with `seed`."""
    env = RemoteEnv(name)
    try:
        return env.start(seed).instruction
    finally:
        env.close()


def make(name: str, browser: object = None) -> RemoteEnv:
    """A session; see `agentq.envs.make`. A browser, if there is one, runs at the server."""
    return RemoteEnv(name)


def tasks(name: str, seeds: Sequence[int], split: Split) -> list[Task]:
    """Tasks by seed; see `agentq.envs.text_env.tasks_by_reset`. Several sessions are reset at once."""
    about = greet(name)
    with ThreadPoolExecutor(min(_RESETS, about.sessions)) as pool:
        begun = {seed: pool.submit(instruction, name, seed) for seed in seeds}
        try:
            return tasks_by_reset(name, seeds, split, about, lambda seed: begun[seed].result())
        finally:
            pool.shutdown(cancel_futures=True)


def expert(name: str) -> EnvExpert:
    """The environment's own expert. Raises ConfigError if it has none."""
    if not greet(name).expert:
        raise ConfigError(f"a scripted expert must be known for this, as for the built-in sites; got {name}")
    return EnvExpert()


def max_sessions(name: str) -> int:
    """The limit that the server reports."""
    return greet(name).sessions


class RemoteEnv(TextEnv):
    """One live session of an environment behind a server. Search goes back by replay.

    `lost`: why sessions were lost, oldest first.
    """

    blocking = True

    def __init__(self, name: str) -> None:
        super().__init__(name, greet(name).max_steps, greet(name).tools)
        self.lost: list[str] = []
        self._session: Connection | None = None

    def start(self, seed: int) -> ResetReply:
        """The beginning of the episode of `seed`; tried twice. Waits if the server is being started again."""
        for _ in range(_ATTEMPTS):
            try:
                self._session = self._session or _take(self.name, away_s=AWAY_S)
                return self._session.call(ResetReply, "reset", self._session.hello.deadline_s, seed=seed)
            except SessionLost as error:
                self._lose(error)
        raise EnvError(f"{self.name} must reset; got {self.lost[-1]}")

    def close(self) -> None:
        """Keep the session for the next environment."""
        super().close()
        session, self._session = self._session, None
        if session is not None:
            _keep(self.name, session)

    def __del__(self) -> None:
        if "_session" in self.__dict__:
            self.close()

    def _hint(self) -> AdviceReply:
        if self._session is None:
            raise EnvError("an expert needs a session; call reset first")
        try:
            return self._session.call(AdviceReply, "expert", self._session.hello.deadline_s)
        except SessionLost as error:
            self._lose(error)
            raise

    def _act(self, action: EnvAction) -> StepResult:
        """A lost session is data, too."""
        try:
            if self._session is None:
                raise SessionLost("the session was closed")
            outcome = self._session.call(StepReply, "step", self._session.hello.deadline_s, **asked(action))
        except SessionLost as error:
            self._lose(error)
            return StepResult(self._shown, truncated=True, error_kind="session_lost", error_message=self.lost[-1])
        return self._told(action, outcome)

    def _lose(self, error: SessionLost) -> None:
        self._session = None
        self.lost.append(str(error))
        instruction.cache_clear()  # the next session may be of a server that was started again
