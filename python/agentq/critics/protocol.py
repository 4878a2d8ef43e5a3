"""A Critic ranks the proposals of a node before any is tried; a Judge decides the reward of an episode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from agentq.types import EnvAction, History, StepResult


class Critic(Protocol):
    """Ranks proposals."""

    async def rank(self, history: History, proposals: Sequence[EnvAction | None], *, seed: int) -> list[float]:
        """critic_value in [0, 1] of each proposal, in the order given: 1 for the best rank, 0 for the worst.

        `(K - r) / (K - 1)` for rank r of K (linear; this map is ours, the paper gives none); 0.5 if K = 1.
        """
        ...


class Judge(Protocol):
    """Decides about episodes of environments without a checker."""

    async def settle(self, history: History, result: StepResult) -> StepResult:
        """The result of an episode's last step, which led to `history`, with the verdict as reward."""
        ...
