"""The LLM ranker, driven by an engine that answers from a script."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from agentq.agent.prompts import Messages
from agentq.critics.ranker import LLMRanker, rank_values
from agentq.types import Command, EnvAction, History, Observation

HISTORY = History("q", Observation("heading A"))
CLICKS = [EnvAction(Command.CLICK, i) for i in range(4)]


@dataclass
class _Answer:
    token_ids: np.ndarray


class _Engine:
    """Answers `answer(prompt text)`; token ids are the text's code points."""

    def __init__(self, answer: Callable[[str], str]) -> None:
        self.answer = answer
        self.prompts: list[str] = []

    def encode_history(
        self, history: History, render: Callable[[History], Messages], *, max_new_tokens: int
    ) -> np.ndarray:
        return np.array([ord(c) for c in render(history)[-1]["content"]], dtype=np.int32)

    def decode(self, token_ids: np.ndarray) -> str:
        return "".join(map(chr, token_ids))

    def generate(self, prompts: Sequence[np.ndarray], k: int, **_: Any) -> list[list[_Answer]]:
        texts = [self.decode(p) for p in prompts]
        self.prompts += texts
        return [[_Answer(np.array([ord(c) for c in self.answer(text)]))] for text in texts]


def _letter_of_smallest(prompt: str) -> str:
    listed = [line for line in prompt.split("PROPOSALS:\n")[1].split("\n") if "CLICK" in line]
    return f"BEST: {min(listed, key=lambda line: int(line.split('[')[1].split(']')[0]))}"


def test_ranker_finds_the_whole_order_in_k_minus_1_calls() -> None:
    engine = _Engine(_letter_of_smallest)
    ranker = LLMRanker(engine)
    shuffled = [CLICKS[2], CLICKS[0], CLICKS[3], CLICKS[1]]
    assert ranker.rank([HISTORY], [shuffled], seeds=[0]) == [pytest.approx([1 / 3, 1.0, 0.0, 2 / 3])]
    assert ranker.stats.calls == 3 and ranker.stats.fallbacks == 0


def test_ranker_shuffles_what_it_shows_by_seed() -> None:
    shown = []
    for seed in range(6):
        engine = _Engine(_letter_of_smallest)
        LLMRanker(engine).rank([HISTORY], [CLICKS], seeds=[seed])
        shown.append(engine.prompts[0].split("PROPOSALS:\n")[1])
    again = _Engine(_letter_of_smallest)
    LLMRanker(again).rank([HISTORY], [CLICKS], seeds=[0])
    assert len(set(shown)) > 1
    assert again.prompts[0].endswith(shown[0])


def test_ranker_asks_once_more_then_lets_the_proposal_order_stand() -> None:
    ranker = LLMRanker(_Engine(lambda _: "no idea"))
    assert ranker.rank([HISTORY], [CLICKS[:3]], seeds=[0]) == [[1.0, 0.5, 0.0]]
    assert (ranker.stats.calls, ranker.stats.unknown, ranker.stats.fallbacks) == (2, 2, 1)


def test_ranker_asks_nothing_about_a_single_proposal() -> None:
    engine = _Engine(_letter_of_smallest)
    assert LLMRanker(engine).rank([HISTORY], [CLICKS[:1]], seeds=[0]) == [[0.5]]
    assert engine.prompts == []


def test_ranker_batches_nodes_and_refuses_empty_ones() -> None:
    ranker = LLMRanker(_Engine(_letter_of_smallest))
    values = ranker.rank([HISTORY, HISTORY], [CLICKS[:2], CLICKS[::-1]], seeds=[0, 1])
    assert values == [[1.0, 0.0], pytest.approx([0.0, 1 / 3, 2 / 3, 1.0])]
    with pytest.raises(ValueError, match="1 to 26 proposals; got 0"):
        ranker.rank([HISTORY], [[]], seeds=[0])


def test_rank_values_are_linear_golden() -> None:
    assert rank_values([0, 1, 2, 3, 4]) == [1, 0.75, 0.5, 0.25, 0]  # (K - r) / (K - 1), K = 5
    assert rank_values([2, 0, 1]) == [0.5, 0.0, 1.0]
    assert rank_values([0]) == [0.5]
