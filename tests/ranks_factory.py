"""Two processes for a test module, as `torchrun` would have started them; and what they do in its tests."""

from __future__ import annotations

import os
import socket
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from tests.kill_factory import FORKS

WORLD = 2
TIMEOUT_S = 120.0  # ranks that wait for one another wait for ever


class Workers:
    """Calls a function of a module in every rank at once."""

    def __init__(self, pipes: list[Connection]) -> None:
        self.pipes = pipes

    def run(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """`[WORLD]` what each rank returned; raises what a rank raised."""
        for pipe in self.pipes:
            pipe.send((function, args))
        found = []
        for rank, pipe in enumerate(self.pipes):
            assert pipe.poll(TIMEOUT_S), f"rank {rank} still waits for another in {function.__name__}"
            found.append(pipe.recv())
        for rank, (_, error) in enumerate(found):
            assert error is None, f"rank {rank}: {error}"
        return [value for value, _ in found]


@contextmanager
def two_ranks() -> Iterator[Workers]:
    """Forked from a process that has imported torch and computed nothing; ended in the end, whatever they do."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    pipes, processes = [], []
    for rank in range(WORLD):
        ours, theirs = FORKS.Pipe()
        processes.append(FORKS.Process(target=_serve, args=(rank, port, theirs), daemon=True))
        pipes.append(ours)
    for process in processes:
        process.start()
    try:
        yield Workers(pipes)
    finally:
        for process in processes:
            process.kill()
            process.join()


def _serve(rank: int, port: int, pipe: Connection) -> None:
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(WORLD),
        "LOCAL_WORLD_SIZE": str(WORLD),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    while True:
        function, args = pipe.recv()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                answer = function(*args), None
        except Exception:
            answer = None, traceback.format_exc()
        pipe.send(answer)
