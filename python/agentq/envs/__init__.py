"""Environments by name: the registry of the built-in sites, their tasks and their experts.

`booking` is the site in process; `chromium/booking` is the same site and tasks over HTTP in a real browser;
`miniwob/TASK` is a page of the miniwob package in that browser, `miniwob` all of them that have an expert;
`NAME@ADDRESS` is an environment behind a server, which `agentq env serve` starts.

A task is (environment, split, index); its seed is one integer and the split follows from it:
train [0, 1e9), validation [1e9, 2e9), test [2e9, 3e9), base [3e9, 4e9).
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from agentq.envs.protocol import SiteEnv
from agentq.envs.web_env import Advice, Expert, SiteKit, WebEnv
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
    "make",
    "max_sessions",
    "names",
    "task",
    "task_from_seed",
    "tasks",
]

if TYPE_CHECKING:
    from agentq.envs.browser.pool import BrowserPool

SPLIT_SIZE = 1_000_000_000
_ORDER = (Split.TRAIN, Split.VALIDATION, Split.TEST, Split.BASE)
_CHROMIUM = "chromium/"
_MINIWOB = "miniwob"
_AT = "@"
_KITS = {"booking": "agentq.envs.booking.kit", "shop": "agentq.envs.shop.kit"}


def names(family: str = "") -> tuple[str, ...]:
    """The built-in environments; of family `chromium` the same in a browser, of family `miniwob` one name a page."""
    if family == "miniwob":
        from agentq.envs.browser import miniwob

        return miniwob.names()
    if family not in ("", "chromium"):
        raise ConfigError(f"family must be '', 'chromium' or 'miniwob'; got '{family}'")
    return tuple(_CHROMIUM + name if family else name for name in _KITS)


def _kit(name: str) -> SiteKit:
    """The kit of a site, whichever way it is reached."""
    site = name.removeprefix(_CHROMIUM)
    if site not in _KITS:
        raise ConfigError(f"no environment '{name}'{did_you_mean(site, _KITS)}")
    kit: SiteKit = import_module(_KITS[site]).KIT
    return kit


@cache
def default_browser() -> BrowserPool:
    """The pool of `make('chromium/...')` without a pool: one browser, closed when the process ends."""
    from agentq.envs.browser.pool import BrowserPool

    return BrowserPool()


def make(name: str, browser: BrowserPool | None = None) -> SiteEnv:
    """A new session of environment `name`; call `reset(task)` on it.

    With `browser`, or as `chromium/NAME`, its pages are read from Chromium. Raises ConfigError for an unknown name,
    EnvError for a server that is not there.
    """
    if _AT in name:
        from agentq.envs.remote.client import RemoteEnv

        return RemoteEnv(name)
    if browser is None and not name.startswith(_CHROMIUM) and not _is_miniwob(name):
        return WebEnv(_kit(name))
    from agentq.envs.browser.env import BrowserEnv
    from agentq.envs.browser.hosts import site_host
    from agentq.envs.browser.miniwob import MiniwobHost

    host = MiniwobHost(name) if _is_miniwob(name) else site_host(_kit(name).name)
    return BrowserEnv(host, browser or default_browser())


def max_sessions(name: str) -> int | None:
    """How many sessions of environment `name` may be open at once; None: as many as memory holds."""
    if _AT not in name:
        return None
    from agentq.envs.remote.client import greet

    return greet(name).sessions


def task(name: str, split: Split | str, index: int) -> Task:
    """Task `index` of a split. Raises ConfigError for an unknown name or split, or an index outside [0, 1e9)."""
    known = {member.value: member for member in Split}
    if str(split) not in known:
        raise ConfigError(f"no split '{split}'{did_you_mean(str(split), known)}")
    if not 0 <= index < SPLIT_SIZE:
        raise ConfigError(f"task index must be in [0, {SPLIT_SIZE}); got {index}")
    return task_from_seed(name, _ORDER.index(known[str(split)]) * SPLIT_SIZE + index)


def task_from_seed(name: str, seed: int) -> Task:
    """The task of a seed. Raises ConfigError for an unknown name or a seed outside [0, 4e9).

    The instruction of a `miniwob` task is what its page says, which takes a browser: that of `default_browser`. Tasks
    of `miniwob` itself are of each of its pages in turn. Of an environment behind a server it is what it says at reset.
    """
    if not 0 <= seed < SPLIT_SIZE * len(_ORDER):
        raise ConfigError(f"task seed must be in [0, {SPLIT_SIZE * len(_ORDER)}); got {seed}")
    split = _ORDER[seed // SPLIT_SIZE]
    if _AT in name:
        from agentq.envs.remote import client

        return Task(name, seed, split, client.instruction(name, seed))
    if _is_miniwob(name):
        from agentq.envs.browser import miniwob

        return miniwob.task(name, seed, split, default_browser())
    kit = _kit(name)
    return Task(kit.name, seed, split, kit.instruction(seed))


def tasks(name: str, split: Split | str, n: int, start: int = 0) -> list[Task]:
    """`n` tasks of a split from index `start` on."""
    return [task(name, split, index) for index in range(start, start + n)]


def expert(name: str) -> Expert:
    """The scripted expert of environment `name`: `expert(task, env) -> Advice`, and its `plan`.

    Raises ConfigError where there is none.
    """
    if _AT in name:
        raise ConfigError(f"a scripted expert must be known for this, as for {', '.join(_KITS)}; got {name}")
    if _is_miniwob(name):
        from agentq.envs.browser.experts import miniwob_expert

        return miniwob_expert(name)
    return _kit(name).expert


def _is_miniwob(name: str) -> bool:
    return name.partition("/")[0] == _MINIWOB
