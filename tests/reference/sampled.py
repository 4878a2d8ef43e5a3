"""Selection that draws, for the slow twin: the formulas of csrc/sampled.cc once more, over lists."""

from __future__ import annotations

import math
from collections.abc import Sequence

MASK = 2**64 - 1
TINY = 2.0**-126  # the smallest normal float32


def mixed(x: int) -> int:
    """The finaliser of SplitMix64."""
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


class Draws:
    """One stream of random numbers from a key."""

    def __init__(self, seed: int, tree: int, number: int) -> None:
        self.state = mixed(mixed(mixed(seed) + tree & MASK) + number & MASK)

    def uniform(self) -> float:
        self.state = self.state + 0x9E3779B97F4A7C15 & MASK
        return ((mixed(self.state) >> 11) + 0.5) * 2.0**-53

    def gumbel(self) -> float:
        return -math.log(-math.log(self.uniform()))

    def normal(self) -> float:
        radius = math.sqrt(-2 * math.log(self.uniform()))
        return radius * math.cos(2 * math.pi * self.uniform())

    def gamma(self, a: float) -> float:
        if a < 1:
            return self.gamma(a + 1) * self.uniform() ** (1 / a)
        d = a - 1 / 3
        while True:
            x = self.normal()
            v = (1 + x / math.sqrt(9 * d)) ** 3
            if v > 0 and math.log(self.uniform()) < x * x / 2 + d - d * v + d * math.log(v):
                return d * v

    def beta(self, a: float, b: float) -> float:
        x, y = self.gamma(a), self.gamma(b)
        return x / (x + y)


def draw_mean(draws: Draws, returns: Sequence[float], beta: bool) -> float:
    """A draw of the mean that returns have: Beta(1/2, 1/2), or normal inverse gamma (0, 1, 1, 0.1)."""
    n, total = len(returns), sum(returns)
    if beta:
        return draws.beta(0.5 + total, 0.5 + n - total)
    mean = total / n if n else 0.0
    kappa = nu = 1 + n
    tau = (1 * 0.1 + sum((r - mean) ** 2 for r in returns) + n * 1 * mean**2 / kappa) / nu
    variance = nu * tau / 2 / draws.gamma(nu / 2)
    return n * mean / kappa + math.sqrt(variance / kappa) * draws.normal()


def considered_visits(m: int, budget: int, rollouts: int) -> list[int]:
    """The visits that a child must have to be considered, rollout by rollout: written out."""
    if m <= 1:
        return list(range(rollouts))
    visits, left, sequence = [0] * m, m, []
    while len(sequence) < rollouts:
        for _ in range(max(1, int(budget / (math.ceil(math.log2(m)) * left)))):
            sequence += visits[:left]
            visits[:left] = [v + 1 for v in visits[:left]]
        left = max(2, left // 2)
    return sequence


def sigma(
    q: Sequence[float | None], visits: Sequence[int], priors: Sequence[float], own: Sequence[float]
) -> list[float]:
    """sigma(completed Q) of children; `q` None where there are no visits, `own` the returns told at the node itself."""
    pairs = [(max(p, TINY), x) for p, x in zip(priors, q, strict=True) if x is not None]
    weighted = sum(p * x for p, x in pairs) / sum(p for p, _ in pairs) if pairs else 0.0
    n = sum(visits)
    mix = (sum(own) / len(own) + n * weighted) / (1 + n) if own else weighted
    completed = [mix if x is None else x for x in q]
    low, high = min(completed), max(completed)
    return [(50 + max(visits)) * 0.1 * (x - low) / max(high - low, 1e-8) for x in completed]


def improved_policy(sigmas: Sequence[float], priors: Sequence[float]) -> list[float]:
    """softmax(log P + sigma)."""
    logits = [math.log(max(p, TINY)) + s for p, s in zip(priors, sigmas, strict=True)]
    total = sum(math.exp(x - max(logits)) for x in logits)
    return [math.exp(x - max(logits)) / total for x in logits]
