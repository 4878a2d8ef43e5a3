"""The paper's process critic: a frozen LLM picks the best proposal, which leaves the list, and so on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from agentq.agent.prompts import LETTERS, critic_messages
from agentq.agent.verdicts import parse_critic_answer
from agentq.policies.protocol import Engine, SampleRequest
from agentq.types import EnvAction, History


@dataclass(slots=True)
class RankerStats:
    """Questions asked, answers that named no listed proposal, rankings that fell back to the proposal order."""

    calls: int = 0
    unknown: int = 0
    fallbacks: int = 0


class LLMRanker:
    """`Critic` by repeated pick-the-best: K - 1 questions per node.

    Each shows the remaining proposals in a seeded shuffle (against position bias). If an answer names none of
    them, the question is repeated once with another shuffle; after that the proposal order is kept.
    Source: arXiv:2408.07199, section 5.1.
    """

    def __init__(self, engine: Engine, *, max_new_tokens: int = 48) -> None:
        self.engine = engine
        self.max_new_tokens = max_new_tokens
        self.stats = RankerStats()

    async def rank(self, history: History, proposals: Sequence[EnvAction | None], *, seed: int) -> list[float]:
        """See `Critic.rank`. Raises ValueError if there is no proposal or more than 26."""
        if not 1 <= len(proposals) <= len(LETTERS):
            raise ValueError(f"a node must have 1 to {len(LETTERS)} proposals; got {len(proposals)}")
        rng = np.random.default_rng(seed)
        ranked: list[int] = []
        remaining = list(range(len(proposals)))
        missed = 0
        while len(remaining) > 1 and missed < 2:
            order = [remaining[i] for i in rng.permutation(len(remaining))]
            picked = await self._ask(history, [proposals[i] for i in order])
            if picked is None:
                missed += 1
                continue
            missed = 0
            ranked.append(order[picked])
            remaining.remove(order[picked])
        self.stats.fallbacks += missed == 2
        return rank_values([*ranked, *remaining])

    async def _ask(self, history: History, listed: Sequence[EnvAction | None]) -> int | None:
        """The best of `listed`; None if the answer names none of them."""
        question = partial(critic_messages, proposals=listed)
        prompt = self.engine.render(history, question, max_new_tokens=self.max_new_tokens)
        request = SampleRequest(prompt, temperature=0.0, max_new_tokens=self.max_new_tokens, role="critic")
        (answer,) = await self.engine.sample(request)
        picked = parse_critic_answer(answer.text, listed)
        self.stats.calls += 1
        self.stats.unknown += picked is None
        return picked


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
