"""Requests of many coroutines become few calls of an engine that computes batches. Owns when a batch goes out."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")


@dataclass(slots=True)
class _Waiting(Generic[Item]):
    kind: Hashable
    item: Item
    future: asyncio.Future[Any]
    since: float


class Batches(Generic[Item, Answer]):
    """Sends what waits, one kind a call and one call at a time, to `compute` in a thread.

    A batch goes out when no coroutine can add to it any more (all are waiting), so batches are as full as the work
    allows; what is cancelled meanwhile leaves it. `compute(items, queue_s)`: an answer each; `queue_s` is how long each
    item waited.
    """

    def __init__(self, compute: Callable[[list[Item], list[float]], Sequence[Answer]]) -> None:
        self.compute = compute
        self._waiting: list[_Waiting[Item]] = []
        self._sender: asyncio.Task[None] | None = None

    async def submit(self, kind: Hashable, item: Item) -> Answer:
        """The answer to `item`, which may share a call with others of its kind. Raises what the call raises."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(kind, item, future, time.perf_counter()))
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send())
        return await future

    async def _send(self) -> None:
        while await self._settle():
            kind = Counter(w.kind for w in self._waiting).most_common(1)[0][0]
            batch = [w for w in self._waiting if w.kind == kind]
            self._waiting = [w for w in self._waiting if w.kind != kind]
            now = time.perf_counter()
            try:
                items, waited = [w.item for w in batch], [now - w.since for w in batch]
                answers = await asyncio.to_thread(self.compute, items, waited)
            except Exception as error:  # a model that fails fails its callers
                for w in batch:
                    if not w.future.done():
                        w.future.set_exception(error)
                continue
            for w, answer in zip(batch, answers, strict=True):
                if not w.future.done():
                    w.future.set_result(answer)

    async def _settle(self) -> bool:
        """Wait until a pass of the event loop adds no request; whether any waits."""
        while True:
            before = len(self._waiting)
            for _ in range(3):
                await asyncio.sleep(0)
            if len(self._waiting) == before:
                break
        self._waiting = [w for w in self._waiting if not w.future.done()]
        return bool(self._waiting)
