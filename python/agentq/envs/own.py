"""Environments of the user and of other packages, in this process: `FILE.py:FUNCTION`, `register`, entry points.

All are classes of the contract in `contract.py`; `own_env.py` has their sessions, `makers.py` what makes them.
"""

from __future__ import annotations

import atexit
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from agentq.envs import contract, makers
from agentq.envs.calls import CallThread
from agentq.envs.contract import is_file
from agentq.envs.instances import Known, Make
from agentq.envs.makers import is_registered, knows, names
from agentq.envs.own_env import OwnEnv, session
from agentq.envs.text_env import EnvExpert, tasks_by_reset
from agentq.errors import ConfigError
from agentq.types import Split, Task

__all__ = ["expert", "is_file", "is_registered", "knows", "make", "max_sessions", "names", "register", "tasks"]

_known: dict[str, Known] = {}
_kept: dict[str, OwnEnv] = {}  # by name, a session that was asked something, for the next that is made


def register(name: str, make: Make, *, here: bool = True) -> None:
    """See `agentq.envs.register`. Unless only `here`, every process that is asked for the name registers it."""
    makers.add(name, make, here=here)
    _known.pop(name, None)
    if (kept := _kept.pop(name, None)) is not None:
        kept.close()


def make(what: str | Make, browser: object = None) -> OwnEnv:
    """A session; see `agentq.envs.make`. With a browser it is the same."""
    kept = _kept.pop(what, None) if isinstance(what, str) else None
    return session(what, *makers.new(what)) if kept is None else kept


def given(own: Any) -> OwnEnv:
    """The only session of an instance, which its owner closes."""
    checked = contract.checked(own, "env")
    env = session(lambda: own, checked, CallThread() if getattr(own, "blocking", False) else None)
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


def _learnt(what: str | Make | OwnEnv, env: OwnEnv) -> Known:
    """What is known of an environment. Of a name it is remembered."""
    known = Known(env.about, callable(getattr(env.own, "expert", None)))
    return _known.setdefault(what, known) if isinstance(what, str) else known


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
