"""The Policy contract: histories in, proposals out, with the token ids and log-probabilities that training needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from agentq.types import History, Proposal


class Policy(Protocol):
    """Samples actions. One call serves many histories; each history's prompt is prefilled once for its k proposals."""

    @property
    def version(self) -> int:
        """Of the weights; marks every proposal."""
        ...

    def propose(
        self, histories: Sequence[History], k: int, *, seeds: Sequence[int], temperature: float = 1.0
    ) -> list[list[Proposal]]:
        """`k` proposals for each history.

        Args:
            histories: `[B]` what to act on.
            k: proposals a history, at least 1.
            seeds: `[B]` one a history; equal (history, k, seed, version) gives equal samples in any batch.
            temperature: sampling temperature, at least 0; 0 is greedy. Recorded log-probabilities are always at 1.
        """
        ...
