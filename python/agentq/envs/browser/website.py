"""A foreign web site as the host of a BrowserEnv: it has a first page and no checker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

from agentq.envs.browser.hosts import Start, Verdict, WithoutMemory
from agentq.envs.browser.origins import hint, origin_of
from agentq.envs.tab import ActionError, View
from agentq.errors import ConfigError
from agentq.types import Task

MAX_STEPS = 30
QUIET_MS = 100


class Website(WithoutMemory):
    """See `agentq.envs.browser.hosts.Host`. STOP ends an episode; a judge decides the reward.

    Each episode begins in a new browser context, without cookies or storage of earlier ones, but with those given.

    Args:
        name: name of the environment.
        url: first page of an episode.
        allow: further origins that its pages may touch, such as https://cdn.shop.test.
        max_steps: limit of an episode.
        storage: cookies and storage that an episode begins with, as Playwright's `storage_state` writes them.
        uploads: folder whose files may be uploaded.
        quiet_ms: a page with scripts is read when no request is open and nothing has changed for so many milliseconds.
            Pages that answer a key later than that need more, and each step takes longer by it.

    Raises:
        ConfigError: if `url` is no http or https url, `uploads` no folder, `storage` has no cookies, or `quiet_ms` is
            negative.
    """

    probe = ""
    strict = False
    repeatable = False
    announces = False
    full = True

    def __init__(
        self,
        name: str,
        url: str,
        allow: Sequence[str] = (),
        *,
        max_steps: int = MAX_STEPS,
        uploads: Path | str | None = None,
        storage: Mapping[str, Any] | None = None,
        quiet_ms: int = QUIET_MS,
    ) -> None:
        origin = origin_of(url)
        if origin is None:
            raise ConfigError(
                f"a web site's url must begin with http:// or https:// and name a host; got '{url}'{hint(url)}"
            )
        self.name, self.url, self.max_steps = name, url, max_steps
        self.allow = [str(origin), *([allow] if isinstance(allow, str) else allow)]
        uploads = None if uploads is None else Path(uploads)
        if uploads is not None and not uploads.is_dir():
            raise ConfigError(f"uploads must be a folder; got {uploads}")
        if storage is not None and not (isinstance(storage, Mapping) and isinstance(storage.get("cookies"), list)):
            raise ConfigError(f"storage must be what Playwright's storage_state returns; got {str(storage)[:80]}")
        if quiet_ms < 0:
            raise ConfigError(f"quiet_ms must be at least 0; got {quiet_ms}")
        self.uploads, self.storage, self.quiet_ms = uploads, storage, quiet_ms

    def start(self, task: Task) -> Start:
        if task.env != self.name:
            raise ConfigError(f"task.env must be '{self.name}'; got '{task.env}'")
        return Start(self.url)

    def shown_url(self, url: str) -> str:
        return url

    def target(self, view: View, text: str) -> str:
        return urljoin(view.url, text)

    def file(self, name: str) -> str:
        files = {} if self.uploads is None else {path.name: path for path in self.uploads.iterdir() if path.is_file()}
        if name not in files:
            listed = ", ".join(sorted(files)[:20])
            raise ActionError("no_such_file", f"no file {name[:60]}; there are {listed or 'none'}")
        return str(files[name].resolve())

    def judge(self, task: Task, memory: Any, probe: Any, stopped: bool) -> Verdict:
        return Verdict(stopped)

    def answer(self, task: Task, question: str) -> str:
        return task.instruction
