"""The LLM ranker, driven by an engine that answers from a script."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from agentq.critics.ranker import LLMRanker, rank_values
from agentq.types import Command, EnvAction, History, Observation
from tests.scripted_engine import Scripted

HISTORY = History("q", Observation("heading A"))
CLICKS = [EnvAction(Command.CLICK, i) for i in range(4)]


def _engine(answer: Callable[[str], str]) -> Scripted:
    return Scripted(lambda role, text: answer(text))


def _rank(ranker: LLMRanker, proposals: Sequence[EnvAction], seed: int = 0) -> list[float]:
    return asyncio.run(ranker.rank(HISTORY, proposals, seed=seed))


def _letter_of_smallest(prompt: str) -> str:
    listed = [line for line in prompt.split("PROPOSALS:\n")[1].split("\n") if "CLICK" in line]
    return f"BEST: {min(listed, key=lambda line: int(line.split('[')[1].split(']')[0]))}"


def test_ranker_finds_the_whole_order_in_k_minus_1_calls() -> None:
    engine = _engine(_letter_of_smallest)
    ranker = LLMRanker(engine)
    shuffled = [CLICKS[2], CLICKS[0], CLICKS[3], CLICKS[1]]
    assert _rank(ranker, shuffled) == pytest.approx([1 / 3, 1.0, 0.0, 2 / 3])
    assert ranker.stats.calls == 3 and ranker.stats.fallbacks == 0


def test_ranker_shuffles_what_it_shows_by_seed() -> None:
    shown = []
    for seed in range(6):
        engine = _engine(_letter_of_smallest)
        _rank(LLMRanker(engine), CLICKS, seed)
        shown.append(engine.asked[0].split("PROPOSALS:\n")[1])
    again = _engine(_letter_of_smallest)
    _rank(LLMRanker(again), CLICKS)
    assert len(set(shown)) > 1
    assert again.asked[0].endswith(shown[0])


def test_ranker_asks_once_more_then_lets_the_proposal_order_stand() -> None:
    ranker = LLMRanker(_engine(lambda _: "no idea"))
    assert _rank(ranker, CLICKS[:3]) == [1.0, 0.5, 0.0]
    assert (ranker.stats.calls, ranker.stats.unknown, ranker.stats.fallbacks) == (2, 2, 1)


def test_ranker_asks_nothing_about_a_single_proposal() -> None:
    engine = _engine(_letter_of_smallest)
    assert _rank(LLMRanker(engine), CLICKS[:1]) == [0.5]
    assert engine.asked == []


def test_ranker_refuses_nodes_without_proposals() -> None:
    with pytest.raises(ValueError, match="1 to 26 proposals; got 0"):
        _rank(LLMRanker(_engine(_letter_of_smallest)), [])


def test_rank_values_are_linear_golden() -> None:
    assert rank_values([0, 1, 2, 3, 4]) == [1, 0.75, 0.5, 0.25, 0]  # (K - r) / (K - 1), K = 5
    assert rank_values([2, 0, 1]) == [0.5, 0.0, 1.0]
    assert rank_values([0]) == [0.5]
