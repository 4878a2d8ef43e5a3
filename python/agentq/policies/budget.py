"""An engine with a budget of calls, seconds or money. The first limit reached ends it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from math import inf

from agentq.errors import BudgetSpent
from agentq.policies.protocol import Engine, SampledAnswer, SampleRequest
from agentq.policies.usage import Price
from agentq.policies.wrapped import Wrapped


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
                    self.ended = f"the limit of {most:g} {what} is reached"
        if self.ended:
            raise BudgetSpent(self.ended)

    def spent(self) -> list[tuple[str, float, float]]:
        """(unit, used, limit) of each limit."""
        return [
            ("calls", sum(engine.calls for engine in self.engines), self.calls),
            ("seconds", time.monotonic() - self.begun, self.seconds),
            ("money", sum(engine.cost for engine in self.engines), self.money),
        ]


class Budgeted(Wrapped):
    """`Engine` whose requests count against a budget. Requests already running when it is spent are still answered."""

    def __init__(self, engine: Engine, budget: Budget, price: Price | None = None) -> None:
        super().__init__(engine)
        self.budget, self.price = budget, price or Price()
        self.calls, self._before = 0, engine.usage.total
        budget.engines.append(self)

    @property
    def cost(self) -> float:
        """Money spent through the engine since this object was made."""
        return self.price.of(self.usage.total - self._before)

    async def sample(self, request: SampleRequest) -> list[SampledAnswer]:
        """See `Engine.sample`. Raises BudgetSpent."""
        self.budget.check()
        self.calls += 1
        return await super().sample(request)
