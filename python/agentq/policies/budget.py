"""An engine with a budget of calls, seconds or money. The first limit reached ends it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

import numpy as np

from agentq.agent.prompts import Messages
from agentq.errors import BudgetSpent
from agentq.policies.protocol import Engine, Prompt, SampledAnswer, SampleRequest
from agentq.policies.usage import Price, Usage
from agentq.types import History


@dataclass(slots=True)
class Budget:
    """Limits for all engines that share it, counted from its creation. `ended`: why it is spent, or empty."""

    calls: float = inf
    seconds: float = inf
    money: float = inf
    begun: float = field(default_factory=time.monotonic)
    engines: list[Budgeted] = field(default_factory=list)
    ended: str = ""

    def check(self) -> None:
        """Raises BudgetSpent once a limit is reached or the budget has `ended`."""
        if not self.ended:
            for what, used, most in self.spent():
                if used >= most:
                    self.ended = f"a run may take at most {most:g} {what}; got {used:g}"
        if self.ended:
            raise BudgetSpent(self.ended)

    def spent(self) -> list[tuple[str, float, float]]:
        """(unit, used, limit) of each limit."""
        return [
            ("calls", sum(engine.calls for engine in self.engines), self.calls),
            ("seconds", time.monotonic() - self.begun, self.seconds),
            ("money", sum(engine.cost for engine in self.engines), self.money),
        ]


class Budgeted:
    """`Engine` whose requests count against a budget. Requests already running when it is spent are still answered."""

    def __init__(self, engine: Engine, budget: Budget, price: Price | None = None) -> None:
        self.engine, self.budget, self.price = engine, budget, price or Price()
        self.name, self.gives = engine.name, engine.gives
        self.calls, self._before = 0, engine.usage.total
        budget.engines.append(self)

    @property
    def cost(self) -> float:
        """Money spent through the engine since this object was made."""
        return self.price.of(self.usage.total - self._before)

    @property
    def version(self) -> int:
        return self.engine.version

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
        """See `Engine.sample`. Raises BudgetSpent."""
        self.budget.check()
        self.calls += 1
        return await self.engine.sample(request)

    def publish(self, checkpoint: Path) -> int:
        """See `Engine.publish`."""
        return self.engine.publish(checkpoint)

    def close(self) -> None:
        """See `Engine.close`."""
        self.engine.close()
