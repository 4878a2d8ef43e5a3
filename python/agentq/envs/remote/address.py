"""Where a server listens: `HOST:PORT`, or the path of a Unix socket (it has a slash)."""

from __future__ import annotations

import contextlib
import os
import socket

from agentq.errors import ConfigError


def split(name: str) -> tuple[str, str]:
    """(environment, address) of `NAME@ADDRESS`. Raises ConfigError if either is missing."""
    env, _, at = name.partition("@")
    if not env or not at:
        raise ConfigError(f"an environment of a server must be named NAME@HOST:PORT or NAME@/PATH; got '{name}'")
    return env, at


def connect(at: str, timeout_s: float) -> socket.socket:
    """A connection. Raises OSError if nobody listens."""
    if _is_path(at):
        connection = socket.socket(socket.AF_UNIX)
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


def listen(at: str) -> socket.socket:
    """A listening socket. The file of a Unix socket whose server is gone is replaced. Raises OSError."""
    if not _is_path(at):
        return socket.create_server(_host(at))
    try:
        connect(at, 1.0).close()
    except ConnectionRefusedError:
        os.unlink(at)
    except OSError:
        pass  # there is none, or bind says what it is
    listening = socket.socket(socket.AF_UNIX)
    try:
        listening.bind(at)
        os.chmod(at, 0o600)
        listening.listen()
    except OSError:
        listening.close()
        raise
    return listening


def close(listening: socket.socket) -> None:
    """Stop listening, and remove the file of a Unix socket."""
    if listening.family == socket.AF_UNIX:
        with contextlib.suppress(OSError):
            os.unlink(listening.getsockname())
    listening.close()


def told(listening: socket.socket) -> str:
    """The address of a listening socket, its port where any was asked for."""
    name = listening.getsockname()
    return str(name) if listening.family == socket.AF_UNIX else f"{name[0]}:{name[1]}"


def _is_path(at: str) -> bool:
    return "/" in at


def _host(at: str) -> tuple[str, int]:
    host, _, port = at.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"an address must be HOST:PORT or the path of a Unix socket; got '{at}'")
    return host, int(port)
