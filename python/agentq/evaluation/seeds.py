"""Intervals that know about training seeds: a method trained again is another model. Pure functions.

Two things vary: the training seed and the task. `over_seeds` covers both for a model trained anew, since each seed's
rate already contains the draw of its tasks. `SeedDifference.low_tasks` and `high_tasks` hold for these trained models
on further tasks only. A claim about a method needs the first.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import fmean, stdev

import numpy as np

RESAMPLES = 2_000


@dataclass(frozen=True, slots=True)
class SeedMean:
    """Mean over seeds with Student's t-interval; -infinity to infinity for one seed."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class SeedDifference:
    """Success of a minus that of b, in [-1, 1]: mean over seeds, t-interval over seeds, and interval over tasks."""

    mean: float
    low: float
    high: float
    low_tasks: float
    high_tasks: float
    by_seed: tuple[float, ...]


def over_seeds(values: Sequence[float], confidence: float = 0.95) -> SeedMean:
    """Mean of one number per training seed.

        mean -+ t(S - 1) * s / sqrt(S),    s the standard deviation over the S seeds (S - 1 in the denominator)

    Raises:
        ValueError: if there is no value, or `confidence` is outside (0, 1).

    Source: Student 1908, Biometrika 6, 1-25.
    """
    if not values:
        raise ValueError("values must hold one number per seed; got none")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be in (0, 1); got {confidence}")
    mean, n = fmean(values), len(values)
    if n == 1:
        return SeedMean(mean, -math.inf, math.inf)
    half = t_quantile(n - 1, 0.5 + confidence / 2) * stdev(values) / math.sqrt(n)
    return SeedMean(mean, mean - half, mean + half)


def seed_difference(
    a: Sequence[Sequence[float]],
    b: Sequence[Sequence[float]],
    tasks: Sequence[Sequence[Hashable]] | None = None,
    confidence: float = 0.95,
    *,
    seed: int = 0,
) -> SeedDifference:
    """Compare two methods trained with the same seeds and measured on the same tasks.

    The t-interval is that of the paired differences of the seeds. The interval over tasks is a percentile bootstrap:
    tasks are drawn with replacement, each with the outcomes of both methods and of all seeds, which are no
    independent draws: models of several seeds find the same tasks hard.

    Args:
        a: `[S][n]` success of the first method by training seed and task, or the share of its attempts that succeeded;
            n may differ between seeds.
        b: the same for the second method, in the same order.
        tasks: `[S][n]` which task each entry is; by default the nth of each seed is the same task.

    Raises:
        ValueError: if there is no seed, a seed has no task or has one twice, or the shapes differ.

    Source: bootstrap: Efron 1979, Ann. Stat. 7, 1-26; levels of variation: Saravanan et al. 2020, arXiv:2007.07797,
    who resample both levels, which covers too little for three to five seeds; hence t.
    """
    if not a or [len(each) for each in a] != [len(each) for each in b] or not all(map(len, a)):
        raise ValueError(
            "a and b must have the same seeds and tasks, at least one of each; "
            f"got {[len(each) for each in a]} and {[len(each) for each in b]} tasks"
        )
    gaps = [np.asarray(x, float) - np.asarray(y, float) for x, y in zip(a, b, strict=True)]
    low, high = np.quantile(_redrawn(gaps, tasks, seed), [0.5 - confidence / 2, 0.5 + confidence / 2])
    by_seed = tuple(float(gap.mean()) for gap in gaps)
    found = over_seeds(by_seed, confidence)
    return SeedDifference(found.mean, found.low, found.high, float(low), float(high), by_seed)


def _redrawn(gaps: Sequence[np.ndarray], tasks: Sequence[Sequence[Hashable]] | None, seed: int) -> np.ndarray:
    """`[RESAMPLES]` mean gaps of the seeds on tasks that are drawn with replacement. A seed lacks some tasks; one
    that has none of those drawn is left out."""
    named = [range(len(gap)) for gap in gaps] if tasks is None else tasks
    for names in named:
        if len(set(names)) < len(names):
            raise ValueError(f"a task must be once in a seed; got {len(names)} entries of {len(set(names))} tasks")
    place = {task: i for i, task in enumerate(dict.fromkeys(chain.from_iterable(named)))}
    table = np.full((len(gaps), len(place)), np.nan)
    for row, gap, names in zip(table, gaps, named, strict=True):
        row[[place[task] for task in names]] = gap
    drawn = np.random.default_rng(seed).integers(len(place), size=(RESAMPLES, len(place)))
    known = ~np.isnan(table)
    sums = np.stack([np.where(has, row, 0.0)[drawn].sum(axis=1) for row, has in zip(table, known, strict=True)])
    numbers = np.stack([has[drawn].sum(axis=1) for has in known])
    means: np.ndarray = (sums / np.maximum(numbers, 1)).sum(axis=0) / np.maximum((numbers > 0).sum(axis=0), 1)
    return means


def t_quantile(df: int, p: float) -> float:
    """The number that Student's t with `df` degrees of freedom exceeds with probability 1 - p, for p in [0.5, 1).

    Raises:
        ValueError: if `df` is less than 1 or p is outside [0.5, 1).
    """
    if df < 1 or not 0.5 <= p < 1.0:
        raise ValueError(f"df must be at least 1 and p in [0.5, 1); got {df} and {p}")
    low, high = 0.0, 1.0
    while _t_within(df, high) < 2 * p - 1:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if _t_within(df, middle) < 2 * p - 1 else (low, middle)
    return (low + high) / 2


def _t_within(df: int, t: float) -> float:
    """P(|T| < t). Source: Abramowitz and Stegun 1964, 26.7.3 and 26.7.4."""
    angle = math.atan(t / math.sqrt(df))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = df % 2
    term, total = (cosine, 0.0) if odd else (1.0, 0.0)
    for k in range(1 + odd, df, 2):  # the terms of the series, each from the one before
        total += term
        term *= cosine * cosine * k / (k + 1)
    return 2 / math.pi * (angle + sine * total) if odd else sine * total
