"""Model calls of many concurrent searches become few batched calls. Owns when a batch goes out, not what is in it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from agentq.critics.protocol import Critic
from agentq.policies.protocol import Policy
from agentq.types import EnvAction, History, Proposal


def request_seed(*parts: int) -> int:
    """A 64-bit seed from a tuple of integers (run seed, task seed, counter): the same tuple, the same samples."""
    return int(np.random.SeedSequence([part & 0xFFFFFFFF for part in parts]).generate_state(1, np.uint64)[0])


@dataclass(slots=True)
class _Request:
    kind: tuple[Any, ...]  # requests of one kind can share a call
    args: tuple[Any, ...]
    future: asyncio.Future[Any]


@dataclass(slots=True)
class Batcher:
    """Collects requests from coroutines and sends each kind as one call in a worker thread, one call at a time.

    A batch goes out when no coroutine can add to it any more (all are waiting), so batches are as full as the work
    allows. Results depend on the request alone, never on what else was in its batch.
    """

    policy: Policy
    critic: Critic | None = None
    _pending: list[_Request] = field(default_factory=list)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _pump: asyncio.Task[None] | None = None
    calls: int = 0
    requests: int = 0

    async def propose(self, history: History, k: int, *, seed: int, temperature: float) -> list[Proposal]:
        """`Policy.propose` for one history."""
        result: list[Proposal] = await self._submit(("propose", k, temperature), (history, seed))
        return result

    async def rank(self, history: History, proposals: Sequence[EnvAction | None], *, seed: int) -> list[float]:
        """`Critic.rank` for one node."""
        result: list[float] = await self._submit(("rank",), (history, list(proposals), seed))
        return result

    async def _submit(self, kind: tuple[Any, ...], args: tuple[Any, ...]) -> Any:
        request = _Request(kind, args, asyncio.get_running_loop().create_future())
        self._pending.append(request)
        self._wake.set()
        if self._pump is None or self._pump.done():
            self._pump = asyncio.create_task(self._run())
        return await request.future

    async def _run(self) -> None:
        while True:
            while not self._pending:
                self._wake.clear()
                await self._wake.wait()
            await self._settle()
            kind = max({r.kind for r in self._pending}, key=lambda kind: sum(r.kind == kind for r in self._pending))
            batch = [r for r in self._pending if r.kind == kind]
            self._pending = [r for r in self._pending if r.kind != kind]
            self.calls += 1
            self.requests += len(batch)
            try:
                results = await asyncio.to_thread(self._call, kind, [r.args for r in batch])
            except Exception as error:  # a model that fails fails its callers, not the pump
                for r in batch:
                    if not r.future.done():
                        r.future.set_exception(error)
                continue
            for r, result in zip(batch, results, strict=True):
                if not r.future.done():
                    r.future.set_result(result)

    async def _settle(self) -> None:
        """Wait until a pass of the event loop adds no request."""
        while True:
            before = len(self._pending)
            for _ in range(3):
                await asyncio.sleep(0)
            if len(self._pending) == before:
                return

    def _call(self, kind: tuple[Any, ...], args: list[tuple[Any, ...]]) -> Sequence[Any]:
        if kind[0] == "propose":
            histories, seeds = zip(*args, strict=True)
            return self.policy.propose(histories, kind[1], seeds=seeds, temperature=kind[2])
        if self.critic is None:
            raise ValueError("a critic must be given before nodes can be ranked; got none")
        histories, proposals, seeds = zip(*args, strict=True)
        return self.critic.rank(histories, proposals, seeds=seeds)

    def close(self) -> None:
        """Stop the pump; pending requests are cancelled."""
        if self._pump is not None:
            self._pump.cancel()
        for r in self._pending:
            r.future.cancel()
        self._pending.clear()
