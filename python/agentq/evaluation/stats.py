"""Success rates with their uncertainty, and the comparison of two agents on the same tasks. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from fractions import Fraction
from functools import cache
from statistics import NormalDist, fmean
from typing import Any

import numpy as np

from agentq.notebook import rung_table


def wilson(successes: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval of a success rate.

        (p + z^2/2n -+ z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n),    p = successes / n

    Args:
        successes: in [0, n].
        n: trials, at least 1.
        confidence: two-sided, in (0, 1).

    Returns:
        (low, high), in [0, 1]; exactly 0 or 1 if no or all trials succeed.

    Source: Wilson 1927, J. Am. Stat. Assoc. 22, 209-212.
    """
    if n < 1:
        raise ValueError(f"n must be at least 1; got {n}")
    if not 0 <= successes <= n:
        raise ValueError(f"successes must be in [0, {n}]; got {successes}")
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must be in (0, 1); got {confidence}")
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    p = successes / n
    centre = p + z * z / (2 * n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    low = 0.0 if successes == 0 else (centre - half) / scale
    high = 1.0 if successes == n else (centre + half) / scale
    return low, high


def mcnemar_p(only_a: int, only_b: int) -> float:
    """Two-sided exact McNemar test: the probability of a split at least as uneven among tasks that only one agent
    solved.

    `2 * P(X <= min(only_a, only_b))`, X ~ Binomial(only_a + only_b, 1/2), at most 1; 1 if the agents never differ.

    Source: McNemar 1947, Psychometrika 12, 153-157; exact form: Cochran 1950.
    """
    if only_a < 0 or only_b < 0:
        raise ValueError(f"counts must be at least 0; got {only_a} and {only_b}")
    m, k = only_a + only_b, min(only_a, only_b)
    tail = term = 1  # exact integers: C(m, 0), C(m, 1), ..
    for i in range(k):
        term = term * (m - i) // (i + 1)
        tail += term
    return min(1.0, float(Fraction(2 * tail, 2**m)))


@dataclass(frozen=True, slots=True)
class PairedResult:
    """Success rate of a minus that of b on the same tasks, in [-1, 1], with its interval and McNemar's exact p."""

    diff: float
    low: float
    high: float
    p_value: float


def paired_difference(
    a: Sequence[bool], b: Sequence[bool], confidence: float = 0.95, *, broken: Sequence[bool] | None = None
) -> PairedResult:
    """Compare two agents task by task.

    Args:
        a: `[n]` success of the first agent, n at least 1.
        b: `[n]` success of the second on the same tasks in the same order.
        broken: `[n]` whether the world broke the task for either agent; such tasks are left out.

    Raises:
        ValueError: if the lengths differ, no task is left, or a success is neither true nor false, such as a share of
            attempts, which `evaluation.seeds.seed_difference` compares.

    Source: interval: Newcombe 1998, Stat. Med. 17, 2635-2650, method 10 (score intervals of both rates, joined with the
    corrected correlation of the pairs).
    """
    for told in (a, b):
        if (wrong := next((x for x in told if x not in (0, 1)), None)) is not None:
            raise ValueError(f"a success must be true or false; got {wrong}")
    first, second = np.asarray(a, bool), np.asarray(b, bool)
    if first.ndim != 1 or first.shape != second.shape or len(first) == 0:
        raise ValueError(f"a and b must be equally long and not empty; got shapes {first.shape} and {second.shape}")
    if broken is not None:
        left = ~np.asarray(broken, bool)
        if left.shape != first.shape or not left.any():
            raise ValueError(f"broken must leave one of {len(first)} tasks at least; got {left.sum()} of {len(left)}")
        first, second = first[left], second[left]
    n = len(first)
    both, only_a = int((first & second).sum()), int((first & ~second).sum())
    only_b = int((~first & second).sum())
    neither = n - both - only_a - only_b
    wins_a, wins_b = both + only_a, both + only_b
    rate_a, rate_b = wins_a / n, wins_b / n
    low_a, high_a = wilson(wins_a, n, confidence)
    low_b, high_b = wilson(wins_b, n, confidence)
    phi = _corrected_phi(both, only_a, only_b, neither)
    diff = rate_a - rate_b
    below = _joined(rate_a - low_a, high_b - rate_b, phi)
    above = _joined(high_a - rate_a, rate_b - low_b, phi)
    return PairedResult(diff, diff - below, diff + above, mcnemar_p(only_a, only_b))


def _corrected_phi(both: int, only_a: int, only_b: int, neither: int) -> float:
    """Correlation of the pairs; a positive one's numerator is lowered by n/2, not below 0 (Newcombe)."""
    n = both + only_a + only_b + neither
    product = (both + only_a) * (only_b + neither) * (both + only_b) * (only_a + neither)
    if product == 0:
        return 0.0
    cross = both * neither - only_a * only_b
    return (max(cross - n / 2, 0.0) if cross > 0 else float(cross)) / math.sqrt(product)


def _joined(x: float, y: float, phi: float) -> float:
    return math.sqrt(max(0.0, x * x - 2 * phi * x * y + y * y))


@dataclass(frozen=True, slots=True)
class Share:
    """`successes` of `n` tasks, with the 95 % Wilson interval."""

    successes: int
    n: int
    low: float
    high: float

    @property
    def rate(self) -> float:
        """Success rate, in [0, 1]."""
        return self.successes / self.n


@dataclass(frozen=True, slots=True)
class RungResult:
    """One row of the ladder: an agent, solved tasks among `n`, the 95 % Wilson interval, and costs.

    `broken`: tasks that the world broke, which count as not solved; `unbroken` is the rate over the others.
    `seconds` is wall time; `env_steps` and token counts are sums over all tasks; `mean_return` is in reward units.
    `money`: cost of the tokens, 0 without a known price.
    `by_env`: for several environments, `successes`, `n`, `low`, `high` and `broken` of each.
    `stops`: number of unsolved tasks by how they ended, `errors`: of steps by error kind; see `evaluation.endings`.
    `sgc`: scenarios solved in all variants, see `evaluation.scenarios`; None without scenarios.
    `oracle`: N of pass@N, the most rollouts of a task in a search told by the checker; 0: no such search.
    `prompt`: a hash of the tokens of the first prompt, the same in every engine that reads the same; empty if unknown.
    `against_base`: the `PairedResult` against the base on the same tasks, without those that the world broke.
    """

    name: str
    successes: int
    n: int
    low: float
    high: float
    env_steps: int
    prompt_tokens: int
    generated_tokens: int
    seconds: float
    mean_return: float
    mean_steps: float
    by_env: dict[str, dict[str, float]] = field(default_factory=dict)
    money: float = 0.0
    broken: int = 0
    stops: dict[str, int] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)
    against_base: dict[str, float] | None = None
    sgc: dict[str, float] | None = None
    oracle: int = 0
    prompt: str = ""

    def _repr_html_(self) -> str:
        return rung_table([self])

    @property
    def rate(self) -> float:
        """Success rate over all tasks, in [0, 1]."""
        return self.successes / self.n

    @property
    def unbroken(self) -> Share | None:
        """Success over the tasks that the world did not break; None if it broke none, or all."""
        n = self.n - self.broken
        return Share(self.successes, n, *wilson(self.successes, n)) if self.broken and n else None

    @classmethod
    def from_outcomes(
        cls,
        name: str,
        successes: Sequence[bool],
        returns: Sequence[float],
        steps: Sequence[int],
        envs: Sequence[str] = (),
        broken: Sequence[bool] = (),
        *,
        env_steps: int,
        prompt_tokens: int,
        generated_tokens: int,
        seconds: float,
        money: float = 0.0,
    ) -> RungResult:
        """The row of `[n]` outcomes; `steps` are the judged episodes', `env_steps` all that were executed.

        `envs` are the tasks' environments, or none. `broken`: which tasks the world broke, or none; their returns count
        as given, but not their steps.
        """
        n, won, gone = len(successes), sum(map(bool, successes)), [*map(bool, broken)] or [False] * len(successes)
        if not (n == len(returns) == len(steps) == len(gone)):
            lengths = f"{n}, {len(returns)}, {len(steps)}, {len(gone)}"
            raise ValueError(f"successes, returns, steps and broken must be equally long; got {lengths}")
        low, high = wilson(won, n)
        judged = [float(length) for length, lost in zip(steps, gone, strict=True) if not lost]
        mean_return, mean_steps = fmean(map(float, returns)), fmean(judged or [0.0])
        cost = (env_steps, prompt_tokens, generated_tokens, seconds)
        by_env = _by_env(successes, envs, gone)
        return cls(name, won, n, low, high, *cost, mean_return, mean_steps, by_env, money, sum(gone))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; `from_dict` is the inverse. With broken tasks also `unbroken`."""
        more = {"unbroken": asdict(self.unbroken)} if self.unbroken else {}
        return asdict(self) | more

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RungResult:
        """Raises ValueError, naming the key, if one is missing or has another type; unknown keys are ignored."""
        from pydantic import ValidationError

        later = (
            "by_env",
            "money",
            "broken",
            "stops",
            "errors",
            "against_base",
            "sgc",
            "oracle",
            "prompt",
        )  # absent in files of earlier versions
        missing = [f.name for f in fields(cls) if f.name not in values and f.name not in later]
        if missing:
            raise ValueError(f"a rung must have '{missing[0]}'; got {sorted(values)}")
        known = {f.name: values[f.name] for f in fields(cls) if f.name in values}
        try:
            _types().validate_python(known)
        except ValidationError as error:
            (key, *_), wrong = error.errors()[0]["loc"], error.errors()[0]["msg"]
            said = wrong.removeprefix("Input should be ")
            raise ValueError(f"a rung's {key} must be {said}; got {known[str(key)]!r:.60}") from None
        return cls(**known)


@cache
def _types() -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(RungResult)


def _by_env(successes: Sequence[bool], envs: Sequence[str], broken: Sequence[bool]) -> dict[str, dict[str, float]]:
    """Figures of each environment in order of name; none if there is only one."""
    rows = {}
    for env in sorted({*envs}) if len({*envs}) > 1 else ():
        mine = [(bool(won), lost) for won, at, lost in zip(successes, envs, broken, strict=True) if at == env]
        wins, n = sum(won for won, _ in mine), len(mine)
        low, high = wilson(wins, n)
        rows[env] = {"successes": wins, "n": n, "low": low, "high": high, "broken": sum(lost for _, lost in mine)}
    return rows
