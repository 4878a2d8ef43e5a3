"""How much of a sampled figure's interval over seeds is the noise of sampling, and what more attempts bring."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from statistics import fmean, stdev

from outcomes import Outcomes

ATTEMPTS = 4


def noise(found: Sequence[Outcomes], key: str) -> str:
    """A table of the rows of `key` (table and environment) that were sampled `ATTEMPTS` times per task.

    With p the share of a task's k attempts that succeeded, over n tasks:

        v = mean of k / (k - 1) p (1 - p)        the variance of one attempt
        noise of k attempts = sqrt(v / (k n))    of a seed's mean

    The seeds' standard deviation s has the noise of k attempts in it. With one attempt it would be
    sqrt(s^2 - v / (k n) + v / n) in expectation, and the interval over seeds wider by that ratio.
    """
    table, env = key.split()
    rows: dict[str, list[Outcomes]] = {}
    for each in found:
        if (each.table, each.env, each.measured) == (table, env, "sampled"):
            rows.setdefault(each.row, []).append(each)
    lines = [
        f"| row | seeds | deviation over seeds | noise of {ATTEMPTS} attempts | of one | interval with one, times |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row, own in rows.items():
        if len(own) < 2 or {each.attempts for each in own} != {ATTEMPTS}:
            continue
        seeds = [each.tasks for each in own]
        n = len(seeds[0])
        v = fmean(ATTEMPTS / (ATTEMPTS - 1) * p * (1 - p) for tasks in seeds for p in tasks.values())
        s, many, one = stdev(fmean(tasks.values()) for tasks in seeds), sqrt(v / ATTEMPTS / n), sqrt(v / n)
        wider = sqrt(s * s - many * many + one * one) / s if s > many else None
        told = f"{wider:.2f}" if wider else "not known: the deviation is smaller than the noise"
        lines.append(f"| {row} | {len(seeds)} | {100 * s:.1f} | {100 * many:.1f} | {100 * one:.1f} | {told} |")
    return "\n".join(lines)
