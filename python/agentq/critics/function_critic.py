"""The critic over a user's function or object, which scores actions in its own way."""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from typing import Any

from agentq.critics.protocol import Critic
from agentq.errors import ModelError
from agentq.types import EnvAction, History

Score = Callable[[History, Sequence[EnvAction | None]], Sequence[float] | Awaitable[Sequence[float]]]


class FunctionCritic:
    """`Critic` over `score(history, actions)`, plain or async, which returns a number in [0, 1] per action.

    An action that could not be read is None.
    """

    def __init__(self, score: Score) -> None:
        self.score = score

    async def rank(self, history: History, proposals: Sequence[EnvAction | None], *, seed: int) -> list[float]:
        """See `Critic.rank`. Raises ModelError if the function returns something else."""
        given = self.score(history, proposals)
        scores = await given if inspect.isawaitable(given) else given
        name = getattr(self.score, "__name__", type(self.score).__name__)
        return _checked(f"{name}(history, actions)", scores, len(proposals))


class CheckedCritic:
    """A user's own `Critic`, whose values are checked."""

    def __init__(self, given: Critic) -> None:
        self.given = given

    async def rank(self, history: History, proposals: Sequence[EnvAction | None], *, seed: int) -> list[float]:
        """See `Critic.rank`. Raises ModelError if the critic returns something else."""
        found: Any = self.given.rank(history, proposals, seed=seed)
        scores = await found if inspect.isawaitable(found) else found
        return _checked(f"{type(self.given).__name__}.rank", scores, len(proposals))


def _checked(called: str, scores: Any, n: int) -> list[float]:
    """The `n` numbers that were returned. Raises ModelError if they are others."""
    try:
        if isinstance(scores, Mapping | Set):  # their order is not that of the actions
            raise TypeError
        found = [float(score) for score in scores]
    except (TypeError, ValueError):
        got = " ".join(repr(scores).split())
        raise ModelError(f"{called} must return a list of numbers; got {got:.60}") from None
    if len(found) != n:
        raise ModelError(f"{called} must return a number per action, here {n}; got {len(found)}")
    if wrong := [score for score in found if not (math.isfinite(score) and 0.0 <= score <= 1.0)]:
        raise ModelError(f"{called} must return numbers in [0, 1]; got {wrong[0]}")
    return found
