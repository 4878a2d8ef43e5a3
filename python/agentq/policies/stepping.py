"""Requests of many coroutines share one decoding. Each joins when it arrives and is answered when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from agentq.policies.decoding import Answering, Decoding
from agentq.policies.protocol import SampledAnswer, SampleRequest

Future = asyncio.Future[list[SampledAnswer]]


class Stepping:
    """Runs decoding steps in a thread of its own while there are requests.

    In the event loop's threads, which also wait for environments, each of them would keep what torch frees in it.

    A step begins once all coroutines wait and no further request can join it, so steps are as full as possible. A
    request whose caller was cancelled is removed.
    """

    def __init__(self, begin: Callable[[], Decoding]) -> None:
        self._begin = begin
        self._thread = ThreadPoolExecutor(1, "decoding")
        self._new: list[tuple[SampleRequest, int, Future]] = []
        self._task: asyncio.Task[None] | None = None

    async def submit(self, request: SampleRequest, version: int) -> list[SampledAnswer]:
        """The samples of a request, marked with `version`. Raises any error of the computation."""
        future: Future = asyncio.get_running_loop().create_future()
        self._new.append((request, version, future))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        return await future

    async def _run(self) -> None:
        decoding, futures = self._begin(), dict[Answering, Future]()
        try:
            while await self._settle() or futures:
                self._join(decoding, futures)
                if not futures:
                    continue
                try:
                    ended = await asyncio.get_running_loop().run_in_executor(self._thread, self._advance, decoding)
                except Exception as error:  # fails every request in the batch
                    for future in futures.values():
                        if not future.done():
                            future.set_exception(error)
                    decoding, futures = self._begin(), {}
                    continue
                for answering in ended:
                    future = futures.pop(answering)
                    if not future.done():
                        future.set_result(answering.samples)
        finally:
            decoding.halted = True  # the thread may still be in a step

    def _join(self, decoding: Decoding, futures: dict[Answering, Future]) -> None:
        """Add new requests and remove cancelled ones."""
        new, self._new = self._new, []
        for request, version, future in new:
            try:
                futures[decoding.add(request, version)] = future
            except Exception as error:  # an invalid pattern
                future.set_exception(error)
        for answering in [a for a, future in futures.items() if future.done()]:
            decoding.remove(answering)
            del futures[answering]

    def _advance(self, decoding: Decoding) -> list[Answering]:
        """Run steps until a request ends or a new one arrives."""
        while not decoding.halted:
            ended = decoding.step()
            if ended or self._new:
                return ended
        return []

    async def _settle(self) -> bool:
        """Wait until passes of the event loop add no more requests. Returns whether there are new ones."""
        while True:
            before = len(self._new)
            for _ in range(3):
                await asyncio.sleep(0)
            if len(self._new) == before:
                break
        self._new = [new for new in self._new if not new[2].done()]
        return bool(self._new)
