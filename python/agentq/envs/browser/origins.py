"""Which addresses a browser session may touch: an exact list of web origins, with http and https only.

Hosts are compared in ASCII, as browsers send them: `bücher.test` is `xn--bcher-kva.test`. The standard library converts
by IDNA 2003. A host that a browser may convert differently is refused and must be written as `xn--..`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import urlsplit

from agentq.errors import ConfigError

_PORTS = {"http": 80, "https": 443}
_AMBIGUOUS = "ßς\N{ZERO WIDTH NON-JOINER}\N{ZERO WIDTH JOINER}"  # IDNA 2003 replaces or drops them, browsers do not
_ASCII = re.compile(r"[a-z0-9._-]+")


class Origin(NamedTuple):
    """Scheme, host and port, as a browser compares them."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}" + ("" if self.port == _PORTS[self.scheme] else f":{self.port}")


def origin_of(url: str) -> Origin | None:
    """The origin of an http or https url; None for other schemes and invalid urls.

    None also for what this parser and a browser might read differently: backslashes, white space, a user before the
    host. An `@` behind the host is part of the path. Without backslashes, both end the host at the first of `/?#`.
    """
    if any(character == "\\" or character <= " " for character in url.partition("?")[0]):
        return None
    try:
        parts = urlsplit(url)
        if "@" in parts.netloc:
            return None
        scheme, host, port = parts.scheme.lower(), _in_ascii(parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        return None
    return Origin(scheme, host, _PORTS[scheme] if port is None else port) if scheme in _PORTS and host else None


def _in_ascii(host: str) -> str:
    """A host as browsers send it. Raises ValueError if browsers might convert it differently."""
    if host.isascii():
        return host
    converted = host.encode("idna").decode("ascii")
    if any(character in _AMBIGUOUS for character in host) or not _ASCII.fullmatch(converted):
        raise ValueError(f"a host must convert to punycode in one way; got {host}")
    return converted


def read_origins(urls: Iterable[str]) -> frozenset[Origin]:
    """The origins of an allow-list such as `["https://shop.test", "http://127.0.0.1:8000"]`. Raises ConfigError."""
    origins = set()
    for url in urls:
        origin = origin_of(url)
        if origin is None or "*" in url:
            raise ConfigError(
                f"an allowed origin must be an exact one such as https://shop.test; got '{url}'{hint(url)}"
            )
        origins.add(origin)
    return frozenset(origins)


def hint(url: str) -> str:
    """A remedy for an invalid address, if its host may be the reason."""
    return "" if url.isascii() else ": a host in another script may have to be written in punycode (xn--...)"


def is_allowed(url: str, allowed: frozenset[Origin]) -> bool:
    """Whether a document of `url` may be loaded and read. data:, blob:, javascript:, file: and the rest may not."""
    return url in ("about:blank", "about:srcdoc") or origin_of(url) in allowed
