"""Serves an environment of another Python: one connection is one session, and each session is a process of its own.

The server only passes messages on, which it reads first. When a connection ends, its process is killed with all that it
started, whatever it is stuck in: so a client that hangs up has enforced its deadline. When the server is killed, its
processes see their input end, and end themselves.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import threading
from pathlib import Path
from typing import IO

from agentq.envs.browser import processes, wire
from agentq.envs.remote import address
from agentq.errors import ConfigError, EnvError

_START = Path(__file__).with_name("start.py")
_WAIT_S = 5.0  # for a session to become free, or a process to end


class EnvServer:
    """Serves from the moment it is made until it is closed.

    Args:
        what: `FILE.py:FUNCTION`, or an environment that an adapter knows.
        python: the Python that has the environment.
        at: HOST:PORT (port 0 for any free one) or the path of a Unix socket. Whoever can connect can use it.
        sessions: how many may be open at once, at least 1.
    """

    def __init__(self, what: str, python: str, at: str, sessions: int) -> None:
        if sessions < 1:
            raise ConfigError(f"sessions must be at least 1; got {sessions}")
        if shutil.which(python) is None:
            raise ConfigError(f"python must be a program; got {python}")
        self.command, self.sessions = [python, str(_START), what, str(sessions)], sessions
        self._free = threading.BoundedSemaphore(sessions)
        self._open: dict[threading.Thread, socket.socket] = {}
        self._closed = False
        try:
            self._listening = address.listen(at)
        except OSError as error:
            said = error.strerror or error
            raise EnvError(f"an environment must be served at a free address; got {at}: {said}") from None
        self.at = address.told(self._listening)
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> EnvServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening, end every session. Idempotent."""
        self._closed = True
        address.close(self._listening)
        for thread, connection in list(self._open.items()):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            thread.join(_WAIT_S)

    def _accept(self) -> None:
        while not self._closed:
            with contextlib.suppress(OSError):  # the client is gone already, or the server is closed
                connection, _ = self._listening.accept()
                thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
                self._open[thread] = connection
                thread.start()

    def _serve(self, connection: socket.socket) -> None:
        gone = contextlib.suppress(OSError)  # a last reply that nobody takes
        with gone, connection, connection.makefile("rb") as calls, connection.makefile("wb") as replies:
            if self._free.acquire(timeout=_WAIT_S):
                try:
                    _Relay(self.command).run(connection, calls, replies)
                finally:
                    self._free.release()
            else:
                error = f"a server must have at most {self.sessions} sessions open; got one more: see --sessions"
                with contextlib.suppress(ValueError, RecursionError):
                    wire.write(replies, {"id": (wire.read(calls) or {}).get("id", 0), "error": error})
        self._open.pop(threading.current_thread())


class _Relay(processes.Worker):
    """The process of one session, between its connection and its pipes."""

    def __init__(self, command: list[str]) -> None:
        super().__init__()
        self.start(command, dict(os.environ))
        self.asked = 0  # id of the last call
        self.fault = ""  # of the client

    def run(self, connection: socket.socket, calls: IO[bytes], replies: IO[bytes]) -> None:
        """Pass messages on until the connection, or the process, ends."""
        back = threading.Thread(target=self._back, args=(connection, replies), daemon=True)
        back.start()
        assert self.process.stdin is not None
        try:
            while (message := wire.read(calls)) is not None:
                self.asked = message.get("id", 0)
                wire.write(self.process.stdin, message)
        except (ValueError, RecursionError) as error:
            self.fault = str(error)
        except OSError:
            pass  # the process, or the client, is gone
        finally:
            self.kill()
            back.join()

    def _back(self, connection: socket.socket, replies: IO[bytes]) -> None:
        assert self.process.stdout is not None
        with contextlib.suppress(OSError):
            with contextlib.suppress(ValueError, RecursionError):
                while (message := wire.read(self.process.stdout)) is not None:
                    wire.write(replies, message)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(_WAIT_S)
            ended = f"the session's process ended with exit code {self.process.returncode}"
            wire.write(replies, {"id": self.asked, "error": self.fault or ended})
            connection.shutdown(socket.SHUT_RDWR)
