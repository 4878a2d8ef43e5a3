"""The token that a client of a TCP server needs: a random word in a file that only the server's user can read.

A client of the same user reads the file, so the token appears in no shell history, process list or run directory. Any
other client sets AGENTQ_ENV_TOKEN, which a server reads too. A Unix socket needs no token.
"""

from __future__ import annotations

import contextlib
import glob
import os
import secrets
import socket
from pathlib import Path

from agentq.envs.browser import processes
from agentq.errors import ConfigError, EnvError

VARIABLE = "AGENTQ_ENV_TOKEN"
_LENGTHS = range(16, 257)


def folder() -> Path:
    """The folder of tokens of this user's servers, each in a file named after its address."""
    return Path(os.path.expanduser("~")) / ".cache" / "agentq" / "tokens"


def name_of(at: str) -> str:
    """The name of the file for an address; it has this machine's if every machine has such an address."""
    host = at.rpartition(":")[0]
    everywhere = host == "0.0.0.0" or host.startswith("127.")
    return f"{at}@{socket.gethostname()}" if everywhere else at


class Token:
    """A server's token: the environment variable's, or a new one, which is in `file` until it is closed."""

    def __init__(self, at: str) -> None:
        self.value = os.environ.get(VARIABLE, "")
        self.file: Path | None = None
        if not self.value:
            self.value, self.file = secrets.token_urlsafe(24), folder() / name_of(at)
            self._lock = self._write(self.file)
        elif len(self.value) not in _LENGTHS:
            raise ConfigError(f"{VARIABLE} must have 16 to 256 characters; got {len(self.value)}")

    def _write(self, file: Path) -> int:
        """Replace the file of an earlier server at this address, and remove files of killed servers of this machine."""
        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            ours = file.parent.glob(f"*@{glob.escape(socket.gethostname())}")  # others' locks may not be seen here
            for each in (file, *filter(processes.is_stale, ours)):
                each.unlink(missing_ok=True)
            with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
                stream.write(self.value)
            return processes.lock(file)
        except OSError as error:
            said = error.strerror or error
            raise EnvError(f"a token's file must be writable; got {file}: {said}; or set {VARIABLE}") from None

    def accepts(self, given: object) -> bool:
        """Whether a client has sent this token."""
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
    if connected.family == getattr(socket, "AF_UNIX", None):
        return ""
    if value := os.environ.get(VARIABLE):
        return value
    try:
        host, port = connected.getpeername()[:2]
        is_here = connected.getsockname()[0] == host
    except OSError:
        return ""  # it has disconnected
    for each in (host, "0.0.0.0") if is_here else (host,):
        with contextlib.suppress(OSError, ValueError):
            return (folder() / name_of(f"{each}:{port}")).read_text()
    return ""
