"""Collects requests of many coroutines into few batches, and decides when a batch is computed."""

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
    """Sends waiting items to `compute` in a thread: one kind per call, one call at a time.

    A batch is sent once every coroutine waits and none can add to it, so batches are as full as the work allows. Items
    that are cancelled before are left out. `compute(items, queue_s)` returns one answer per item; `queue_s` is how long
    each item waited.
    """

    def __init__(self, compute: Callable[[list[Item], list[float]], Sequence[Answer]]) -> None:
        self.compute = compute
        self._waiting: list[_Waiting[Item]] = []
        self._sender: asyncio.Task[None] | None = None

    async def submit(self, kind: Hashable, item: Item) -> Answer:
        """The answer to `item`, computed together with others of its kind. Raises what `compute` raises."""
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
            except Exception as error:  # reported to every caller
                for w in batch:
                    if not w.future.done():
                        w.future.set_exception(error)
                continue
            for w, answer in zip(batch, answers, strict=True):
                if not w.future.done():
                    w.future.set_result(answer)

    async def _settle(self) -> bool:
        """Wait until a pass of the event loop adds no request. Returns whether any is waiting."""
        while True:
            before = len(self._waiting)
            for _ in range(3):
                await asyncio.sleep(0)
            if len(self._waiting) == before:
                break
        self._waiting = [w for w in self._waiting if not w.future.done()]
        return bool(self._waiting)
