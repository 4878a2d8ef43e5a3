"""Rules for requests, set before a run: `POST https://diner.test/search`, with `*` only at the end of the path."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from agentq.envs.browser.origins import Origin, origin_of, read_origins
from agentq.errors import ConfigError

SAFE = ("GET", "HEAD", "OPTIONS")
WEBSOCKET = "WEBSOCKET"  # stands for a message that a page sends on a web socket
_METHOD = re.compile(r"[A-Z][A-Z0-9-]*", re.ASCII)
_DISGUISED = re.compile(r"%2e|%2f|%5c|%00|;", re.IGNORECASE)  # a server may decode it to another path


@dataclass(frozen=True, slots=True)
class Rule:
    """Requests of one method to one path, or to all paths with a prefix. The query is ignored."""

    method: str
    origin: Origin
    path: str
    all_below: bool

    def matches(self, method: str, url: str) -> bool:
        """Whether a request fits. A path with an escaped `/` or `.` never does."""
        path = urlsplit(url).path or "/"
        if method != self.method or origin_of(url) != self.origin or _DISGUISED.search(path):
            return False
        return path.startswith(self.path) if self.all_below else path == self.path

    def __str__(self) -> str:
        return f"{self.method} {self.origin}{self.path}{'*' if self.all_below else ''}"


def read_rules(texts: Iterable[str], allowed: Iterable[str], option: str) -> tuple[Rule, ...]:
    """The rules of `texts`, for requests to the origins `allowed`. Raises ConfigError with the name of `option`."""
    origins = read_origins(allowed)
    return tuple(_read(text, origins, option) for text in texts)


def _read(text: str, allowed: frozenset[Origin], option: str) -> Rule:
    method, _, url = text.partition(" ")
    origin = origin_of(url)
    path = urlsplit(url).path if origin else ""
    if not _METHOD.fullmatch(method) or origin is None or not path or "*" in url[:-1] or set("?#") & set(url):
        shape = 'METHOD ORIGIN/PATH such as "POST https://diner.test/search", with * at most at its end'
        raise ConfigError(f"{option} must be {shape}; got '{text}'")
    if method in SAFE:
        raise ConfigError(f"{option} must name a method that is held; got '{text}': {method} always passes")
    if origin not in allowed:
        listed = ", ".join(sorted(map(str, allowed)))
        raise ConfigError(f"{option} must be about an allowed origin ({listed}); got '{text}': add --allow {origin}")
    return Rule(method, origin, path.removesuffix("*"), path.endswith("*"))


def rule_for(method: str, url: str) -> str:
    """The rule for exactly such requests, as a user would write it."""
    return f"{method} {origin_of(url)}{urlsplit(url).path or '/'}"
