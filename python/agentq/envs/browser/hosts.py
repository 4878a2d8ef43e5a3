"""The site behind a BrowserEnv: the start of an episode, the memory of its server, the score."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

from agentq.envs import sites
from agentq.envs.browser.site_server import COOKIE, SiteServer
from agentq.envs.tab import ActionError, View, local_url
from agentq.envs.web_env import SiteKit
from agentq.errors import ConfigError
from agentq.types import Task


@dataclass(frozen=True, slots=True)
class Start:
    """How a session begins: the first page, cookies, a script to run there; `visitor` names the server's session.

    `cookies`: all that the session then has; None: those that it has now.
    `in_place`: if the page is shown already, the script alone starts it again.
    """

    url: str
    cookies: list[dict[str, str]] | None = None
    script: str = ""
    visitor: str = ""
    in_place: bool = False


class Verdict(NamedTuple):
    """Whether the task is over, with reward and success."""

    terminated: bool
    reward: float = 0.0
    success: bool = False


class Host(Protocol):
    """`probe`: an expression evaluated in the page at every step. `strict`: commands must fit roles as in process.

    `repeatable`: a new start with the same actions is harmless and leads to the same pages.
    `announces`: later changes of a page come only from timers and animation frames of its scripts; it has settled when
    none is due within `quiet_ms`. `storage`: cookies and storage of a new session.
    `full`: pages are read and used as a person does (person.js), whole and by keys;
    otherwise in the short form that the embedded base model was trained on.
    """

    name: str
    max_steps: int
    allow: list[str]
    probe: str
    quiet_ms: int
    strict: bool
    repeatable: bool
    announces: bool
    full: bool
    storage: Any

    def start(self, task: Task) -> Start:
        """The start of `task`. Raises ConfigError if it belongs to another environment."""
        ...

    def memory(self, visitor: str) -> Any:
        """An immutable copy of what the server remembers of the visitor; None if the site does not offer it."""
        ...

    def resume(self, memory: Any) -> Start:
        """A new visitor, with `memory` as what the server remembers."""
        ...

    def remember(self, visitor: str, memory: Any) -> None:
        """Set the server's memory of a visitor."""
        ...

    def dismiss(self, visitor: str) -> None:
        """Forget a visitor."""
        ...

    def shown_url(self, url: str) -> str:
        """The url as shown in observations."""
        ...

    def target(self, view: View, text: str) -> str:
        """The full url that GOTO `text` means. Raises ActionError."""
        ...

    def file(self, name: str) -> str:
        """The path of the file that UPLOAD `name` means. Raises ActionError."""
        ...

    def judge(self, task: Task, memory: Any, probe: Any, stopped: bool) -> Verdict:
        """The verdict on the task; `stopped`: the agent took STOP."""
        ...

    def answer(self, task: Task, question: str) -> str:
        """The simulated user's reply."""
        ...

    def random_query(self, rng: random.Random) -> str:
        """Something a visitor may search for."""
        ...


class WithoutFiles:
    """The common part of hosts that give no files away and begin with empty storage."""

    storage: Any = None

    def file(self, name: str) -> str:
        raise ActionError("not_taken", "there are no files for UPLOAD")


class WithoutMemory(WithoutFiles):
    """The common part of hosts whose server's memory can be neither read nor set."""

    def memory(self, visitor: str) -> None:
        return None

    def resume(self, memory: Any) -> Start:
        raise AssertionError("a host without memory has none to resume")

    def remember(self, visitor: str, memory: Any) -> None:
        raise AssertionError("a host without memory has none to resume")

    def dismiss(self, visitor: str) -> None:
        """Nothing to forget."""

    def random_query(self, rng: random.Random) -> str:
        return rng.choice(["one", "two", "three"])


class SiteHost(WithoutFiles):
    """A built-in site behind a SiteServer."""

    probe = ""
    quiet_ms = 0
    strict = True
    repeatable = True
    announces = False
    full = False

    def __init__(self, kit: SiteKit) -> None:
        self.name, self.max_steps = f"chromium/{kit.name}", kit.max_steps
        self.kit, self.server = kit, SiteServer(kit.site)
        self.allow = [self.server.origin]

    def start(self, task: Task) -> Start:
        if task.env != self.kit.name:
            raise ConfigError(f"task.env must be '{self.kit.name}'; got '{task.env}'")
        return self.resume(self.kit.new_session())

    def memory(self, visitor: str) -> Any:
        return self.server.memory(visitor)

    def resume(self, memory: Any) -> Start:
        visitor = self.server.admit(memory)
        cookies = [{"name": COOKIE, "value": visitor, "url": self.server.origin}]
        return Start(self.server.origin + "/", cookies, visitor=visitor)

    def remember(self, visitor: str, memory: Any) -> None:
        self.server.admit(memory, visitor)

    def dismiss(self, visitor: str) -> None:
        self.server.dismiss(visitor)

    def shown_url(self, url: str) -> str:
        parts = urlsplit(url)
        return f"{parts.path}?{parts.query}" if parts.query else parts.path

    def target(self, view: View, text: str) -> str:
        return self.server.origin + local_url(view, text)

    def judge(self, task: Task, memory: Any, probe: Any, stopped: bool) -> Verdict:
        return Verdict(True, *self.kit.score(memory, task)) if stopped else Verdict(False)

    def answer(self, task: Task, question: str) -> str:
        return self.kit.answer(task, question)

    def random_query(self, rng: random.Random) -> str:
        return self.kit.random_query(rng)


@cache
def site_host(name: str) -> SiteHost:
    """The host of a built-in site: one server per process."""
    return SiteHost(sites.kit(name))
