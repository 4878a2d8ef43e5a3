"""Requests of many coroutines join one decoding as they come and are answered as they end. Owns when a step begins."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from agentq.policies.decoding import Answering, Decoding
from agentq.policies.protocol import SampledAnswer, SampleRequest

Future = asyncio.Future[list[SampledAnswer]]


class Stepping:
    """Steps in a thread while requests are under way.

    A step begins when no coroutine can add a request to it any more (all are waiting), so steps are as full as the work
    allows. A request whose caller was cancelled leaves.
    """

    def __init__(self, begin: Callable[[], Decoding]) -> None:
        self._begin = begin
        self._new: list[tuple[SampleRequest, int, Future]] = []
        self._task: asyncio.Task[None] | None = None

    async def submit(self, request: SampleRequest, version: int) -> list[SampledAnswer]:
        """The samples of a request, marked with `version`. Raises what computing it raises."""
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
                    ended = await asyncio.to_thread(self._advance, decoding)
                except Exception as error:  # a model that fails fails its callers
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
        """Add what is new and take out what was cancelled."""
        new, self._new = self._new, []
        for request, version, future in new:
            try:
                futures[decoding.add(request, version)] = future
            except Exception as error:  # of its pattern
                future.set_exception(error)
        for answering in [a for a, future in futures.items() if future.done()]:
            decoding.remove(answering)
            del futures[answering]

    def _advance(self, decoding: Decoding) -> list[Answering]:
        """Steps until a request ends or another one comes."""
        while not decoding.halted:
            ended = decoding.step()
            if ended or self._new:
                return ended
        return []

    async def _settle(self) -> bool:
        """Wait until a pass of the event loop adds no request; whether there are new ones."""
        while True:
            before = len(self._new)
            for _ in range(3):
                await asyncio.sleep(0)
            if len(self._new) == before:
                break
        self._new = [new for new in self._new if not new[2].done()]
        return bool(self._new)
