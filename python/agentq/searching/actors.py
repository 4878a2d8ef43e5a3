"""Workers in a Ray cluster. An actor runs the worker of `searching.worker`; Ray places it, and tells when it died.

Messages travel as arguments and results of actor calls, cut into pieces of `PIECE_BYTES`. Ray passes such pieces from
process to process; its object store stays empty, since the run's own store keeps what workers find. Each actor has one
`take` under way, and at most `UNSENT_BYTES` that were not taken.
"""

from __future__ import annotations

import hashlib
import logging
import os
import pickle
import struct
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from agentq.errors import ConfigError, require
from agentq.searching.worker import Channel, Counted, serve
from agentq.searching.workers import Link, Workers

PIECE_BYTES = 64 << 10  # Ray keeps what is larger than 100 KiB in its object store
UNSENT_BYTES = 64 << 20
WAIT_S = 2.0  # for messages, before missing workers are looked for again
TELL_EVERY_S = 30.0  # how often a run without any worker says so
_LENGTH = struct.Struct("!Q")


class _Actor:
    """What runs on a node: a worker, and the two ends of its messages."""

    def __init__(self, build: str, folder: str) -> None:
        import ray

        with suppress(OSError):
            os.chdir(folder)  # paths in the settings are relative to it

        self._channel, self._pieces, self._next, self._message = _Queued(), dict[int, bytes](), 0, bytearray()
        node = ray.get_runtime_context().get_node_id()[:6]
        self._channel.send(("here", f"{ray.util.get_node_ip_address()} ({node})"))
        if build != build_of_agentq():
            must = f"agentq must be the same on all nodes; the run has {build}, {node} has {build_of_agentq()}"
            self._channel.send(("failed", ConfigError(f"{must}: install one version on all")))
        threading.Thread(target=serve, args=(self._channel,), daemon=True).start()

    def give(self, number: int, piece: bytes) -> None:
        """Piece `number` of the messages for the worker. Ray may deliver them in another order."""
        self._pieces[number] = piece
        while self._next in self._pieces:
            self._message += self._pieces.pop(self._next)
            self._next += 1
        for message in unpacked(self._message):
            self._channel.inbox.put(message)

    def take(self) -> bytes:
        """The next bytes of the worker's messages, as soon as there are some."""
        return self._channel.take()


class _Queued(Channel):
    """The worker's side of its messages, in the place of a connection."""

    def __init__(self) -> None:
        self.inbox = SimpleQueue[bytes]()
        self._unsent, self._changed = bytearray(), threading.Condition()

    def send(self, message: object) -> None:
        data = packed(message)
        with self._changed:
            self._changed.wait_for(lambda: len(self._unsent) < UNSENT_BYTES)
            self._unsent += data
            self._changed.notify_all()

    def recv(self) -> Any:
        return pickle.loads(self.inbox.get())

    def take(self) -> bytes:
        with self._changed:
            self._changed.wait_for(lambda: self._unsent)
            piece = bytes(self._unsent[:PIECE_BYTES])
            del self._unsent[:PIECE_BYTES]
            self._changed.notify_all()
            return piece


class _Remote(Link):
    def __init__(self, actor: Any) -> None:
        super().__init__(placed=False)
        self.actor, self.received, self.pieces = actor, bytearray(), 0
        self.take()

    def take(self) -> None:
        """Ask for the next bytes."""
        self.taking = self.actor.take.options(concurrency_group="take").remote()

    def send(self, *message: object) -> None:
        self.give(packed(message))

    def give(self, data: bytes) -> None:
        """Send bytes of `packed`."""
        for first in range(0, len(data), PIECE_BYTES):
            piece = data[first : first + PIECE_BYTES]
            self.actor.give.options(concurrency_group="give").remote(self.pieces, piece)
            self.pieces += 1

    def close(self) -> None:
        import ray

        ray.kill(self.actor)


class Actors(Workers):
    """Workers of a Ray cluster, each with `cpus` and `gpus` of a node.

    All `num_workers` are asked for at once. Those that find no room wait for it, which an autoscaler sees.
    """

    def __init__(
        self, resources: Counted, num_workers: int, *, address: str = "auto", cpus: float = 1, gpus: float = 0
    ) -> None:
        """Connect to the cluster. `num_workers`: 0 for as many as it has room for.

        Raises:
            MissingExtra: without Ray.
            ConfigError: if there is no such cluster, or if it has room for no worker.
        """
        self._ray: Any = require("ray", extra="ray", for_="--run.executor ray")
        logging.getLogger("ray").setLevel(logging.ERROR)
        self._begun = not self._ray.is_initialized()
        if self._begun:
            try:
                self._ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
            except (ConnectionError, ValueError, RuntimeError) as error:
                said = str(error).strip().partition("\n")[0]
                raise ConfigError(
                    f"run.address must be the address of a running Ray cluster; got {address}: {said}"
                ) from error
        has = self._ray.cluster_resources()
        room = int(min(has.get("CPU", 0) / cpus if cpus else 1e9, has.get("GPU", 0) / gpus if gpus else 1e9))
        super().__init__(num_workers or room)
        if not self.num_workers:
            self.close()
            raise ConfigError(f"a node must have room for a worker with {cpus:g} CPUs and {gpus:g} GPUs; got {has}")
        self._resources, self._told = packed(("resources", resources)), time.monotonic()
        self._actor = self._ray.remote(
            num_cpus=cpus,
            num_gpus=gpus,
            max_restarts=0,
            concurrency_groups={"give": 1, "take": 1},
            scheduling_strategy="SPREAD",
        )(_Actor)

    def start(self) -> Link:
        """See `Workers.start`."""
        link = _Remote(self._actor.remote(build_of_agentq(), os.getcwd()))
        link.give(self._resources)
        return link

    def hear(self, links: Sequence[Link]) -> Iterator[tuple[Link, tuple[Any, ...] | None]]:
        """See `Workers.hear`."""
        taking = {link.taking: link for link in links if isinstance(link, _Remote)}
        ready, _ = self._ray.wait(list(taking), num_returns=1, timeout=WAIT_S)
        if ready:
            ready, _ = self._ray.wait(list(taking), num_returns=len(taking), timeout=0)
        for link in map(taking.__getitem__, ready):
            try:
                link.received += self._ray.get(link.taking)
            except self._ray.exceptions.RayError as error:
                link.died = _why(error)
                yield link, None
                continue
            link.take()
            for data in unpacked(link.received):
                what, *values = pickle.loads(data)
                if what == "here":
                    link.placed, (link.node,) = True, values
                else:
                    yield link, (what, *values)
        self._tell(links)

    def _tell(self, links: Sequence[Link]) -> None:
        """Say it if no worker runs for long."""
        now = time.monotonic()
        if any(link.placed for link in links):
            self._told = now
        elif now > self._told + TELL_EVERY_S:
            self._told = now
            free = {name: n for name, n in self._ray.available_resources().items() if name in ("CPU", "GPU")}
            print(f"agentq: {len(links)} workers wait for room in the cluster, which has {free} left", file=sys.stderr)

    def close(self) -> None:
        """See `Workers.close`. Leaves the cluster, if this object joined it."""
        super().close()
        if self._begun:
            self._ray.shutdown()


def packed(message: object) -> bytes:
    """A message with its length before it."""
    data = pickle.dumps(message)
    return _LENGTH.pack(len(data)) + data


def unpacked(received: bytearray) -> Iterator[bytes]:
    """Takes the whole messages from the front of what was received."""
    while len(received) >= _LENGTH.size:
        end = _LENGTH.size + _LENGTH.unpack_from(received)[0]
        if len(received) < end:
            return
        data = bytes(received[_LENGTH.size : end])
        del received[:end]
        yield data


def _why(error: Exception) -> str:
    """The sentence of Ray's message that says why an actor died."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    named = [line for line in lines if "died because" in line or "Error: " in line]
    return (named or lines or [type(error).__name__])[-1 if named else 0][:300]


@cache
def build_of_agentq() -> str:
    """Version of agentq, and a digest of its source."""
    folder, found = Path(__file__).parents[1], hashlib.blake2b(digest_size=4)
    for file in sorted(folder.rglob("*.py")):
        found.update(os.fsencode(file.relative_to(folder)) + file.read_bytes())
    return f"{version('agentq-search')} ({found.hexdigest()})"
