"""The built-in sites, in process or, as `chromium/NAME`, over HTTP in a browser."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from agentq.envs.protocol import SiteEnv
from agentq.envs.web_env import Expert, SiteKit, WebEnv
from agentq.errors import ConfigError, did_you_mean
from agentq.types import Split, Task

if TYPE_CHECKING:
    from agentq.envs.browser.pool import BrowserPool

CHROMIUM = "chromium/"
KITS = {"booking": "agentq.envs.booking.kit", "shop": "agentq.envs.shop.kit"}
HARDER = {"booking/several": "agentq.envs.booking.several"}


def knows(name: str) -> bool:
    """Whether `name` is a built-in site."""
    return name.removeprefix(CHROMIUM) in (KITS | HARDER)


def make(name: str, browser: BrowserPool | None) -> SiteEnv:
    """See `agentq.envs.make`."""
    found = kit(name)
    if browser is None and not name.startswith(CHROMIUM):
        return WebEnv(found)
    from agentq.envs.browser.env import BrowserEnv
    from agentq.envs.browser.hosts import site_host
    from agentq.envs.browser.pool import default_browser

    return BrowserEnv(site_host(found.name), browser or default_browser())


def tasks(name: str, seeds: Sequence[int], split: Split) -> list[Task]:
    """Tasks by seed, the same in process and in a browser."""
    found = kit(name)
    return [Task(found.name, seed, split, found.instruction(seed)) for seed in seeds]


def expert(name: str) -> Expert:
    """See `agentq.envs.expert`."""
    return kit(name).expert


def max_sessions(name: str) -> None:
    """Limited by memory only."""


def kit(name: str) -> SiteKit:
    """The parts of a site, in process or in a browser. Raises ConfigError for an unknown name."""
    site = name.removeprefix(CHROMIUM)
    if not knows(name):
        raise ConfigError(f"no environment '{name}'{did_you_mean(name, [*KITS, *HARDER])}")
    found: SiteKit = import_module((KITS | HARDER)[site]).KIT
    return found
