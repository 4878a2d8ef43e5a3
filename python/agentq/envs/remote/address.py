"""Where a server listens: `HOST:PORT`, or the path of a Unix socket (it has a slash)."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import sys

from agentq.errors import ConfigError


def split(name: str) -> tuple[str, str]:
    """(environment, address) of `NAME@ADDRESS`. Raises ConfigError if either is missing."""
    env, _, at = name.partition("@")
    if not env or not at:
        raise ConfigError(f"an environment of a server must be named NAME@HOST:PORT or NAME@/PATH; got '{name}'")
    return env, at


def connect(at: str, timeout_s: float) -> socket.socket:
    """A connection. Raises OSError if nothing listens there."""
    if is_path(at):
        connection = unix_socket(at)
        connection.settimeout(timeout_s)
        try:
            connection.connect(at)
        except OSError:
            connection.close()
            raise
        return connection
    connection = socket.create_connection(_host(at), timeout_s)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


class Listener:
    """A listening socket. Raises OSError, and ConfigError for an invalid address.

    Only its user may use the file of a Unix socket. The file of a server that is gone is replaced; no other file is.
    """

    def __init__(self, at: str) -> None:
        self._file: tuple[int, int] | None = None
        if not is_path(at):
            self.socket = socket.create_server(_host(at))
            host, port = self.socket.getsockname()[:2]
            self.at = f"{host}:{port}"  # the actual port if any was requested
            return
        self.at = at
        self._replace_stale()
        self.socket = unix_socket(at)
        try:
            self.socket.bind(at)
            self._file = self._found()
            os.chmod(at, 0o600)
            self.socket.listen()
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Stop listening, and remove the file of a Unix socket if it is still this one's."""
        with contextlib.suppress(OSError):
            if self._file is not None and self._found() == self._file:
                os.unlink(self.at)
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits for a connection
        self.socket.close()

    def _replace_stale(self) -> None:
        try:
            mode = os.lstat(self.at).st_mode
        except OSError:
            return  # there is no file, or bind reports the fault
        if not stat.S_ISSOCK(mode):
            raise ConfigError(f"a Unix socket must have an unused path; got {self.at}, which is another file")
        try:
            connect(self.at, 1.0).close()
        except ConnectionRefusedError:
            os.unlink(self.at)
        except OSError:
            pass  # it is in use

    def _found(self) -> tuple[int, int]:
        about = os.lstat(self.at)
        return about.st_dev, about.st_ino


def is_path(at: str) -> bool:
    """Whether an address is the path of a Unix socket."""
    return "/" in at


def unix_socket(at: str) -> socket.socket:
    """Raises ConfigError on Windows, where Python has none."""
    if sys.platform == "win32":
        raise ConfigError(f"an address must be HOST:PORT on Windows; got '{at}'")
    return socket.socket(socket.AF_UNIX)


def _host(at: str) -> tuple[str, int]:
    host, _, port = at.rpartition(":")
    with contextlib.suppress(ValueError):  # for an invalid host name
        if host.encode("idna") and port.isdecimal() and int(port) <= 65535:
            return host, int(port)
    raise ConfigError(f"an address must be HOST:PORT or the path of a Unix socket; got '{at}'")
