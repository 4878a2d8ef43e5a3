"""What a user gives a live run besides the goal: secrets and a logged-in state."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any

from agentq.envs.browser.origins import origin_of
from agentq.envs.browser.secret import Secret
from agentq.errors import ConfigError
from agentq.live.options import LiveOptions


@dataclass(frozen=True, slots=True)
class Given:
    """Secrets by name, and the cookies and storage that each attempt begins with."""

    secrets: dict[str, Secret]
    storage: dict[str, Any] | None


def given_of(options: LiveOptions) -> Given:
    """What the options give. Raises ConfigError."""
    return Given(dict(_secret(each, options.url) for each in options.secret), _storage(options))


def _secret(text: str, url: str) -> tuple[str, Secret]:
    name, _, variable = text.partition("=")
    if not name or not variable:
        raise ConfigError(f"--secret must be NAME=ENV; got '{name}' without an environment variable")
    if variable not in os.environ:
        raise ConfigError(f"--secret {name} must name an environment variable that is set; got {variable}")
    return name, Secret(os.environ[variable], str(origin_of(url)))


def _storage(options: LiveOptions) -> dict[str, Any] | None:
    path = options.storage_state
    if path is None:
        return None
    try:
        storage = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(
            f"--storage-state must be a JSON file of Playwright's storage_state; got {path}: {said}"
        ) from None
    if not isinstance(storage, dict) or not isinstance(storage.get("cookies"), list):
        raise ConfigError(f"--storage-state must have a list of cookies; got {path}")
    return storage
