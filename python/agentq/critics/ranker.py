"""The process critic: a frozen LLM that is asked which proposals of a node are better, by one of three methods."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean

import numpy as np

from agentq.agent.patterns import ranking_pattern
from agentq.agent.prompts import BEST_QUESTION, LETTER_QUESTION, LETTERS, RANKING_QUESTION, critic_messages
from agentq.agent.verdicts import parse_critic_answer, parse_ranking
from agentq.errors import ConfigError
from agentq.model_settings import CriticMethod
from agentq.policies.protocol import Engine, Gives, SampledAnswer, SampleRequest
from agentq.types import EnvAction, History

Listed = Sequence[EnvAction | None]


@dataclass(slots=True)
class RankerStats:
    """Questions asked, answers that could not be read, rankings that lack some or all proposals."""

    calls: int = 0
    unknown: int = 0
    fallbacks: int = 0


class LLMRanker:
    """`Critic` that prompts a model about the K proposals of a node. One proposal needs no question.

    - `pick_best`: picks the best proposal, which leaves the list, and so on: K - 1 questions, one after another.
      Source: arXiv:2408.07199, section 5.1.
    - `listwise`: ranks all proposals in one answer.
    - `letters`: the probabilities of the letters as the next token, in one forward pass over two prompts.

    Each question shows the proposals in a seeded shuffle (against position bias). If an answer of the first two cannot
    be read, the question is repeated once with another shuffle; after that the proposals that are left are equal.
    """

    def __init__(self, engine: Engine, *, method: CriticMethod = "pick_best", max_new_tokens: int = 192) -> None:
        """Raises ConfigError for `letters` on an engine that does not give the log-probabilities of letters."""
        if method == "letters" and Gives.LETTERS not in engine.gives:
            raise ConfigError(
                "critic.method letters needs an engine that gives log-probabilities of the likeliest tokens; "
                f"got {engine.name}: set critic.method to listwise"
            )
        self.engine, self.method = engine, method
        self.max_new_tokens = max_new_tokens
        self.stats = RankerStats()

    async def rank(self, history: History, proposals: Listed, *, seed: int) -> list[float]:
        """See `Critic.rank`. Raises ValueError if there is no proposal or more than 26."""
        if not 1 <= len(proposals) <= len(LETTERS):
            raise ValueError(f"a node must have 1 to {len(LETTERS)} proposals; got {len(proposals)}")
        if len(proposals) == 1:
            return rank_values([0])
        methods = {"pick_best": self._pick_best, "listwise": self._listwise, "letters": self._letters}
        ranking = await methods[self.method](history, proposals, np.random.default_rng(seed))
        self.stats.fallbacks += len(ranking) < len(proposals)
        return rank_values(ranking, len(proposals))

    async def _pick_best(self, history: History, proposals: Listed, rng: np.random.Generator) -> list[int]:
        ranked: list[int] = []
        remaining = list(range(len(proposals)))
        missed = 0
        while len(remaining) > 1 and missed < 2:
            order = [remaining[i] for i in rng.permutation(len(remaining))]
            listed = [proposals[i] for i in order]
            picked = parse_critic_answer((await self._ask(history, listed, BEST_QUESTION)).text, listed)
            if picked is None:
                self.stats.unknown += 1
                missed += 1
                continue
            missed = 0
            ranked.append(order[picked])
            remaining.remove(order[picked])
        return [*ranked, *remaining] if len(remaining) == 1 else ranked

    async def _listwise(self, history: History, proposals: Listed, rng: np.random.Generator) -> list[int]:
        """Answers are held to a ranking of the letters if the engine can."""
        k = len(proposals)
        pattern = ranking_pattern(k) if Gives.PATTERNS in self.engine.gives else ""
        for _ in range(2):
            order = rng.permutation(k).tolist()
            answer = await self._ask(history, [proposals[i] for i in order], RANKING_QUESTION, pattern=pattern)
            ranking = parse_ranking(answer.text, k)
            if ranking is not None:
                return [order[i] for i in ranking]
            self.stats.unknown += 1
        return []

    async def _letters(self, history: History, proposals: Listed, rng: np.random.Generator) -> list[int]:
        """The ranking by the mean log-probability of a proposal's letter over an order o and its reverse, in nats:

            score(a) = 1/2 sum_o log P(letter of a in o | prompt that lists o)

        Every proposal has the same mean place, so a linear preference for places cancels out. Source: ours. An order
        without any known letter, all equal, is an unknown answer; without both, nothing is ranked.
        """
        k = len(proposals)
        order = rng.permutation(k)
        orders = (order, order[::-1])
        ask = partial(self._ask, history, question=LETTER_QUESTION, letters=LETTERS[:k])
        answers = await asyncio.gather(*(ask([proposals[i] for i in o]) for o in orders))
        score = np.zeros(k)
        for o, answer in zip(orders, answers, strict=True):
            score[o] += np.array(answer.letter_logps) / 2
            self.stats.unknown += len(set(answer.letter_logps)) == 1
        return sorted(range(k), key=lambda i: -score[i]) if len(set(score.tolist())) > 1 else []

    async def _ask(
        self, history: History, listed: Listed, question: str, *, pattern: str = "", letters: str = ""
    ) -> SampledAnswer:
        most = 1 if letters else self.max_new_tokens
        compose = partial(critic_messages, proposals=listed, question=question)
        prompt = self.engine.render(history, compose, max_new_tokens=most)
        request = SampleRequest(
            prompt, temperature=0.0, max_new_tokens=most, role="critic", pattern=pattern, letters=letters
        )
        self.stats.calls += 1
        (answer,) = await self.engine.sample(request)
        return replace(answer, text=prompt.said(answer))


def linear_rank_values(k: int) -> list[float]:
    """The critic value of rank 1 .. K: `(K - r) / (K - 1)`, best first; `[0.5]` for K = 1.

    Raises:
        ValueError: if k < 1.

    Source: ours; the paper ranks but gives no map from rank to value.
    """
    if k < 1:
        raise ValueError(f"k must be at least 1; got {k}")
    return [(k - rank) / (k - 1) for rank in range(1, k + 1)] if k > 1 else [0.5]


def rank_values(ranking: Sequence[int], k: int | None = None) -> list[float]:
    """critic_value of each of k proposals, by default all, from the indices of those that are ranked, best first.

    See `linear_rank_values`; those that are not ranked share the mean of the values that are left.
    """
    k = len(ranking) if k is None else k
    values = linear_rank_values(k)
    left = values[len(ranking) :]
    found = [fmean(left) if left else 0.0] * k
    for index, value in zip(ranking, values, strict=False):
        found[index] = value
    return found
