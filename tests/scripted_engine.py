"""An engine whose answers a test writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from agentq.agent.prompts import Messages
from agentq.policies.protocol import Gives, Prompt, SampledAnswer, SampleRequest
from agentq.policies.usage import Usage
from agentq.types import History, StopReason

NOTHING = np.empty(0, np.int32)


class Scripted:
    """`Engine` that answers `answer(role, what the user said)`, ten tokens for a hundred.

    Where that is a list, its texts are the k samples in turn. `letter_logps` tells the letters' log-probabilities.
    """

    name, version = "scripted", 0

    def __init__(
        self,
        answer: Callable[[str, str], str | list[str]],
        letter_logps: Callable[[str], tuple[float, ...]] = lambda text: (),
        gives: Gives = Gives.TEXT,
    ) -> None:
        self.answer, self.letter_logps, self.gives, self.usage = answer, letter_logps, gives, Usage()
        self.asked: list[str] = []
        self.requests: list[SampleRequest] = []

    def render(self, history: History, compose: Callable[[History], Messages], *, max_new_tokens: int) -> Prompt:
        return Prompt(compose(history), NOTHING)

    def encode_answer(self, text: str) -> np.ndarray:
        return NOTHING

    async def sample(self, request: SampleRequest) -> list[SampledAnswer]:
        tally = self.usage.of(request.role)
        tally.requests, tally.prompt_tokens = tally.requests + 1, tally.prompt_tokens + 100
        tally.cached_tokens, tally.generated_tokens = tally.cached_tokens + 40, tally.generated_tokens + 10
        text = request.prompt.messages[-1]["content"]
        self.asked.append(text)
        self.requests.append(request)
        said = self.answer(request.role, text)
        said = said if isinstance(said, list) else [said]
        return [
            SampledAnswer(
                *(said[i % len(said)], NOTHING, NOTHING.astype(np.float32), StopReason.EOS, 0), self.letter_logps(text)
            )
            for i in range(request.k)
        ]

    def publish(self, checkpoint: Path) -> int:
        raise NotImplementedError

    def close(self) -> None:
        """There is nothing to let go of."""
