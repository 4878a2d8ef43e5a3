"""Collection by workers: each has its own engines and environments, and this process writes what they find.

Items go out, finished records come back, packed where they were made. An item whose worker died is done again: together
with others once more, then alone, so that the third death is its own. After that it is kept as broken, with the error
kind `worker_lost`.

Where workers run is up to a subclass: processes of this machine (`searching.processes`) or actors of a Ray cluster
(`searching.actors`). Both serve the protocol of `searching.worker`.
"""

from __future__ import annotations

import pickle
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import Any

from agentq.error_kinds import WORKER_LOST
from agentq.errors import ModelError, StoreError
from agentq.policies.usage import Usage
from agentq.searching.collect import Collection, Execute, Item, finished
from agentq.searching.faults import Broken, broken_tree
from agentq.searching.rollout import broken_episode
from agentq.searching.worker import Job
from agentq.store.partial import PartialTree
from agentq.store.run import PARTIAL, TREE

DEATHS = 3  # of workers over one item, or one after another before any could begin (ours)
ALONE = 2  # deaths after which an item is done alone
LISTED = 4  # nodes whose rates are shown one by one


def can_be_sent(job: object) -> bool:
    """Whether other processes can have a copy. They cannot of what a script or a file of a recipe defines."""
    try:
        pickle.dumps(job)
    except (pickle.PicklingError, AttributeError, TypeError):
        return False
    return True


class Link(ABC):
    """This side of a worker.

    Attributes:
        job: the latest one sent, for which the worker is ready when it has `begun`.
        doing: the items it has, by key.
        num_dictionaries: number of the store's dictionaries that it has.
        placed: whether the worker runs, and does not wait for room in a cluster.
        node: the machine it runs on; empty for this one.
        died: why it died, as far as that is known.
    """

    def __init__(self, *, placed: bool) -> None:
        self.job: Job | None = None
        self.begun = False
        self.doing: dict[str, Item] = {}
        self.num_dictionaries = 0
        self.placed, self.node, self.died = placed, "", ""

    @abstractmethod
    def send(self, *message: object) -> None:
        """Send a message. A dead worker is noticed when it is heard."""

    @abstractmethod
    def close(self) -> None:
        """End the worker, if it still lives."""


class Workers(ABC):
    """Workers that keep their engines from stage to stage. `usage` sums up the engines of all of them."""

    def __init__(self, num_workers: int) -> None:
        self.num_workers = num_workers
        self.usage = Usage()
        self.links: list[Link] = []
        self._done, self._since = Counter[str](), time.monotonic()

    @abstractmethod
    def start(self) -> Link:
        """Start a worker."""

    @abstractmethod
    def hear(self, links: Sequence[Link]) -> Iterable[tuple[Link, tuple[Any, ...] | None]]:
        """Wait for messages of the workers; None is the message of a dead one. May return without any."""

    def rest(self) -> None:  # noqa: B027
        """Make room for processes that train. By default, workers keep all that they have."""

    def close(self) -> None:
        """End all workers. A later stage would start new ones."""
        while self.links:
            self.links.pop().close()

    def load(self, job: Job) -> None:
        """Begin a job in every worker that runs, and so load its models. Raises what the job raises."""
        _Stage(self, job, "", deque(), None, 1).run()

    def stage(self, job: Job, kind: str) -> Execute:
        """Does the items of a job that makes records of a kind (`store.run.TREE`, `TRAJECTORY`)."""

        def execute(items: Sequence[Item], to: Collection, *, in_flight: int, sessions: int) -> None:
            if items:
                self._done, self._since = Counter(), time.monotonic()
                _Stage(self, job, kind, deque(items), to, in_flight).run()

        return execute

    def missing(self, n: int) -> list[Link]:
        """The first `n` workers; those that are missing are started."""
        while len(self.links) < n:
            self.links.append(self.start())
        return self.links[:n]

    def lose(self, link: Link) -> None:
        """Forget a worker that died."""
        link.close()
        self.links.remove(link)

    def count(self, link: Link) -> None:
        """Count an item that the worker finished."""
        if link.node:
            self._done[link.node] += 1

    def __str__(self) -> str:
        """Items per second and node, for a status line; empty for workers of this machine."""
        seconds = max(time.monotonic() - self._since, 1e-9)
        rates = sorted((n / seconds, node) for node, n in self._done.items())
        if len(rates) <= LISTED:
            return ", ".join(f"{node} {rate:.2f}/s" for rate, node in reversed(rates))
        return f"{len(rates)} nodes, {rates[0][0]:.2f}/s ({rates[0][1]}) to {rates[-1][0]:.2f}/s ({rates[-1][1]})"


class _Stage:
    """One job: its items that are left, and how many workers died over each. Workers share `in_flight`: a
    server may have no more sessions, and a worker keeps those that it has opened."""

    def __init__(
        self, crew: Workers, job: Job, kind: str, queue: deque[Item], to: Collection | None, in_flight: int
    ) -> None:
        self.crew, self.job, self.kind, self.queue, self.to = crew, job, kind, queue, to
        self.num_workers = min(crew.num_workers, len(queue), in_flight) if queue else crew.num_workers
        self.each, self.rest = divmod(in_flight, self.num_workers)
        self.larger = set[Link]()  # the `rest` workers that have one more
        self.deaths: Counter[str] = Counter()
        self.stillborn = 0

    def run(self) -> None:
        """Return when all items are done. On any exception, all workers are ended."""
        try:
            while not self._is_done(workers := self._workers()):
                self._hand_out(workers)
                for worker, message in self.crew.hear(workers):
                    if message is None:
                        self._mourn(worker)
                    else:
                        self._follow(worker, *message)
            for worker in workers:
                worker.send("rest")
        except BaseException:
            self.crew.close()
            raise

    def _is_done(self, workers: Sequence[Link]) -> bool:
        """Whether no item is left. Without items: whether every worker that runs has begun, and one does."""
        if self.to is not None:
            return not self.queue and not any(worker.doing for worker in workers)
        return any(worker.begun for worker in workers) and all(w.begun for w in workers if w.placed)

    def _workers(self) -> list[Link]:
        """The workers of the stage. New ones are told to begin."""
        workers = self.crew.missing(self.num_workers)
        for worker in workers:
            if len(self.larger) < self.rest:
                self.larger.add(worker)
            if worker.job is not self.job:
                worker.job, worker.begun = self.job, False
                worker.send("begin", self.job)
        return workers

    def _hand_out(self, workers: Sequence[Link]) -> None:
        """Give items to the workers with the fewest, as far as there is room, and all the store's new dictionaries."""
        known = self.to.store.dictionaries if self.to is not None else {}
        for worker in workers:
            if worker.begun and worker.num_dictionaries < len(known):
                worker.num_dictionaries = len(known)
                worker.send("dictionaries", dict(known))
        while self.queue and (able := [w for w in workers if w.begun and self._has_room(w, self.queue[0])]):
            item, worker = self.queue.popleft(), min(able, key=lambda w: len(w.doing))
            worker.doing[item.key] = item
            worker.send("do", item, self._partial(item))

    def _has_room(self, worker: Link, item: Item) -> bool:
        if self.deaths[item.key] >= ALONE:
            return not worker.doing
        alone = any(self.deaths[key] >= ALONE for key in worker.doing)
        return not alone and len(worker.doing) < self.each + (worker in self.larger)

    def _partial(self, item: Item) -> PartialTree | StoreError | None:
        assert self.to is not None
        try:
            return self.to.store.partial(self.to.stage, item.task.seed) if self.kind == TREE else None
        except StoreError as error:  # the search drops a damaged tree
            return error

    def _follow(self, worker: Link, what: str, *values: Any) -> None:
        """Follow one message."""
        if what == "begun":
            worker.begun, self.stillborn = True, 0
            if self.to is not None:
                self.to.on_growth({})
        elif what == "failed":
            raise values[0]
        elif self.to is None:
            raise RuntimeError(f"a worker without items must say nothing; got {what}")
        elif what == "page":
            self.to.resets.shown() if values[0] is None else self.to.resets.failed(*values[0])
        elif what == "grew":
            self.to.grew(*values)
        elif what == "partial":
            (packed,) = values
            self.to.store.add(self.to.stage, PARTIAL, str(packed.seed), packed)
        elif what == "drop":
            self.to.store.drop_partial(self.to.stage, *values)
        else:
            key, found, used = values
            self.crew.usage += used
            self.crew.count(worker)
            self.to.keep(worker.doing.pop(key), found)

    def _mourn(self, worker: Link) -> None:
        """Queue the items of a dead worker again, last. Keep those that died too often as broken."""
        self.crew.lose(worker)
        self.larger.discard(worker)
        why = f", the last: {worker.died}" if worker.died else ""
        if not worker.begun:
            self.stillborn += 1
            if self.stillborn >= DEATHS:
                raise ModelError(
                    f"a worker process must load the models; {DEATHS} died while loading{why}: "
                    "free memory, or use --run.executor inline"
                )
        fault = Broken(WORKER_LOST, f"{DEATHS} worker processes died over this task{why}")
        for key, item in worker.doing.items():
            self.deaths[key] += 1
            if self.deaths[key] < DEATHS:
                self.queue.append(item)
            elif self.to is not None:
                info = {"attempt": item.attempt}
                tree = self.kind == TREE
                broken = broken_tree(item.task, fault) if tree else broken_episode(item.task, fault, info)
                self.to.keep(item, finished(broken))
