"""The worker of `searching.workers`, in a process of this machine or in a Ray actor.

    python -P -m agentq.searching.worker FD MODULE...

runs the server of processes: it imports the modules once, and forks a worker for each connection that it receives over
the socket FD. Workers share the memory of the imported modules. Server and workers end when the other side of their
socket is closed, so they end with the run however it dies.

A connection brings ("resources", them) once, then ("begin", job) for each stage, ("do", item, its half-grown tree) for
each item, ("dictionaries", by kind) when the store has new ones, and ("rest",) at the end. The worker answers with
("begun",), then with any number of ("page", None or the failure), ("grew", what `Resets` is told), ("partial", packed
tree) and ("drop", seed), and with ("done", key, what is `finished`, usage) for each item.
("failed", error) ends the run.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import pickle
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any, Protocol

from agentq import envs
from agentq.errors import StoreError, says_no_memory
from agentq.policies.fleet import at_home
from agentq.policies.usage import Usage
from agentq.searching.collect import Item, Work, finished
from agentq.searching.faults import Resets
from agentq.searching.partial import KeepsPartials
from agentq.store.packed import pack
from agentq.store.partial import PartialTree

RELEASE_EVERY_S = 5.0  # a release takes tens of milliseconds
GRACE_S = 3.0  # time for workers to end by themselves


class Counted(Protocol):
    """The resources that a job makes its work of. Sent to the workers by pickle; each loads its own engines."""

    @property
    def usage(self) -> Usage:
        """Usage of all engines so far, as a copy."""
        ...


class Channel(Protocol):
    """Carries messages to and from the run. `recv` raises EOFError or OSError when the run has closed it."""

    def send(self, message: Any, /) -> None: ...
    def recv(self) -> Any: ...


Job = Callable[[Any, KeepsPartials], Work]
"""Makes a stage's work in the process that does it, from resources and what keeps growing trees. Sent by pickle."""


class _Told(Resets):
    """Tells the run's own `Resets`, which count the first pages and rollouts of all workers."""

    def __init__(self, send: Callable[..., None]) -> None:
        super().__init__(grew=partial(send, "grew"))
        self.send = send

    def shown(self) -> None:
        self.send("page", None)

    def failed(self, env: str, seed: int, said: str) -> None:
        self.send("page", (env, seed, said))


class _Kept:
    """Half-grown trees: those that came with items, and those to be kept by the run."""

    def __init__(self, send: Callable[..., None]) -> None:
        self.send = send
        self.given: dict[int, PartialTree | StoreError | None] = {}
        self.dictionaries: Mapping[str, bytes] = {}

    def partial(self, stage: str, seed: int) -> PartialTree | None:
        found = self.given.pop(seed, None)
        if isinstance(found, StoreError):
            raise found
        return found

    def set_partial(self, stage: str, tree: PartialTree) -> None:
        self.send("partial", pack(tree, self.dictionaries))

    def drop_partial(self, stage: str, seed: int) -> None:
        self.send("drop", seed)


class _Serving:
    def __init__(self, connection: Channel) -> None:
        self.connection, self.lock = connection, threading.Lock()
        self.resets, self.kept, self.counted = _Told(self.send), _Kept(self.send), Usage()
        self.released = time.monotonic()
        self.resources: Counted
        self.work: Work

    def send(self, *message: object) -> None:
        with self.lock:
            self.connection.send(message)

    async def run(self) -> None:
        """Follow messages until the connection is closed, which ends the process."""
        inbox: asyncio.Queue[tuple[Any, ...]] = asyncio.Queue()
        loop, running = asyncio.get_running_loop(), set[asyncio.Task[None]]()
        threading.Thread(target=self._receive, args=(loop, inbox), daemon=True).start()
        while True:
            what, *values = await inbox.get()
            if what == "do":
                task = asyncio.create_task(self._do(*values))
                running.add(task)
                task.add_done_callback(running.discard)
                continue
            with self._told_if_it_fails():
                if what == "failed":
                    raise values[0]
                if what == "rest":
                    release_memory()
                    envs.release()
                elif what == "dictionaries":
                    (self.kept.dictionaries,) = values
                elif what == "resources":
                    (self.resources,) = values
                else:
                    (job,) = values
                    self.work = job(self.resources, self.kept)
                    self.send("begun")

    def _receive(self, loop: asyncio.AbstractEventLoop, inbox: asyncio.Queue[tuple[Any, ...]]) -> None:
        while True:
            try:
                message = self.connection.recv()
            except (EOFError, OSError):
                os._exit(0)
            except Exception as error:  # what came cannot be unpickled here
                message = ("failed", error)
            loop.call_soon_threadsafe(inbox.put_nowait, message)

    async def _do(self, item: Item, partial: PartialTree | StoreError | None) -> None:
        self.kept.given[item.task.seed] = partial
        with self._told_if_it_fails(), at_home():
            record = await self.work(item, self.resets)
            found, used = finished(record, self.kept.dictionaries), self.resources.usage
            self.send("done", item.key, found, used.since(self.counted))
            self.counted = used
        if time.monotonic() > self.released + RELEASE_EVERY_S:
            release_memory()
            self.released = time.monotonic()

    @contextlib.contextmanager
    def _told_if_it_fails(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if says_no_memory(error):
                print(f"agentq: a worker process ended, as it had no memory left: {error!r}", file=sys.stderr)
                os._exit(1)  # as if the system had killed it: its items are done again
            lines = "".join(traceback.format_exception(error))
            try:
                error.add_note(lines)
                pickle.loads(pickle.dumps(error))
                self.send("failed", error)
            except Exception:  # it cannot be sent
                self.send("failed", RuntimeError(lines))


def release_memory() -> None:
    """Give freed memory back to the system, where the C library keeps it and can be told to."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def main() -> None:
    """Fork workers until the socket is closed, then end them."""
    if sys.platform == "win32":
        raise OSError("Windows forks no processes")
    control = socket.socket(fileno=int(sys.argv[1]))
    for name in sys.argv[2:]:
        with contextlib.suppress(ImportError):
            import_module(name)
    workers: set[int] = set()
    while True:
        asked, fds, *_ = socket.recv_fds(control, 1, 1)
        if not asked:
            break
        workers -= set(_ended(workers))
        pid = os.fork()
        if pid == 0:
            control.close()
            serve(Connection(fds[0]))
        workers.add(pid)
        os.close(fds[0])
    give_up = time.monotonic() + GRACE_S
    while workers := workers - set(_ended(workers)):
        if time.monotonic() > give_up:
            for pid in workers:
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def serve(connection: Channel) -> None:
    """Work until the connection is closed, and end the process."""
    try:
        asyncio.run(_Serving(connection).run())
    except (EOFError, OSError):  # the run ended meanwhile
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    os._exit(1)


def _ended(workers: set[int]) -> list[int]:
    if sys.platform == "win32":
        return []
    return [pid for pid in workers if os.waitpid(pid, os.WNOHANG) != (0, 0)]


if __name__ == "__main__":
    main()
