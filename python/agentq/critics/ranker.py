"""The paper's process critic: a frozen LLM is asked for the best proposal, the winner leaves the list, and so on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np

from agentq.agent.prompts import LETTERS, Messages, critic_messages, parse_critic_answer
from agentq.types import EnvAction, History


class TextEngine(Protocol):
    """What the ranker needs of an engine: text in, text out."""

    def encode_history(
        self, history: History, render: Callable[[History], Messages], *, max_new_tokens: int
    ) -> np.ndarray: ...

    def decode(self, token_ids: np.ndarray) -> str: ...

    def generate(
        self, prompts: Sequence[np.ndarray], k: int, *, seeds: Sequence[int], temperature: float, max_new_tokens: int
    ) -> list[list[Any]]: ...


@dataclass(slots=True)
class RankerStats:
    """Calls made, answers that named no listed proposal, rankings that fell back to the proposal order, tokens used."""

    calls: int = 0
    unknown: int = 0
    fallbacks: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0


@dataclass(slots=True)
class _Ranking:
    """One node's ranking while it is made: `ranked` best first, `remaining` in proposal order."""

    history: History
    proposals: list[EnvAction | None]
    rng: np.random.Generator
    remaining: list[int]
    ranked: list[int] = field(default_factory=list)
    order: list[int] = field(default_factory=list)  # how `remaining` was shuffled for the present question
    retried: bool = False


class LLMRanker:
    """`Critic` by repeated pick-the-best: K - 1 calls a node, batched over nodes.

    Each question shows the remaining proposals in a seeded shuffle (against position bias). An answer that names none
    of them is asked once more with another shuffle, then the proposal order stands.
    Source: arXiv:2408.07199, section 5.1.
    """

    def __init__(self, engine: TextEngine, *, max_new_tokens: int = 48) -> None:
        self.engine = engine
        self.max_new_tokens = max_new_tokens
        self.stats = RankerStats()

    def rank(
        self, histories: Sequence[History], proposals: Sequence[Sequence[EnvAction | None]], *, seeds: Sequence[int]
    ) -> list[list[float]]:
        """See `Critic.rank`. Raises ValueError if a node has no proposal or more than 26."""
        for listed in proposals:
            if not 1 <= len(listed) <= len(LETTERS):
                raise ValueError(f"a node must have 1 to {len(LETTERS)} proposals; got {len(listed)}")
        rankings = [
            _Ranking(h, list(p), np.random.default_rng(s), list(range(len(p))))
            for h, p, s in zip(histories, proposals, seeds, strict=True)
        ]
        while asked := [r for r in rankings if len(r.remaining) > 1]:
            self._ask(asked)
        return [rank_values([*r.ranked, *r.remaining]) for r in rankings]

    def _ask(self, rankings: list[_Ranking]) -> None:
        prompts = []
        for r in rankings:
            r.order = [r.remaining[i] for i in r.rng.permutation(len(r.remaining))]
            question = partial(critic_messages, proposals=[r.proposals[i] for i in r.order])
            prompts.append(self.engine.encode_history(r.history, question, max_new_tokens=self.max_new_tokens))
        answers = self.engine.generate(
            prompts, 1, seeds=[0] * len(prompts), temperature=0.0, max_new_tokens=self.max_new_tokens
        )
        self.stats.calls += len(prompts)
        self.stats.prompt_tokens += sum(len(prompt) for prompt in prompts)
        self.stats.generated_tokens += sum(len(answer.token_ids) for (answer,) in answers)
        for r, (answer,) in zip(rankings, answers, strict=True):
            picked = parse_critic_answer(self.engine.decode(answer.token_ids), len(r.order))
            if picked is not None:
                r.ranked.append(r.order[picked])
                r.remaining.remove(r.order[picked])
                r.retried = False
                continue
            self.stats.unknown += 1
            if r.retried:
                self.stats.fallbacks += 1
                r.ranked, r.remaining = [*r.ranked, *r.remaining], []
            r.retried = True


def linear_rank_values(k: int) -> list[float]:
    """The critic value of rank 1 .. K: `(K - r) / (K - 1)`, best first; `[0.5]` for K = 1.

    Raises:
        ValueError: if k < 1.

    Source: ours; the paper ranks but gives no map from rank to value.
    """
    if k < 1:
        raise ValueError(f"k must be at least 1; got {k}")
    return [(k - rank) / (k - 1) for rank in range(1, k + 1)] if k > 1 else [0.5]


def rank_values(ranking: Sequence[int]) -> list[float]:
    """critic_value by proposal index of a ranking (best first); see `linear_rank_values`."""
    values = [0.0] * len(ranking)
    for index, value in zip(ranking, linear_rank_values(len(ranking)), strict=True):
        values[index] = value
    return values
