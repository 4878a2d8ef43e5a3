"""Collection by worker processes: each has its own engines and environments, and this process writes what they find.

Items go out, finished records come back. An item whose worker died is done again: together with others once more, then
alone, so that the third death is its own. After that it is kept as broken, with the error kind `worker_lost`.
"""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait

from agentq.error_kinds import WORKER_LOST
from agentq.errors import ModelError, StoreError
from agentq.policies.usage import Usage
from agentq.searching.collect import Collection, Execute, Item
from agentq.searching.faults import Broken, broken_tree
from agentq.searching.rollout import broken_episode
from agentq.searching.worker import GRACE_S, Counted, Job
from agentq.store.partial import PartialTree
from agentq.store.run import TREE

DEATHS = 3  # of workers over one item, or one after another before any could begin (ours)
ALONE = 2  # deaths after which an item is done alone


class _Link:
    """This side of a worker. `job`: the latest one sent, for which it is ready when it has `begun`."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.job: Job | None = None
        self.begun = False
        self.doing: dict[str, Item] = {}

    def send(self, *message: object) -> None:
        """Send a message. A dead worker is noticed when it is heard."""
        with suppress(OSError):
            self.connection.send(message)


class Processes:
    """Worker processes, which keep their engines from stage to stage. `usage` sums up all workers' engines."""

    def __init__(self, resources: Counted, num_workers: int, modules: Sequence[str] = ()) -> None:
        """Start a server of workers, which imports `modules` at once. Workers start with the first job.

        Raises whatever pickle raises if the resources cannot be sent.
        """
        self.num_workers, self.modules = num_workers, modules
        self.usage = Usage()
        self._resources = pickle.dumps(("resources", resources))
        self._workers: list[_Link] = []
        self._start_server()

    def _start_server(self) -> None:
        self._control, theirs = socket.socketpair()
        with theirs:
            words = [sys.executable, "-P", "-m", "agentq.searching.worker", str(theirs.fileno()), *self.modules]
            path = os.pathsep.join(each or os.getcwd() for each in sys.path)
            self._server = subprocess.Popen(
                words,
                env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=2,
                start_new_session=True,  # Ctrl-C is for this process, which then ends the others
            )

    def load(self, job: Job) -> None:
        """Begin a job in every worker, and so load its models. Raises what the job raises."""
        _Stage(self, job, "", deque(), None, 1).run()

    def stage(self, job: Job, kind: str) -> Execute:
        """Does the items of a job that makes records of a kind (`store.run.TREE`, `TRAJECTORY`)."""

        def execute(items: Sequence[Item], to: Collection, *, in_flight: int, sessions: int) -> None:
            if items:
                _Stage(self, job, kind, deque(items), to, in_flight).run()

        return execute

    def workers(self, n: int) -> list[_Link]:
        """The first `n` workers; those that are missing are started."""
        while len(self._workers) < n:
            ours, theirs = socket.socketpair()
            with theirs:
                try:
                    socket.send_fds(self._control, [b"+"], [theirs.fileno()])
                except OSError:  # the server was killed
                    self._control.close()
                    self._server.wait()
                    self._start_server()
                    socket.send_fds(self._control, [b"+"], [theirs.fileno()])
            worker = _Link(Connection(ours.detach()))
            with suppress(OSError):
                worker.connection.send_bytes(self._resources)
            self._workers.append(worker)
        return self._workers[:n]

    def lose(self, worker: _Link) -> None:
        """Forget a worker that died."""
        worker.connection.close()
        self._workers.remove(worker)

    def close(self) -> None:
        """End all workers and their server. A later stage would start new ones."""
        if not any(worker.begun for worker in self._workers):
            self._server.kill()  # it may still be importing
        while self._workers:
            self.lose(self._workers[-1])
        self._control.close()
        try:
            self._server.wait(2 * GRACE_S)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()


class _Stage:
    """One job: its items that are left, and how many workers died over each. Workers share `in_flight` evenly."""

    def __init__(
        self, processes: Processes, job: Job, kind: str, queue: deque[Item], to: Collection | None, in_flight: int
    ) -> None:
        self.processes, self.job, self.kind, self.queue, self.to = processes, job, kind, queue, to
        self.num_workers = min(processes.num_workers, len(queue) or processes.num_workers)
        self.in_flight = -(-in_flight // self.num_workers)
        self.deaths: Counter[str] = Counter()
        self.stillborn = 0

    def run(self) -> None:
        """Return when all items are done. On any exception, all workers are ended."""
        try:
            while self.queue or any(worker.doing or not worker.begun for worker in self._workers()):
                self._hand_out()
                ready = set(wait([worker.connection for worker in self._workers()]))
                for worker in [worker for worker in self._workers() if worker.connection in ready]:
                    self._hear(worker)
            for worker in self._workers():
                worker.send("rest")
        except BaseException:
            self.processes.close()
            raise

    def _workers(self) -> list[_Link]:
        """The workers of the stage. New ones are told to begin."""
        workers = self.processes.workers(self.num_workers)
        for worker in workers:
            if worker.job is not self.job:
                worker.job, worker.begun = self.job, False
                worker.send("begin", self.job)
        return workers

    def _hand_out(self) -> None:
        """Give items to the workers with the fewest, as far as there is room."""
        while self.queue and (free := [w for w in self._workers() if w.begun and self._has_room(w, self.queue[0])]):
            item, worker = self.queue.popleft(), min(free, key=lambda w: len(w.doing))
            worker.doing[item.key] = item
            worker.send("do", item, self._partial(item))

    def _has_room(self, worker: _Link, item: Item) -> bool:
        if self.deaths[item.key] >= ALONE:
            return not worker.doing
        alone = any(self.deaths[key] >= ALONE for key in worker.doing)
        return not alone and len(worker.doing) < self.in_flight

    def _partial(self, item: Item) -> PartialTree | StoreError | None:
        assert self.to is not None
        try:
            return self.to.store.partial(self.to.stage, item.task.seed) if self.kind == TREE else None
        except StoreError as error:  # the search drops a damaged tree
            return error

    def _hear(self, worker: _Link) -> None:
        """Follow one message."""
        try:
            what, *values = worker.connection.recv()
        except (EOFError, OSError):
            self._mourn(worker)
            return
        if what == "begun":
            worker.begun = True
        elif what == "failed":
            raise values[0]
        elif self.to is None:
            raise RuntimeError(f"a worker without items must say nothing; got {what}")
        elif what == "page":
            self.to.resets.shown() if values[0] is None else self.to.resets.failed(*values[0])
        elif what == "partial":
            self.to.store.set_partial(self.to.stage, *values)
        elif what == "drop":
            self.to.store.drop_partial(self.to.stage, *values)
        else:
            key, record, used = values
            self.processes.usage += used
            self.to.keep(worker.doing.pop(key), record)

    def _mourn(self, worker: _Link) -> None:
        """Queue the items of a dead worker again, last. Keep those that died too often as broken."""
        self.processes.lose(worker)
        if not worker.begun:
            self.stillborn += 1
            if self.stillborn >= DEATHS:
                raise ModelError(
                    f"a worker process must live to load the models; {DEATHS} died at it: "
                    "free memory, or use --run.executor inline"
                )
        fault = Broken(WORKER_LOST, f"{DEATHS} worker processes died over this task")
        for key, item in worker.doing.items():
            self.deaths[key] += 1
            if self.deaths[key] < DEATHS:
                self.queue.append(item)
            elif self.to is not None:
                tree = self.kind == TREE
                info = {"attempt": item.attempt}
                self.to.keep(item, broken_tree(item.task, fault) if tree else broken_episode(item.task, fault, info))
