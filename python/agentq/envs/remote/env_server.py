"""Serves an environment of another Python: one connection is one session, and each session is a process of its own.

A process starts once a client has sent the token, in a first message that must be small and prompt. After that the
server passes messages on unchanged, up to a size. When a connection ends, its process is killed with everything that it
started, even if it hangs: a client enforces a deadline by disconnecting. When the server is killed, its processes see
the end of their input and exit.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

from agentq.envs.browser import processes, wire
from agentq.envs.remote.address import Listener, is_path
from agentq.envs.remote.stream import Until
from agentq.envs.remote.token import VARIABLE, Token
from agentq.errors import ConfigError, EnvError

IDLE_S = 3600.0
_MOST_IDLE_S = 1e7
_START = Path(__file__).with_name("start.py")
_WAIT_S = 5.0  # for a session to become free, or a process to end
_HELLO_S = 10.0  # for the first message to arrive
_HELLO_BYTES = 1 << 12
_STRANGERS = 64  # connections without a token so far
_LINGER_S = 1.0  # for a refused client to finish its message
_PAUSE_S = 0.2  # pause when file descriptors or threads run out


class EnvServer:
    """Serves from its creation until it is closed.

    Args:
        what: `FILE.py:FUNCTION`, or an environment that an adapter knows.
        python: the Python that has the environment.
        at: HOST:PORT (port 0 for any free one), for clients with the token; or the path of a Unix socket, for this
            user.
        sessions: how many may be open at once, at least 1.
        idle_s: a session without messages for so long is ended, > 0.
    """

    def __init__(self, what: str, python: str, at: str, sessions: int, idle_s: float = IDLE_S) -> None:
        if sessions < 1:
            raise ConfigError(f"sessions must be at least 1; got {sessions}")
        if not 0 < idle_s <= _MOST_IDLE_S:
            raise ConfigError(f"idle seconds must be in (0, {_MOST_IDLE_S:g}]; got {idle_s:g}")
        if shutil.which(python) is None:
            raise ConfigError(f"python must be a program; got {python}")
        self.command, self.sessions, self.idle_s = [python, str(_START), what, str(sessions)], sessions, idle_s
        self._free, self._strangers = threading.BoundedSemaphore(sessions), threading.BoundedSemaphore(_STRANGERS)
        self._open: dict[threading.Thread, socket.socket] = {}
        self._closed = False
        try:
            self._listener = Listener(at)
        except OSError as error:
            said = error.strerror or error
            raise EnvError(f"an environment must be served at a free address; got {at}: {said}") from None
        self.at, self.token = self._listener.at, None
        try:
            self.token = None if is_path(at) else Token(self.at)
        except (ConfigError, EnvError):
            self._listener.close()
            raise
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> EnvServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening, end every session. Idempotent."""
        self._closed = True
        if self.token is not None:
            self.token.close()
        self._listener.close()
        for thread, connection in list(self._open.items()):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            thread.join(_WAIT_S)

    def _accept(self) -> None:
        while not self._closed:
            try:
                connection, _ = self._listener.socket.accept()
            except OSError:  # the client is gone, descriptors have run out, or the server is closed
                time.sleep(_PAUSE_S)
                continue
            if not self._strangers.acquire(timeout=_PAUSE_S):
                connection.close()
                continue
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._open[thread] = connection
            try:
                thread.start()
            except RuntimeError:  # threads have run out
                self._open.pop(thread).close()
                self._strangers.release()
                time.sleep(_PAUSE_S)

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:  # nothing reads the last reply
            try:
                hello = self._greet(connection)
            finally:
                self._strangers.release()
            if hello is not None:
                self._admit(connection, hello)
        self._open.pop(threading.current_thread())

    def _greet(self, connection: socket.socket) -> wire.Message | None:
        """The first message without its token; None for a client that may not be served."""
        end = time.monotonic() + _HELLO_S
        try:
            hello = wire.read(Until(connection, lambda: end), _HELLO_BYTES)
        except TimeoutError:
            _refuse(connection, 0, f"a first message must come within {_HELLO_S:g} s; got none")
            return None
        except (ValueError, RecursionError) as error:
            _refuse(connection, 0, str(error))
            return None
        if hello is None:
            return None
        args = hello.get("args")
        given = args.pop("token", None) if isinstance(args, dict) else None
        if self.token is not None and not self.token.accepts(given):
            needed = f"{VARIABLE} must be the token of the server at {self.at}"
            _refuse(
                connection, hello.get("id", 0), f"{needed}; got {'none' if given is None else 'another'}", final=True
            )
            return None
        return hello

    def _admit(self, connection: socket.socket, hello: wire.Message) -> None:
        """Serve an accepted client as soon as a session is free."""
        if not self._free.acquire(timeout=_WAIT_S):
            error = f"a server must have at most {self.sessions} sessions open; got one more: see --sessions"
            _refuse(connection, hello.get("id", 0), error, busy=True)
            return
        try:
            relay = _Relay(connection, self.command, self.idle_s)
        except OSError as error:
            _refuse(connection, hello.get("id", 0), f"a session must start; got {error.strerror or error}")
        else:
            relay.run(hello)
        finally:
            self._free.release()


def _refuse(connection: socket.socket, number: Any, error: str, **why: bool) -> None:
    """Reply and stop. Further input is read and dropped; otherwise the reply could be lost.

    `why`: final, another attempt would end in the same way; busy, a later attempt will not.
    """
    connection.settimeout(_WAIT_S)
    with connection.makefile("wb") as replies:
        wire.write(replies, {"id": number, "error": error, **why})
    connection.shutdown(socket.SHUT_WR)
    end = time.monotonic() + _LINGER_S
    with contextlib.suppress(TimeoutError):
        while Until(connection, lambda: end).read(1 << 16):
            pass


class _Relay(processes.WorkerProcess):
    """The process of one session, between its connection and its pipes. Raises OSError if it does not start."""

    def __init__(self, connection: socket.socket, command: list[str], idle_s: float) -> None:
        super().__init__()
        self.start(command, dict(os.environ))
        self.connection, self.idle_s = connection, idle_s
        self.said = time.monotonic()  # time of the last message
        self.asked = b""  # the last call
        self.fault = ""  # sent by the client

    def run(self, hello: wire.Message) -> None:
        """Pass messages on until the connection, or the process, ends."""
        back = threading.Thread(target=self._back, daemon=True)
        back.start()
        try:
            self._pass(wire.encode(hello))
            calls = Until(self.connection, lambda: self.said + self.idle_s)
            while (call := wire.read_body(calls, wire.CALL_BYTES)) is not None:
                self._pass(call)
        except TimeoutError:
            self.fault = f"a session must not be idle for {self.idle_s:g} s; see --idle"
        except ValueError as error:
            self.fault = str(error)
        except OSError:
            pass  # the process, or the client, is gone
        finally:
            self.kill()
            back.join()

    def _pass(self, call: bytes) -> None:
        assert self.process.stdin is not None
        self.asked, self.said = call, time.monotonic()
        wire.write_body(self.process.stdin, call)

    def _back(self) -> None:
        assert self.process.stdout is not None
        with contextlib.suppress(OSError), self.connection.dup() as sending:
            sending.settimeout(self.idle_s)  # for a client that does not read
            with sending.makefile("wb") as replies:
                with contextlib.suppress(ValueError):
                    while (reply := wire.read_body(self.process.stdout, wire.REPLY_BYTES)) is not None:
                        wire.write_body(replies, reply)
                        self.said = time.monotonic()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(_WAIT_S)
                ended = f"the session's process ended with exit code {self.process.returncode}"
                wire.write(replies, {"id": _number(self.asked), "error": self.fault or ended})
            sending.shutdown(socket.SHUT_RDWR)


def _number(call: bytes) -> Any:
    try:
        return wire.decode(call).get("id", 0)
    except (ValueError, RecursionError):
        return 0
