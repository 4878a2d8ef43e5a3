"""The common part of engines that start each request as soon as a slot is free: slots, usage, publishing."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from pydantic import ValidationError

from agentq.agent.prompts import Messages
from agentq.errors import ModelError
from agentq.policies.background import Background
from agentq.policies.fence import Fence
from agentq.policies.fitting import about, estimated, fitted
from agentq.policies.protocol import Gives, Prompt, SampledAnswer, SampleRequest
from agentq.policies.renderer import NO_LIMIT, Renderer
from agentq.policies.usage import Usage
from agentq.types import History


@dataclass(frozen=True, slots=True)
class EngineReply:
    """The samples of one request, and its numbers of tokens."""

    samples: list[SampledAnswer]
    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int


class ContinuousEngine(ABC):
    """An `Engine` with at most `slots` running requests. Subclasses answer one request and load weights."""

    def __init__(self, name: str, gives: Gives, renderer: Renderer | None, *, slots: int) -> None:
        """Without a `renderer`, prompts are sent as messages and no token ids are known."""
        if slots < 1:
            raise ValueError(f"slots must be at least 1; got {slots}")
        self.name, self.gives, self.renderer, self.slots = name, gives, renderer, slots
        self.fence, self.context = Fence(), 0  # for messages, whose template is elsewhere; 0: no limit of tokens
        self.begins = ""  # the thinking that this template begins, once an answer has ended it
        self.version = 0
        self.usage = Usage()
        self._background = Background(name)
        self._free = asyncio.Semaphore(slots)
        self._publishing, self._open = asyncio.Lock(), asyncio.Event()
        self._open.set()
        self._under_way, self._since = 0, 0.0

    @abstractmethod
    async def _ask(self, request: SampleRequest) -> EngineReply:
        """One request's answer, of `request.k` samples."""

    @abstractmethod
    async def _load(self, checkpoint: Path) -> None:
        """Serve the weights of a checkpoint or an adapter and forget cached prefixes.

        Called while no request runs. If it raises, the old weights are served as before.
        """

    def render(self, history: History, compose: Callable[[History], Messages], *, max_new_tokens: int) -> Prompt:
        """See `Engine.render`."""
        if self.renderer is None:
            room, write = (self.context or NO_LIMIT) - max_new_tokens, partial(self._write, compose)
            return fitted(history, room, write, about, thinking=self.begins)
        return self.renderer.render(history, compose, max_new_tokens=max_new_tokens)

    def _write(self, compose: Callable[[History], Messages], history: History) -> tuple[Messages, np.ndarray, int]:
        """Messages for a server that renders them, without ids, and an estimate of their tokens."""
        messages = self.fence.messages(compose(history))
        return messages, np.empty(0, dtype=np.int32), estimated(messages) if self.context else 0

    def encode_answer(self, text: str) -> np.ndarray:
        """See `Engine.encode_answer`."""
        return np.empty(0, dtype=np.int32) if self.renderer is None else self.renderer.encode_answer(text)

    async def sample(self, request: SampleRequest) -> list[SampledAnswer]:
        """See `Engine.sample`. Cancelling it also ends the computation."""
        if self.renderer is not None:
            self.renderer.check(request.prompt.ids, request.max_new_tokens)
        return await self._background.run(self._sample(request))

    async def _sample(self, request: SampleRequest) -> list[SampledAnswer]:
        arrived = time.perf_counter()
        asked = replace(request, k=1) if request.temperature == 0 else request  # all k would be equal
        await self._open.wait()
        async with self._free:
            began = time.perf_counter()
            with self._computing():
                answer = await self._ask(asked)
        tally = self.usage.of(request.role)
        tally.requests += 1
        tally.prompt_tokens += answer.prompt_tokens
        tally.shortened += request.prompt.shortened > 0
        tally.cached_tokens += answer.cached_tokens
        tally.generated_tokens += answer.generated_tokens
        tally.queue_s += began - arrived
        return answer.samples * (request.k // asked.k)

    @contextmanager
    def _computing(self) -> Iterator[None]:
        """Count the time in which at least one request is running."""
        if self._under_way == 0:
            self._since = time.perf_counter()
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1
            if self._under_way == 0:
                self.usage.seconds += time.perf_counter() - self._since

    def publish(self, checkpoint: Path | str) -> int:
        """See `Engine.publish`. Waits for running requests; later ones get the new weights."""
        return self._background.wait(self._publish(Path(checkpoint)))

    async def _publish(self, checkpoint: Path) -> int:
        async with self._publishing:
            self._open.clear()
            try:
                async with AsyncExitStack() as slots:
                    for _ in range(self.slots):
                        await slots.enter_async_context(self._free)
                    await self._load(checkpoint)
                    self.version += 1
            except Exception as error:
                raise ModelError(
                    f"{self.name} must be able to load what is published; got {checkpoint}: {last_line(error)}; "
                    f"version {self.version} stays"
                ) from error
            finally:
                self._open.set()
        return self.version

    def close(self) -> None:
        """See `Engine.close`."""
        self._background.close()


def last_line(error: Exception) -> str:
    """Last line of the error message, or the class name if it is empty. pydantic's last line is a link."""
    text = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else type(error).__name__
