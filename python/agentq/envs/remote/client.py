"""The Env that speaks to a server, and the sessions that environments of one process share.

A session that does not answer in time is hung up on, which ends its process; the step is then data, and ends the
episode. The next reset opens another session. Sessions whose environment was closed wait for the next one: to start a
process costs seconds.
"""

from __future__ import annotations

import atexit
import contextlib
import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any, NoReturn

from agentq.envs.browser.budget import MAX_TOKENS, fit
from agentq.envs.protocol import BROKEN_IN_A_ROW, Ability
from agentq.envs.remote import address
from agentq.envs.remote.connection import Closed, Connection, Hello, Outcome, SessionLost, Start, one_line
from agentq.envs.site import printable
from agentq.errors import ConfigError, EnvError
from agentq.types import Command, EnvAction, Observation, Split, StepResult, Task

CLOSE_S = 5.0
_ATTEMPTS = 2
_idle: dict[str, list[Connection]] = {}


def _take(name: str) -> Connection:
    """An idle session of an environment, or another."""
    with contextlib.suppress(IndexError):  # none is left; other threads take some too
        while True:
            session = _idle.setdefault(name, []).pop()
            if session.alive():
                return session
            session.hang_up()
    env, at = address.split(name)
    session = Connection(at)
    if session.hello.name != env:
        session.hang_up()
        raise ConfigError(f"the server at {at} serves '{one_line(session.hello.name)}'; got '{env}'")
    return session


@atexit.register
def _close() -> None:
    for session in list(Connection.live):
        with contextlib.suppress(EnvError):
            session.call(Closed, "close", CLOSE_S)
        session.hang_up()


@cache
def greet(name: str) -> Hello:
    """What the server of `NAME@ADDRESS` says of it. Raises ConfigError for another name, EnvError without a server."""
    session = _take(name)
    _idle.setdefault(name, []).append(session)
    return session.hello


@lru_cache(maxsize=65536)
def instruction(name: str, seed: int) -> str:
    """What environment `name` asks for with `seed`: what it says at reset."""
    env = RemoteEnv(name)
    try:
        return env.start(seed).instruction
    finally:
        env.close()


def make(name: str, browser: object = None) -> RemoteEnv:
    """A session; see `agentq.envs.make`. Where a browser runs is the server's business."""
    return RemoteEnv(name)


def tasks(name: str, seeds: Sequence[int], split: Split) -> list[Task]:
    """Tasks by seed; their instructions are what the server says at reset.

    A seed that does not start has a task without an instruction, whose reset fails.

    Raises:
        EnvError: if BROKEN_IN_A_ROW seeds do not start, one after the other.
    """
    commands, found, failed = tuple(Command(each) for each in greet(name).commands), [], 0
    for seed in seeds:
        try:
            said, failed = instruction(name, seed), 0
        except EnvError:
            said, failed = "", failed + 1
            if failed == BROKEN_IN_A_ROW:
                raise
        found.append(Task(name, seed, split, said, commands))
    return found


def expert(name: str) -> NoReturn:
    """There is none."""
    raise ConfigError(f"a scripted expert must be known for this, as for the built-in sites; got {name}")


def max_sessions(name: str) -> int:
    """As many as the server says."""
    return greet(name).sessions


class RemoteEnv:
    """One live session of an environment behind a server; see `agentq.envs.protocol.Env`. Search goes back by replay.

    `lost` says why sessions were lost, oldest first.
    """

    abilities = Ability.BLOCKING
    restored = "failed"

    def __init__(self, name: str) -> None:
        self.name, self.max_steps = name, greet(name).max_steps
        self.lost: list[str] = []
        self._session: Connection | None = None
        self._shown = Observation("")
        self._steps = -1  # -1: no episode
        self._over = False

    def reset(self, task: Task) -> Observation:
        """Start `task` afresh. Raises ConfigError for another environment's task, EnvError if it does not start."""
        if task.env != self.name:
            raise ConfigError(f"task.env must be '{self.name}'; got '{task.env}'")
        start = self.start(task.seed)
        if not task.instruction:
            raise EnvError(f"a task must have an instruction; seed {task.seed} did not start when it was asked for one")
        if start.instruction != task.instruction:
            said = f"'{one_line(task.instruction)}'; got '{one_line(start.instruction)}'"
            raise EnvError(f"a seed must give one instruction, {said}")
        self._shown, self._steps, self._over = _observation(start.text, start.url), 0, False
        return self._shown

    def start(self, seed: int) -> Start:
        """The beginning of the episode of `seed`; tried twice."""
        for _ in range(_ATTEMPTS):
            try:
                self._session = self._session or _take(self.name)
                return self._session.call(Start, "reset", self._session.hello.deadline_s, seed=seed)
            except SessionLost as error:
                self._lose(error)
        raise EnvError(f"{self.name} must reset; got {self.lost[-1]}")

    def step(self, env_action: EnvAction | None) -> StepResult:
        """Act; what the environment does not take is data on the result, and so is a session that is lost."""
        if self._steps < 0:
            raise EnvError("the environment needs a session; call reset first")
        if self._over:
            raise EnvError("step needs a running episode; this one is over, call reset")
        self._steps += 1
        result = self._unreadable() if env_action is None else self._act(env_action)
        if not result.terminated and self._steps >= self.max_steps:
            result = replace(result, truncated=True)
        self._over = result.terminated or result.truncated
        return result

    def snapshot(self) -> NoReturn:
        """Not offered."""
        raise self._not_offered("snapshot")

    def restore(self, token: Any) -> NoReturn:
        """Not offered."""
        raise self._not_offered("restore")

    def fork(self) -> NoReturn:
        """Not offered."""
        raise self._not_offered("fork")

    @property
    def view(self) -> NoReturn:
        """Not offered: pages are text here."""
        raise self._not_offered("view")

    def random_query(self, rng: random.Random) -> NoReturn:
        """Not offered."""
        raise self._not_offered("random_query")

    def close(self) -> None:
        """Leave the session to the next environment."""
        session, self._session, self._steps = self._session, None, -1
        if session is not None:
            _idle.setdefault(self.name, []).append(session)

    def __del__(self) -> None:
        if "_session" in self.__dict__:
            self.close()

    def _act(self, action: EnvAction) -> StepResult:
        asked = {"command": action.command.value, "element": action.element, "text": action.text}
        try:
            if self._session is None:
                raise SessionLost("the session was closed")
            outcome = self._session.call(Outcome, "step", self._session.hello.deadline_s, **asked)
        except SessionLost as error:
            self._lose(error)
            return StepResult(self._shown, truncated=True, error_kind="session_lost", error_message=self.lost[-1])
        self._shown = _observation(outcome.text, outcome.url)
        notes = {"error": outcome.error_message, "user": outcome.answer}
        terminated = outcome.terminated or action.command is Command.STOP
        return StepResult(
            self._noted({word: said for word, said in notes.items() if said}),
            outcome.reward,
            terminated,
            outcome.truncated and not terminated,
            outcome.success,
            outcome.error_kind,
            outcome.error_message,
        )

    def _unreadable(self) -> StepResult:
        message = "unreadable action"
        return StepResult(self._noted({"error": message}), error_kind="unreadable", error_message=message)

    def _noted(self, notes: dict[str, str]) -> Observation:
        """The page, and below it what holds for this step only."""
        below = [f"{word} {printable(said)}" for word, said in notes.items()]
        return replace(self._shown, text="\n".join([self._shown.text, *below]))

    def _lose(self, error: SessionLost) -> None:
        self._session = None
        self.lost.append(str(error))

    def _not_offered(self, what: str) -> EnvError:
        return EnvError(f"this needs an environment of agentq's own; {self.name} offers no {what}")


def _observation(text: str, url: str) -> Observation:
    """A page as it was sent, without other line ends than \\n and within the token budget."""
    lines = ["".join(c if c.isprintable() else " " for c in line) for line in text.split("\n")]
    return Observation("\n".join(fit(lines, MAX_TOKENS)[0]), printable(url))
