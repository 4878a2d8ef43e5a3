"""The LLM ranker, driven by an engine that answers from a script."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch

from agentq.agent.patterns import ranking_pattern
from agentq.agent.prompts import LETTER_QUESTION, LETTERS, critic_messages, policy_messages
from agentq.agent.verdicts import parse_ranking
from agentq.critics.ranker import LLMRanker, rank_values
from agentq.errors import ConfigError, ModelError
from agentq.model_settings import CriticMethod
from agentq.policies.decoding import Decoding
from agentq.policies.protocol import Gives, SampleRequest
from agentq.policies.transformers_engine import TransformersEngine
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


def test_ranker_asks_once_more_then_ranks_nothing() -> None:
    ranker = LLMRanker(_engine(lambda _: "no idea"))
    assert _rank(ranker, CLICKS[:3]) == [0.5, 0.5, 0.5]
    assert (ranker.stats.calls, ranker.stats.unknown, ranker.stats.fallbacks) == (2, 2, 1)
    calls = iter(range(9))
    once = LLMRanker(_engine(lambda text: "no idea" if next(calls) else _letter_of_smallest(text)))
    assert _rank(once, CLICKS[:3]) == [1.0, 0.25, 0.25]  # those that are left share 0.5 and 0
    assert once.stats.fallbacks == 1


def test_ranker_gives_up_only_after_two_unknown_answers_to_one_question() -> None:
    calls = iter(range(9))
    ranker = LLMRanker(_engine(lambda text: _letter_of_smallest(text) if next(calls) % 2 else "no idea"))
    assert _rank(ranker, [CLICKS[2], CLICKS[1], CLICKS[0]]) == [0.0, 0.5, 1.0]
    assert (ranker.stats.calls, ranker.stats.unknown, ranker.stats.fallbacks) == (4, 2, 0)


@pytest.mark.parametrize("method", get_args(CriticMethod))
def test_ranker_asks_nothing_about_a_single_proposal(method: CriticMethod) -> None:
    engine = Scripted(lambda role, text: "", gives=Gives.LETTERS)
    assert _rank(LLMRanker(engine, method=method), CLICKS[:1]) == [0.5]
    assert engine.asked == []


def test_ranker_refuses_nodes_without_proposals() -> None:
    with pytest.raises(ValueError, match="1 to 26 proposals; got 0"):
        _rank(LLMRanker(_engine(_letter_of_smallest)), [])


def test_rank_values_are_linear_golden() -> None:
    assert rank_values([0, 1, 2, 3, 4]) == [1, 0.75, 0.5, 0.25, 0]  # (K - r) / (K - 1), K = 5
    assert rank_values([2, 0, 1]) == [0.5, 0.0, 1.0]
    assert rank_values([0]) == [0.5]


def _listed(prompt: str) -> list[int]:
    """The element ids of the listed proposals, in the order shown."""
    return [int(found) for found in re.findall(r"CLICK \[(\d+)\] \(", prompt)]


def _whole_order(prompt: str) -> str:
    listed = _listed(prompt)
    return "RANKING: " + " > ".join(LETTERS[listed.index(element)] for element in sorted(listed))


def test_listwise_ranks_all_in_one_call() -> None:
    engine = _engine(_whole_order)
    ranker = LLMRanker(engine, method="listwise")
    shuffled = [CLICKS[2], CLICKS[0], CLICKS[3], CLICKS[1]]
    for seed in range(4):
        assert _rank(ranker, shuffled, seed) == pytest.approx([1 / 3, 1.0, 0.0, 2 / 3])
    assert (ranker.stats.calls, ranker.stats.unknown, ranker.stats.fallbacks) == (4, 0, 0)
    assert len({tuple(_listed(text)) for text in engine.asked}) > 1  # each seed shows another order


def test_listwise_asks_once_more_then_ranks_nothing() -> None:
    answers = iter(["B and then A", "RANKING: A > B"])
    ranker = LLMRanker(_engine(lambda _: next(answers)), method="listwise")
    assert sorted(_rank(ranker, CLICKS[:2])) == [0.0, 1.0]
    assert (ranker.stats.calls, ranker.stats.unknown, ranker.stats.fallbacks) == (2, 1, 0)
    ranker = LLMRanker(_engine(lambda _: "RANKING: A > A > B"), method="listwise")
    assert _rank(ranker, CLICKS[:3]) == [0.5, 0.5, 0.5]
    assert (ranker.stats.calls, ranker.stats.unknown, ranker.stats.fallbacks) == (2, 2, 1)


@pytest.mark.parametrize("gives", [Gives.TEXT, Gives.PATTERNS])
def test_listwise_holds_answers_to_the_letters_where_the_engine_can(gives: Gives) -> None:
    engine = Scripted(lambda role, text: _whole_order(text), gives=gives)
    _rank(LLMRanker(engine, method="listwise"), CLICKS[:3])
    assert engine.requests[0].pattern == (ranking_pattern(3) if gives else "")


def test_ranking_pattern_allows_every_order_of_the_letters_and_nothing_else() -> None:
    for k in (2, 3, 4):
        pattern = re.compile(ranking_pattern(k))
        for chosen in itertools.product(LETTERS[: k + 1], repeat=k):
            text = "RANKING: " + " > ".join(chosen)
            assert bool(pattern.fullmatch(text)) is (parse_ranking(text, k) is not None)
    many = "RANKING: " + " > ".join(LETTERS[:9])
    assert re.fullmatch(ranking_pattern(9), many) and len(ranking_pattern(9)) < 100


def test_letters_averages_both_orders_golden() -> None:
    """Place A is worth 2 nats more than place B; the proposals 0.5 nats: only without the place's part 0 wins."""
    engine = Scripted(
        lambda role, text: "",
        lambda text: tuple(-2.0 * place - 0.5 * element for place, element in enumerate(_listed(text))),
        Gives.LETTERS,
    )
    ranker = LLMRanker(engine, method="letters")
    for seed in range(6):
        assert _rank(ranker, [CLICKS[2], CLICKS[0], CLICKS[1]], seed) == [0.0, 1.0, 0.5]
    assert (ranker.stats.calls, ranker.stats.unknown, ranker.stats.fallbacks) == (12, 0, 0)
    first = engine.requests[0]
    assert (first.letters, first.max_new_tokens, first.role) == ("ABC", 1, "critic")
    assert _listed(engine.asked[0]) == _listed(engine.asked[1])[::-1]


def test_letters_that_no_order_tells_rank_nothing() -> None:
    def told(text: str) -> tuple[float, ...]:
        return (-9.0,) * 3 if _listed(text)[0] != 1 else (-1.0, -2.0, -3.0)

    nothing = LLMRanker(Scripted(lambda role, text: "", lambda text: (-9.0,) * 3, Gives.LETTERS), method="letters")
    assert _rank(nothing, CLICKS[:3]) == [0.5, 0.5, 0.5]
    assert (nothing.stats.unknown, nothing.stats.fallbacks) == (2, 1)
    for seed in range(20):
        half = LLMRanker(Scripted(lambda role, text: "", told, Gives.LETTERS), method="letters")
        values = _rank(half, CLICKS[:3], seed)
        if half.stats.unknown == 1:  # the order that is told decides
            assert values[1] == 1.0 and half.stats.fallbacks == 0
            return
    raise AssertionError("no seed begins or ends with proposal 1")


def test_letters_are_one_forward_pass_of_a_checkpoint_and_its_own_logits(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = TransformersEngine(base)
    steps, step = [], Decoding.step
    monkeypatch.setattr(Decoding, "step", lambda self: steps.append(0) or step(self))
    values = _rank(LLMRanker(engine, method="letters"), CLICKS, 3)
    assert len(steps) == 1 and sorted(values) == pytest.approx([0, 1 / 3, 2 / 3, 1])
    order = np.random.default_rng(3).permutation(4)
    score = np.zeros(4)
    for o in (order, order[::-1]):
        listed = [CLICKS[i] for i in o]
        prompt = engine.render(
            HISTORY, lambda h, listed=listed: critic_messages(h, listed, LETTER_QUESTION), max_new_tokens=1
        )
        with torch.inference_mode():
            logits = engine.model(torch.from_numpy(prompt.ids.astype(np.int64))[None]).logits[0, -1]
        score[o] += torch.log_softmax(logits, dim=-1)[engine.renderer.letter_ids("ABCD")].numpy() / 2
    assert np.argsort(-score).tolist() == np.argsort(-np.array(values)).tolist()
    used = engine.usage.of("critic")
    assert (used.requests, used.generated_tokens) == (2, 2)


def test_letters_must_be_single_tokens_after_a_prompt(base: Path) -> None:
    engine = TransformersEngine(base)
    ids = engine.renderer.letter_ids(LETTERS)
    assert [engine.renderer.decode(np.array([i])).strip() for i in ids] == list(LETTERS)
    prompt = engine.render(HISTORY, policy_messages, max_new_tokens=1)

    async def both() -> list[object]:
        asked = [engine.sample(SampleRequest(prompt, max_new_tokens=1, letters=letters)) for letters in ("A€", "AB")]
        return list(await asyncio.gather(*asked, return_exceptions=True))

    failed, answered = asyncio.run(both())
    assert isinstance(failed, ModelError)
    assert re.match("a letter must be one token after the prompt; got [2-9] for €: set critic.method", str(failed))
    assert isinstance(answered, list) and len(answered[0].letter_logps) == 2


def test_letters_needs_an_engine_that_gives_them() -> None:
    with pytest.raises(ConfigError, match=r"method letters needs an engine that gives .*; got scripted: set"):
        LLMRanker(_engine(str), method="letters")
