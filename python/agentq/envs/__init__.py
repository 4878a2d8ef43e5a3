"""Environments by name: the registry of the built-in sites, their tasks and their experts.

`booking` is the site in process; `chromium/booking` is the same site and tasks over HTTP in a real browser;
`booking/several` has two or three reservations in one task;
`miniwob/TASK` is a page of the miniwob package in that browser, `miniwob` all of them that have an expert;
`suite/APP.TASK` is a task in a real application on this machine (`make apps`);
`apps` has everyday apps behind Python, a block of code a step, and `apps/1` to `apps/3` and `apps/challenge` are parts;
`gymnasium/ID` is an environment of Gymnasium;
`webarena:FILE` has the tasks of a file in WebArena's format, on the built-in sites;
`appworld@ADDRESS` is AppWorld behind its own server;
`NAME@ADDRESS` is an environment behind a server, which `agentq env serve` starts. `FILE.py:FUNCTION` is your own class,
in process; so is a name given to `register` or added by an installed package (`agentq.plugins`). The class
itself, or a function that makes one, may take the place of a name.

A task is (environment, split, index); its seed is one integer and the split follows from it:
train [0, 1e9), validation [1e9, 2e9), test [2e9, 3e9), base [3e9, 4e9).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from importlib import import_module
from operator import index as integer
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from agentq.envs import own, sites
from agentq.envs.own_env import OwnEnv
from agentq.envs.protocol import SiteEnv
from agentq.envs.web_env import Advice, Expert, WebEnv
from agentq.errors import ConfigError, did_you_mean
from agentq.types import Split, Task

__all__ = [
    "SPLIT_SIZE",
    "Advice",
    "Expert",
    "SiteEnv",
    "WebEnv",
    "default_browser",
    "expert",
    "forms",
    "make",
    "max_sessions",
    "names",
    "register",
    "task",
    "task_from_seed",
    "tasks",
]

if TYPE_CHECKING:
    from agentq.envs.browser.pool import BrowserPool

T = TypeVar("T")
SPLIT_SIZE = 1_000_000_000
_FAMILIES = ("apps", "gymnasium", "miniwob", "suite")  # of NAME/REST
_ORDER = (Split.TRAIN, Split.VALIDATION, Split.TEST, Split.BASE)


class _Family(Protocol):
    """A module with one kind of environments. It has the same functions as this package."""

    def make(self, name: Any, browser: BrowserPool | None) -> SiteEnv: ...
    def tasks(self, name: Any, seeds: Sequence[int], split: Split) -> list[Task]: ...
    def expert(self, name: str) -> Expert: ...
    def max_sessions(self, name: Any) -> int | None: ...


def _family(name: str | Callable[[], Any] | OwnEnv) -> _Family:
    if not isinstance(name, str) or own.is_file(name):
        module = own.__name__
    elif name.startswith("webarena:"):
        module = "agentq.envs.webarena"
    elif name.partition("@")[0] in ("appworld", "appworld/challenge"):
        module = "agentq.envs.appworld"
    elif "@" in name:
        module = "agentq.envs.remote.client"
    elif name.partition("/")[0] == "miniwob":
        module = "agentq.envs.browser.miniwob"
    elif name.partition("/")[0] == "suite":
        module = "agentq.envs.suite"
    elif name.partition("/")[0] == "apps":
        module = "agentq.envs.apps"
    elif name.startswith("gymnasium/"):
        module = "agentq.envs.gym_world"
    elif sites.knows(name):
        module = sites.__name__
    elif own.knows(name) or name.endswith(".py"):
        module = own.__name__
    else:
        raise ConfigError(f"no environment '{name}'{_nearest(name)}")
    return cast(_Family, import_module(module))


def _nearest(name: str) -> str:
    """A hint: the known name nearest to `name`, or the forms of names."""
    family, slash, page = name.partition("/")
    known = forms()
    if get_close_matches(name, more := [*known, *map(sites.CHROMIUM.__add__, sites.HARDER)]):
        return did_you_mean(name, more)
    if near := get_close_matches(family, _FAMILIES, n=1):
        return f"; did you mean '{near[0]}{slash}{page}'?"
    return f"; known: {', '.join(known)}"


def forms() -> dict[str, str]:
    """What is accepted as a name, or its form, with a line about each."""
    return {
        **dict.fromkeys(names(), "a site in this process"),
        **dict.fromkeys(names("chromium"), "the same site in Chromium"),
        "booking/several": "two or three reservations in one task; also chromium/booking/several",
        "apps": "thirteen everyday apps behind Python: actions are code; parts: apps/1 to apps/3, apps/challenge",
        "appworld@ADDRESS": "AppWorld behind its own server: appworld serve environment",
        "gymnasium/ID": "an environment of Gymnasium whose actions are numbers or a text",
        "miniwob/PAGE": "a page of MiniWoB++ in Chromium; agentq envs miniwob lists them",
        "suite/APP.TASK": "a task in a real application on this machine; agentq envs suite lists them",
        **dict.fromkeys(own.names(), "registered, or from an installed package"),
        "webarena:FILE": "tasks of a file in WebArena's format, on the built-in sites",
        "FILE.py:FUNCTION": "your own class in this process",
        "NAME@ADDRESS": "behind a server, see agentq env serve",
    }


def names(family: str = "") -> tuple[str, ...]:
    """The built-in environments; of family `chromium` the same in a browser, of families `miniwob` and `suite` one name
    per page or task; of family `apps` it and its parts."""
    if family == "miniwob":
        from agentq.envs.browser import miniwob

        return miniwob.names()
    if family == "suite":
        from agentq.envs import suite

        return suite.names()
    if family == "apps":
        from agentq.envs import apps

        return apps.names()
    if family not in ("", "chromium"):
        raise ConfigError(f"family must be 'apps', 'chromium', 'miniwob' or 'suite'; got '{family}'")
    return tuple(sites.CHROMIUM + name if family else name for name in sites.KITS)


def register(name: str, make: Callable[[], Any]) -> None:
    """Give `name` to the environments of `make()`, which follow `agentq.envs.contract`, for the life of this process.

    A registered name is replaced. Raises ConfigError for an invalid or built-in name, or if `make` is no function.
    """
    if sites.knows(name) or name.partition("/")[0] in _FAMILIES:
        raise ConfigError(f"an environment's name must be free; got '{name}', which comes with agentq")
    own.register(name, make)


def default_browser() -> BrowserPool:
    """The pool of `make('chromium/...')` without a pool: one browser, closed when the process ends."""
    from agentq.envs.browser import pool

    return pool.default_browser()


def make(
    name: str | Callable[[], Any], browser: BrowserPool | None = None, *, screenshots: bool = False, marks: bool = False
) -> SiteEnv:
    """A new session of environment `name`; call `reset(task)` on it.

    With `browser`, or as `chromium/NAME`, its pages are read from Chromium. With `screenshots`, its observations have
    pictures; with `marks`, pictures with the numbers of elements, which models see.

    Raises ConfigError for an unknown name or one that has no pictures, EnvError for a server that does not answer.
    """
    env = _family(name).make(name, browser)
    if screenshots or marks:
        from agentq.envs.browser.env import BrowserEnv

        if not isinstance(env, BrowserEnv):
            setting = "model.sees" if marks else "run.screenshots"
            raise ConfigError(f"{setting} must be false for {env.name}, whose pages no browser shows; got true")
        env.screenshots, env.marks = screenshots, marks
    return env


def max_sessions(name: str | Callable[[], Any]) -> int | None:
    """How many sessions of environment `name` may be open at once; None: limited by memory only."""
    return _family(name).max_sessions(name)


async def ask(function: Callable[..., T], name: Any, *args: Any) -> T:
    """What a function of this module tells about environment `name`. A server is waited for outside the event loop."""
    if _family(name) is sys.modules.get("agentq.envs.remote.client"):
        return await asyncio.to_thread(function, name, *args)
    return function(name, *args)


def release() -> None:
    """Close the sessions of servers that this process keeps for later, so that other processes can open them."""
    if (client := sys.modules.get("agentq.envs.remote.client")) is not None:
        client.release()


def tasks(name: str | Callable[[], Any] | OwnEnv, split: Split | str, n: int, start: int = 0) -> list[Task]:
    """`n` tasks of a split from index `start` on.

    The instruction of a `miniwob` task comes from its page, which `default_browser` opens. Tasks of `miniwob` itself go
    through its pages in turn. Environments of your own and behind servers give the instruction at reset.

    Raises:
        ConfigError: for an unknown name or split, or an index outside [0, 1e9).
    """
    return _family(name).tasks(name, seeds_of(split, n, start), Split(str(split)))


def seeds_of(split: Split | str, n: int, start: int = 0) -> range:
    """The seeds of `n` tasks of a split from index `start` on. Raises ConfigError as `tasks` does."""
    known = {member.value: member for member in Split}
    if str(split) not in known:
        raise ConfigError(f"no split '{split}'{did_you_mean(str(split), known)}")
    for index in (start, start + max(n, 1) - 1):
        if not 0 <= index < SPLIT_SIZE:
            raise ConfigError(f"task index must be in [0, {SPLIT_SIZE}); got {index}")
    first = _ORDER.index(known[str(split)]) * SPLIT_SIZE + start
    return range(first, first + n)


def task(name: str | Callable[[], Any] | OwnEnv, split: Split | str, index: int) -> Task:
    """Task `index` of a split; see `tasks`."""
    return tasks(name, split, 1, index)[0]


def task_from_seed(name: str | Callable[[], Any] | OwnEnv, seed: int) -> Task:
    """The task of a seed; see `tasks`. Raises ConfigError for a seed outside [0, 4e9)."""
    try:
        seed = integer(seed)
    except TypeError:
        raise ConfigError(f"task must be a Task or an integer, its seed; got {seed!r:.40}") from None
    if not 0 <= seed < SPLIT_SIZE * len(_ORDER):
        raise ConfigError(f"task seed must be in [0, {SPLIT_SIZE * len(_ORDER)}); got {seed}")
    return task(name, _ORDER[seed // SPLIT_SIZE], seed % SPLIT_SIZE)


def expert(name: str) -> Expert:
    """The scripted expert of environment `name`: `expert(task, env) -> Advice`, and its `plan`.

    Raises ConfigError if there is none.
    """
    return _family(name).expert(name)
