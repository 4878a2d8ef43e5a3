"""What a client of a server on a TCP port must know: a random word, in a file that the server's user alone can read.

So a client of the same user needs no word of it, and it stands in no shell history, list of processes or run directory.
Any other client has it in AGENTQ_ENV_TOKEN, where a server looks too. The file of a Unix socket needs no token.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
from pathlib import Path

from agentq.envs.browser import processes
from agentq.errors import ConfigError, EnvError

VARIABLE = "AGENTQ_ENV_TOKEN"
_LENGTHS = range(16, 257)


def folder() -> Path:
    """Where the tokens of this user's servers are, each in a file named by its address."""
    return Path(os.path.expanduser("~")) / ".cache" / "agentq" / "tokens"


class Token:
    """A server's token: that of the environment, or a new one that is in `file` until it is closed."""

    def __init__(self, at: str) -> None:
        self.value = os.environ.get(VARIABLE, "")
        self.file: Path | None = None
        if not self.value:
            self.value, self.file = secrets.token_urlsafe(24), folder() / at
            self._lock = self._write(self.file)
        elif len(self.value) not in _LENGTHS:
            raise ConfigError(f"{VARIABLE} must have 16 to 256 characters; got {len(self.value)}")

    def _write(self, file: Path) -> int:
        """Replace the file of an earlier server at this address, and remove those of others that were killed."""
        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            for each in (file, *filter(processes.is_stale, file.parent.iterdir())):
                each.unlink(missing_ok=True)
            with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
                stream.write(self.value)
            return processes.lock(file)
        except OSError as error:
            said = error.strerror or error
            raise EnvError(f"a token's file must be writable; got {file}: {said}; or set {VARIABLE}") from None

    def accepts(self, given: object) -> bool:
        """Whether a client has said this token."""
        if not isinstance(given, str):
            return False
        return secrets.compare_digest(given.encode("utf-8", "replace"), self.value.encode("utf-8", "replace"))

    def close(self) -> None:
        """Remove the file. Idempotent."""
        if self.file is not None:
            self.file.unlink(missing_ok=True)
            os.close(self._lock)
            self.file = None


def find(connected: socket.socket) -> str:
    """The token for the server of a connection; "" if this user has none for it."""
    if connected.family == socket.AF_UNIX:
        return ""
    if value := os.environ.get(VARIABLE):
        return value
    try:
        host, port = connected.getpeername()[:2]
        is_here = connected.getsockname()[0] == host
    except OSError:
        return ""  # it has hung up
    for each in (host, "0.0.0.0") if is_here else (host,):
        with contextlib.suppress(OSError, ValueError):
            return (folder() / f"{each}:{port}").read_text()
    return ""
