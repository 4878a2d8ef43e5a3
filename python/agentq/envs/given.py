"""The environment argument of `agentq.search` and `agentq.evaluate`, and the sessions that it gives."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, cast

from agentq import envs
from agentq.envs import own
from agentq.envs.calls import close, session
from agentq.envs.contract import takes
from agentq.envs.own_env import OwnEnv
from agentq.envs.protocol import Env, can_fork
from agentq.errors import ConfigError

_used: set[int] = set()  # ids of the instances that a call uses
_guard = threading.Lock()


class Contract(Protocol):
    """A user's environment; see `agentq.envs.contract`."""

    def reset(self, seed: Any, /) -> Any: ...
    def step(self, command: Any, element: Any, text: Any, /) -> Any: ...


Environment = str | Callable[[], Any] | Env | Contract
"""A name; a class with `reset(seed)` and `step(command, element, text)`, or a function that returns an instance; or an
instance. An instance is a single session: episodes take turns in it."""


@dataclass(frozen=True, slots=True)
class World:
    """The source of sessions: `what`, for the functions of `envs`, or `given`, the only session."""

    what: str | Callable[[], Any]
    given: Env | None = None

    @classmethod
    def of(cls, env: Environment) -> World:
        """Raises ConfigError if `env` is not an environment."""
        if isinstance(env, str | type):
            return cls(env)
        reset, step = getattr(env, "reset", None), getattr(env, "step", None)
        if not callable(reset) or not callable(step):
            if callable(env):
                return cls(env)
            raise ConfigError(
                "env must be a name, a class with reset(seed) and step(command, element, text), a function that makes "
                f"an instance, or an instance; got {type(env).__name__}"
            )
        if takes(step, 3):
            return cls("", own.given(env))
        if not takes(step, 1) or not all(hasattr(env, name) for name in ("name", "max_steps")):
            raise ConfigError(
                "env must have step(command, element, text), or step(env_action), name and max_steps as an agentq Env; "
                f"got {type(env).__name__}; agentq.envs.gym_world.GymWorld(env) wraps one of Gymnasium's"
            )
        known = cast(Env, env)
        return cls("" if isinstance(known, OwnEnv) else known.name, known)

    def asked(self, session: Env | None) -> str | Callable[[], Any] | OwnEnv:
        """What tasks are asked of: a name, whose tasks are remembered, else a session if there is one."""
        named = isinstance(self.what, str) and self.what
        return session if isinstance(session, OwnEnv) and not named else self.what

    async def at_most(self, wanted: int) -> int:
        """`wanted`, or the number of sessions if there are fewer."""
        most = 1 if self.given else await envs.ask(envs.max_sessions, self.what)
        return min(wanted, most or wanted)

    async def check_leaves(self, wanted: int) -> None:
        """Raises ConfigError if a search cannot have `wanted` sessions."""
        if self.given is not None and wanted > 1 and not can_fork(self.given):
            raise ConfigError(
                "leaves_in_flight must be 1 with an instance, which is a single session unless it can fork; "
                f"got {wanted}: give its class"
            )
        if self.given is None and wanted > (most := await self.at_most(wanted)):
            raise ConfigError(f"leaves_in_flight must be at most {most} with {self.what}; got {wanted}")

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other calls from an instance that was given, whose episodes they would mix with those of this one.

        Raises:
            ConfigError: if another call uses the instance.
        """
        instance = getattr(self.given, "lent", None) or self.given
        if instance is None:
            yield
            return
        with _guard:
            if id(instance) in _used:
                raise ConfigError(
                    "env must not be in use by another call, since an instance is a single session; got the same "
                    f"{type(instance).__name__} twice at once: give its class, or a separate instance to each call"
                )
            _used.add(id(instance))
        try:
            yield
        finally:
            _used.discard(id(instance))

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Env]:
        """A session. It is closed at the end, unless it was given."""
        if self.given is None:
            async with session(partial(envs.make, self.what)) as env:
                yield env
            return
        try:
            yield self.given
        finally:
            if isinstance(self.given, OwnEnv) and self.given.lent is not None:
                await close(self.given)  # what it made of the instance, which stays open
