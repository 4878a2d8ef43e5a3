"""The Hugging Face hub. Where it cannot be reached, models come from its cache, without its client's waits."""

from __future__ import annotations

import os
import re
import socket
import sys
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies

PATIENCE_S = 5.0
OFFLINE = "HF_HUB_OFFLINE"


def reach_hub(path: Path) -> bool:
    """Whether a checkpoint's name is one of the hub. If so, and the hub is not there, the process is offline then."""
    found = not path.exists() and re.fullmatch(r"[\w-][\w.-]*(/[\w.-]+)?", str(path)) is not None
    if found:
        _try()
    return found


@cache
def _try() -> None:
    """Take this process and those that it starts offline if nothing answers at the hub's address.

    Its client would try each request for each file of a model again for 24 s. HF_HUB_OFFLINE and proxies are left to
    the user.
    """
    if os.environ.get(OFFLINE) is not None or getproxies():
        return
    url = urlsplit(os.environ.get("HF_ENDPOINT") or "https://huggingface.co")
    try:
        socket.create_connection((url.hostname, url.port or (80 if url.scheme == "http" else 443)), PATIENCE_S).close()
    except OSError as error:
        os.environ[OFFLINE] = "1"
        if constants := sys.modules.get("huggingface_hub.constants"):
            vars(constants)[OFFLINE] = True  # it has read the variable already
        told = f"{url.hostname} must be reachable for models that are not in its cache; got {error}"
        print(f"agentq: {told}", file=sys.stderr)
