"""The weights below an engine's published adapter: the base beside the policy, in the same batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from agentq.agent.prompts import Messages
from agentq.errors import ModelError
from agentq.policies.protocol import Engine, Prompt, SampledAnswer, SampleRequest
from agentq.policies.usage import Usage
from agentq.types import History


class Unadapted:
    """`Engine` that samples from the first weights of another one, whatever adapters are published to that one."""

    version = 0

    def __init__(self, engine: Engine) -> None:
        self.engine, self.name, self.gives = engine, engine.name, engine.gives

    @property
    def usage(self) -> Usage:
        return self.engine.usage

    def render(self, history: History, compose: Callable[[History], Messages], *, max_new_tokens: int) -> Prompt:
        """See `Engine.render`."""
        return self.engine.render(history, compose, max_new_tokens=max_new_tokens)

    def encode_answer(self, text: str) -> np.ndarray:
        """See `Engine.encode_answer`."""
        return self.engine.encode_answer(text)

    async def sample(self, request: SampleRequest) -> list[SampledAnswer]:
        """See `Engine.sample`."""
        samples = await self.engine.sample(replace(request, adapted=False))
        return [replace(sample, version=self.version) for sample in samples]

    def publish(self, checkpoint: Path) -> int:
        """Raises ModelError: these weights never change."""
        raise ModelError(f"the weights below an adapter must stay as they are; got {checkpoint} to publish")

    def close(self) -> None:
        """Nothing to close: the engine below is closed by its owner."""
