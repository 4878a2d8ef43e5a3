"""Secrets that an agent may type without knowing them. It writes `<secret:NAME>`; the worker inserts the value.

The value leaves the user's process only through the worker's pipe, goes only into documents of one origin, and is
masked in all replies of the worker. Imports no Playwright.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agentq.envs.browser.origins import Origin, read_origins
from agentq.errors import ConfigError

_NAME = re.compile(r"[A-Za-z]\w*", re.ASCII)
_NAMED = re.compile(r"<secret:([^<>]*)>")
_FIELD = re.compile(r"[a-z_]+")
_LENGTHS = range(4, 201)  # shorter values occur on pages by chance


@dataclass(frozen=True, slots=True)
class Secret:
    """A value that may be typed into documents of `origin`, such as https://shop.test, only.

    Raises ConfigError for an invalid origin, and for a value that is not one line of 4 to 200 characters.
    """

    value: str = field(repr=False)
    origin: str

    def __post_init__(self) -> None:
        read_origins([self.origin])
        one_line = self.value.isprintable() and " ".join(self.value.split()) == self.value
        if not one_line or len(self.value) not in _LENGTHS:
            raise ConfigError(
                "a secret must be one line of 4 to 200 characters, without spaces at its ends or next to each other; "
                f"got {len(self.value)} characters"
            )


Given = dict[str, tuple[str, str]]
"""Name to value and origin, as part of a message to a worker."""


def check_secrets(secrets: Mapping[str, Secret], allow: list[str]) -> Given:
    """The form for a worker. Raises ConfigError for an invalid name, or an origin that is not allowed."""
    for name, secret in secrets.items():
        if not _NAME.fullmatch(name):
            raise ConfigError(f"a secret's name must be a word of letters, digits and _; got '{name}'")
        if not isinstance(secret, Secret):
            raise ConfigError(
                f"secret '{name}' must be agentq.envs.browser.secret.Secret(value, origin); got {type(secret).__name__}"
            )
        if not read_origins([secret.origin]) <= read_origins(allow):
            raise ConfigError(f"the origin of secret '{name}' must be an allowed one; got {secret.origin}")
    return {name: (secret.value, secret.origin) for name, secret in secrets.items()}


def names(text: str) -> list[str]:
    """The secrets that `text` names."""
    return _NAMED.findall(text)


class Secrets:
    """The secrets of one session, in its worker."""

    def __init__(self, given: Mapping[str, tuple[str, str]]) -> None:
        self.origins: dict[str, Origin] = {name: min(read_origins([origin])) for name, (_, origin) in given.items()}
        self._values = {name: value for name, (value, _) in given.items()}
        longest_first = sorted(self._values, key=lambda name: -len(self._values[name]))
        forms = [f"(?P<{name}>{''.join(map(_any_form, self._values[name]))})" for name in longest_first]
        masked = f"<secret:(?:{'|'.join(longest_first)})>"  # stays so
        self._mask = re.compile("|".join([masked, *forms]), re.IGNORECASE)

    def reveal(self, text: str) -> str:
        """`text` with values in place of names, which must all be known."""
        return _NAMED.sub(lambda found: self._values[found[1]], text)

    def mask(self, said: Any) -> Any:
        """A JSON value with names in place of values in its strings and keys, in any case.

        Values are also found if single characters are escaped as in urls, HTML or JSON. A key of lower-case letters
        stays: it is a field of a reply.
        """
        if not self._values:
            return said
        match said:
            case str():
                return self._mask.sub(_name, said)
            case dict():
                return {
                    key if isinstance(key, str) and _FIELD.fullmatch(key) else self.mask(key): self.mask(value)
                    for key, value in said.items()
                }
            case list() | tuple():
                return [self.mask(each) for each in said]
        return said


def _name(found: re.Match[str]) -> str:
    return f"<secret:{found.lastgroup}>" if found.lastgroup else found[0]


def _any_form(character: str) -> str:
    """A pattern for a character, plain or escaped."""
    forms = {"+"} if character == " " else set()
    for each in (character, character.lower(), character.upper()):
        codes = [ord(each)] if len(each) == 1 else []
        forms |= {each, html.escape(each), json.dumps(each)[1:-1], "".join(f"%{byte:02x}" for byte in each.encode())}
        forms |= {form.format(code) for form in ("&#{};", "&#x{:x};", "\\u{:04x}") for code in codes}
    return f"(?:{'|'.join(sorted(map(re.escape, forms), key=len, reverse=True))})"
