"""Selection in search: its settings, the forest made from them, the priors of a node's proposals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agentq._core import Forest
from agentq.config import GO_WIDER, Selection, check_search
from agentq.envs.protocol import ROUNDING
from agentq.errors import ConfigError, check_integers, check_numbers
from agentq.seeds import Stream, derive_seed, task_seed
from agentq.types import Proposal, Task

__all__ = ["GO_WIDER", "NEED_PRIORS", "SearchSettings", "check_forest", "forest_for", "priors", "taken_return"]

NEED_PRIORS = ("puct", "gumbel")
_AT_LEAST_1 = ("num_iterations", "num_proposals", "leaves_in_flight")
MOST_SIMULATIONS = (1 << 32) - 1  # the core's limit for gumbel


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """`num_iterations` rollouts per tree; `stop_on_success` ends a tree at its first success (test-time search).

    `leaves_in_flight` rollouts of the tree run concurrently, each in its own session. A search ends before it would
    sample more than `max_calls` actions; 0: no limit. A path ends after `max_unreadable` unreadable actions in a row;
    0: never.

    Raises:
        ConfigError: if an argument is no number or out of range, there is no such selection rule, or it cannot work
            with the other settings.
    """

    num_iterations: int = 10
    num_proposals: int = 5
    temperature: float = 1.0
    c_exp: float = 1.0
    stop_on_success: bool = False
    seed: int = 0
    selection: Selection = "ucb1"
    leaves_in_flight: int = 1
    alpha: float = 1.0
    max_calls: int = 0
    max_unreadable: int = 0

    def __post_init__(self) -> None:
        check_integers(**{name: getattr(self, name) for name in (*_AT_LEAST_1, "seed", "max_calls", "max_unreadable")})
        check_numbers(temperature=self.temperature, c_exp=self.c_exp, alpha=self.alpha)
        for name in _AT_LEAST_1:
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1; got {getattr(self, name)}")
        for name, most in (("temperature", math.inf), ("c_exp", math.inf), ("alpha", 1.0)):
            value = getattr(self, name)
            if not (0 <= value <= most and math.isfinite(value)):
                above = " and at most 1" if most == 1 else ""
                raise ConfigError(f"{name} must be finite, at least 0{above}; got {value}")
        check_search(self.selection, self.leaves_in_flight, self.alpha)
        if self.selection == "gumbel" and self.num_iterations > MOST_SIMULATIONS:
            raise ConfigError(
                "search.selection must not be gumbel if the number of rollouts is not known beforehand, "
                "since it divides them among the first actions; got gumbel"
            )

    def share(self, rollouts: int, calls: int) -> float:
        """The share of a search's rollouts or calls that is done, whichever is larger, between 0 and 1."""
        return min(1.0, max(rollouts / self.num_iterations, calls / self.max_calls if self.max_calls else 0.0))


def forest_for(settings: SearchSettings, task: Task | None = None) -> Forest:
    """A forest with the settings' selection rule. The seed and the task determine the draws of gumbel and thompson.

    Those draws also depend on the tree's number in its forest. With one forest per task, they do not depend on which
    other tasks are searched.
    """
    stream = Stream.SELECTION
    seed = task_seed(settings.seed, task, stream) if task else derive_seed(settings.seed, stream)
    return Forest(
        selection=settings.selection,
        c_exp=settings.c_exp,
        alpha=settings.alpha,
        exhaust=True,
        seed=seed,
        num_simulations=settings.num_iterations if settings.selection == "gumbel" else 0,
    )


def check_forest(forest: Forest, settings: SearchSettings, task: Task) -> None:
    """Raises ValueError if the forest's settings differ from those of `forest_for`."""
    wanted = forest_for(settings, task)
    for name in ("selection", "c_exp", "alpha", "exhaust", "seed", "num_simulations", "max_considered", "gumbel_scale"):
        want, got = getattr(wanted, name), getattr(forest, name)
        if got != want:
            raise ValueError(f"forest.{name} must be {want!r} for this search; got {got!r}")


def taken_return(selection: Selection, env: str, value: float) -> float:
    """An episode's return as the selection rule takes it: without what rounding added.

    Raises:
        ConfigError: if the rule cannot take it.
    """
    if selection != "thompson_beta":
        return value
    taken = min(max(value, 0.0), 1.0)
    if abs(taken - value) > ROUNDING:
        raise ConfigError(
            f"the returns of {env} must be in [0, 1] for search.selection thompson_beta; got {value:g}: "
            "use thompson_gaussian"
        )
    return taken


def priors(proposals: Sequence[Proposal]) -> np.ndarray:
    """P(a | h) of a node's distinct proposals, `[K]` float64: the softmax of their log-probabilities.

        P_i = exp(log pi_b(a_i | h)) / sum_j exp(log pi_b(a_j | h))

    log pi_b sums over all tokens of the composite action, at temperature 1. It is not divided by the length (ours): P
    is the policy's probability of the action given that it is one of these, which a mean per token would not be.

    Raises:
        ConfigError: if the engine returns no log-probabilities.
    """
    logps = np.array([p.action_logp if len(p.logps) else np.nan for p in proposals])
    if not np.isfinite(logps).all():
        raise ConfigError(
            f"search.selection must not be {' or '.join(NEED_PRIORS)} with an engine that reports no log-probabilities"
            ", which are the priors; use ucb1"
        )
    weights = np.exp(logps - logps.max())
    shares: np.ndarray = weights / weights.sum()
    return shares
