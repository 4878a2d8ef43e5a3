"""Reading from a connection with one deadline for the whole message."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable


class Until:
    """A stream for `wire.read` that raises TimeoutError once `end()`, a moment of `time.monotonic`, has passed."""

    def __init__(self, connected: socket.socket, end: Callable[[], float]) -> None:
        self._socket, self._end = connected, end

    def read(self, size: int, /) -> bytes:
        data = bytearray()
        while len(data) < size:
            left = self._end() - time.monotonic()
            if left <= 0:
                raise TimeoutError("timed out")
            self._socket.settimeout(left)
            try:
                part = self._socket.recv(min(size - len(data), 1 << 16))
            except TimeoutError:
                continue  # the deadline may have changed
            if not part:
                break
            data += part
        return bytes(data)
