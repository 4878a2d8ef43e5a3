"""What makes each environment of the user's: a function of a file, a registered name, an entry point of a package."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from agentq import plugins
from agentq.envs import contract, instances
from agentq.envs.calls import CallThread
from agentq.envs.contract import is_file
from agentq.envs.instances import Make, told
from agentq.errors import AgentqError, ConfigError

_made, _here = dict[str, Make](), set[str]()  # what makes each name; the names that only this process knows
_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)*")


def add(name: str, make: Make, *, here: bool) -> None:
    """Know a name from now on. Raises ConfigError if it cannot be one, or `make` is no function."""
    if here and not _NAME.fullmatch(name):
        raise ConfigError(f"an environment's name must have only letters, digits and _ . - /; got '{name}'")
    if not callable(make):
        raise ConfigError(f"make must be a function that returns an environment; got {type(make).__name__}")
    _here.update([name] if here else [])
    _made[name] = make


def names() -> list[str]:
    """Names that are registered, and names of installed packages."""
    return sorted({*_made, *plugins.names("environments")})


def knows(name: str) -> bool:
    """Whether `name` is registered or belongs to an installed package."""
    return name in _made or name in plugins.names("environments")


def is_registered(name: str) -> bool:
    """Whether `name` is known in this process alone."""
    return name in _here


def new(what: str | Make) -> tuple[Any, CallThread | None]:
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
