"""Worker processes of this machine, forked from a server (`searching.worker`)."""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any

from agentq.searching.worker import GRACE_S, Counted
from agentq.searching.workers import Link, Workers


def python_path() -> str:
    """PYTHONPATH of a process that finds the same modules as this one, in whatever folder it starts."""
    return os.pathsep.join(each or os.getcwd() for each in sys.path)


class _Process(Link):
    def __init__(self, connection: Connection) -> None:
        super().__init__(placed=True)
        self.connection = connection

    def send(self, *message: object) -> None:
        with suppress(OSError):
            self.connection.send(message)

    def close(self) -> None:
        self.connection.close()


class Processes(Workers):
    """Worker processes, each on one core."""

    def __init__(self, resources: Counted, num_workers: int, modules: Sequence[str] = ()) -> None:
        """Start a server of workers, which imports `modules` at once. Workers start with the first job.

        Raises whatever pickle raises if the resources cannot be sent.
        """
        super().__init__(num_workers)
        self.modules = modules
        self._resources = pickle.dumps(("resources", resources))
        self._start_server()

    def _start_server(self) -> None:
        self._control, theirs = socket.socketpair()
        with theirs:
            words = [sys.executable, "-P", "-m", "agentq.searching.worker", str(theirs.fileno()), *self.modules]
            self._server = subprocess.Popen(
                words,
                env=os.environ | {"PYTHONPATH": python_path(), "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=2,
                start_new_session=True,  # Ctrl-C is for this process, which then ends the others
            )

    def start(self) -> Link:
        """See `Workers.start`."""
        if sys.platform == "win32":
            raise OSError("Windows forks no processes")
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(self._control, [b"+"], [theirs.fileno()])
            except OSError:  # the server was killed
                self._control.close()
                self._server.wait()
                self._start_server()
                socket.send_fds(self._control, [b"+"], [theirs.fileno()])
        worker = _Process(Connection(ours.detach()))
        with suppress(OSError):
            worker.connection.send_bytes(self._resources)
        return worker

    def hear(self, links: Sequence[Link]) -> Iterator[tuple[Link, tuple[Any, ...] | None]]:
        """See `Workers.hear`."""
        ready = set(wait([link.connection for link in links if isinstance(link, _Process)]))
        for link in links:
            if isinstance(link, _Process) and link.connection in ready:
                try:
                    message = link.connection.recv()
                except (EOFError, OSError):
                    message = None
                yield link, message

    def rest(self) -> None:
        """End all processes. The next stage starts them again, which takes seconds, as torch is imported."""
        self.close()

    def close(self) -> None:
        """End all workers and their server. A later stage would start new ones."""
        if not any(worker.begun for worker in self.links):
            self._server.kill()  # it may still be importing
        super().close()
        self._control.close()
        try:
            self._server.wait(2 * GRACE_S)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()
