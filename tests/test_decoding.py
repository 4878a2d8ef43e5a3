"""Requests that join and leave at any step, samples that share what they drew, and the core's attention."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from architectures import make_model, write_checkpoint

from agentq import _core
from agentq.errors import ModelError
from agentq.policies import decoding, prefix
from agentq.policies.columns import Growth, SharedColumns
from agentq.policies.decoding import Answering, Decoding
from agentq.policies.prefix import PrefixCache
from agentq.policies.protocol import Prompt, SampledAnswer, SampleRequest
from agentq.policies.transformers_engine import TransformersEngine
from agentq.policies.trial import choose_columns
from tests.learn_factory import tiny_llama

PROMPTS = [np.arange(5, 5 + n, dtype=np.int32) for n in (70, 17, 90, 33)]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> TransformersEngine:
    return TransformersEngine(write_checkpoint("Llama", tmp_path_factory.mktemp("llama")), max_rows=3)


def request(i: int, **other: object) -> SampleRequest:
    asked = {"k": 1 + i, "seed": i, "temperature": 0.5 * i, "max_new_tokens": 6 + 3 * i, **other}
    return SampleRequest(Prompt([], PROMPTS[i]), **asked)  # type: ignore[arg-type]


def alone(engine: TransformersEngine, r: SampleRequest) -> list[list[int]]:
    (found,) = engine.generate(
        [r.prompt.ids], r.k, seeds=[r.seed], temperature=r.temperature, max_new_tokens=r.max_new_tokens
    )
    return tokens(found)


def tokens(samples: Sequence[SampledAnswer]) -> list[list[int]]:
    return [s.token_ids.tolist() for s in samples]


def test_requests_of_any_kind_are_computed_together_and_sampled_as_alone(
    engine: TransformersEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    want, sizes = [alone(engine, request(i)) for i in range(4)], list[int]()
    forward = SharedColumns.forward

    def counted(self: SharedColumns, rows: Sequence[Growth]) -> torch.Tensor:
        sizes.append(len(rows))
        return forward(self, rows)

    monkeypatch.setattr(SharedColumns, "forward", counted)

    async def twice(i: int) -> list[list[int]]:
        assert tokens(await engine.sample(request(i))) == want[i]
        return tokens(await engine.sample(request(i)))

    async def main() -> list[list[list[int]]]:
        return await asyncio.gather(*map(twice, range(4)))

    assert asyncio.run(main()) == want
    assert max(sizes) == engine.limit.rows and sum(size > 1 for size in sizes) > len(sizes) / 2


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), MemoryError()]
)
def test_when_memory_does_not_suffice_half_as_many_begin_again(
    error: Exception, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = TransformersEngine(write_checkpoint("Llama", tmp_path), max_rows=4)
    asked = [request(0, letters=("A", "B")), request(1), request(2, temperature=1.0), request(3, pattern="[a-z ]{9}")]
    before, steps, forward = engine.usage.total.requests, list[int](), SharedColumns.forward

    def small(self: SharedColumns, rows: Sequence[Growth]) -> torch.Tensor:
        logits = forward(self, rows)
        steps.append(len(rows))
        if len(rows) > 1 and len(steps) > 4:  # with tokens drawn, and rows that have grown
            raise error
        return logits

    async def main() -> list[list[SampledAnswer]]:
        return await asyncio.gather(*map(engine.sample, asked))

    want = asyncio.run(main())
    capsys.readouterr()
    monkeypatch.setattr(SharedColumns, "forward", small)
    found = asyncio.run(main())
    assert list(map(tokens, found)) == list(map(tokens, want))
    assert found[0][0].letter_logps == pytest.approx(want[0][0].letter_logps)
    assert (steps[4], engine.limit.rows, set(steps[6:])) == (4, 1, {1})
    assert engine.usage.total.requests == before + 8
    assert capsys.readouterr().err.splitlines() == [
        f"agentq: the model must have memory for {n} prompts at once; it has not, and goes on with {n // 2}"
        for n in (4, 2)
    ]


def test_a_prompt_alone_that_memory_cannot_hold_is_an_error(
    engine: TransformersEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: SharedColumns, rows: Sequence[Growth]) -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(SharedColumns, "forward", full)
    with pytest.raises(torch.OutOfMemoryError):
        asyncio.run(engine.sample(request(0)))


def test_cached_tokens_are_counted_with_their_prompts(engine: TransformersEngine) -> None:
    """At the end of a request: a status line in between neither shows more than 100 % cached nor a negative price."""
    decoding, before = engine._decoding(), engine.usage.since(None)
    new = SampleRequest(Prompt([], PROMPTS[2][::-1].copy()), temperature=0.0, max_new_tokens=12)
    decoding.add(new, 0)
    while not decoding.step():
        pass
    decoding.add(new, 0)
    decoding.step()
    once = engine.usage.since(before).total
    assert (once.requests, once.prompt_tokens, once.cached_tokens) == (1, 90, 0)
    while not decoding.step():
        pass
    twice = engine.usage.since(before).total
    assert (twice.requests, twice.prompt_tokens) == (2, 180) and 0 < twice.cached_tokens < 90


def test_a_cancelled_request_leaves_and_the_others_go_on(
    engine: TransformersEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    want, step, before = alone(engine, request(3)), Decoding.step, engine.usage.total.requests

    async def main() -> list[list[int]]:
        loop = asyncio.get_running_loop()
        left = asyncio.create_task(engine.sample(request(0, k=9, temperature=1.0, max_new_tokens=9)))
        short = asyncio.create_task(engine.sample(request(1, max_new_tokens=2)))

        def cancelling(decoding: Decoding) -> list[Answering]:
            loop.call_soon_threadsafe(left.cancel)
            return step(decoding)

        monkeypatch.setattr(Decoding, "step", cancelling)
        found = tokens(await asyncio.wait_for(engine.sample(request(3)), 20))
        await asyncio.gather(left, short, return_exceptions=True)
        assert left.cancelled()
        return found

    assert asyncio.run(main()) == want
    assert engine.usage.total.requests == before + 2


def test_a_failing_model_fails_what_is_under_way_and_no_later_request(
    engine: TransformersEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    want = alone(engine, request(2))

    def fail(self: SharedColumns, rows: Sequence[Growth]) -> torch.Tensor:
        monkeypatch.undo()
        raise RuntimeError("the model died")

    async def main() -> list[list[int]]:
        monkeypatch.setattr(SharedColumns, "forward", fail)
        both = await asyncio.gather(*(engine.sample(request(i)) for i in (0, 1)), return_exceptions=True)
        assert [str(error) for error in both] == ["the model died"] * 2
        return tokens(await engine.sample(request(2)))

    assert asyncio.run(main()) == want


@pytest.mark.parametrize("family", ["Llama", "Qwen3", "Lfm2"])  # the core's decoder, packed, row by row
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_logits_that_are_not_finite_are_refused_and_not_sampled(family: str, bad: float, tmp_path: Path) -> None:
    """A damaged row of the embedding. Later requests without its token are sampled."""
    engine = TransformersEngine(write_checkpoint(family, tmp_path, tie_word_embeddings=False))
    weights = {name: w.clone() for name, w in engine.model.state_dict().items()}
    weights["model.embed_tokens.weight"][120] = bad
    engine.publish(weights)
    ill = SampleRequest(Prompt([], np.array([5, 120, 6], dtype=np.int32)), k=2, max_new_tokens=5)

    async def main() -> list[list[int]]:
        found = await asyncio.gather(engine.sample(ill), return_exceptions=True)
        assert [(type(error), str(error)) for error in found] == [
            (
                ModelError,
                "logits must be finite; got NaN or infinity from weights in float32: the weights are damaged or their "
                "training has diverged",
            )
        ]
        return tokens(await engine.sample(request(1, max_new_tokens=3)))

    assert asyncio.run(main()) == alone(engine, request(1, max_new_tokens=3))


def test_a_model_without_finite_logits_is_refused_at_the_start() -> None:
    model = tiny_llama()
    with torch.no_grad():
        model.model.norm.weight.fill_(float("nan"))
    with pytest.raises(ModelError, match="got NaN or infinity from weights in float32: the weights are damaged"):
        choose_columns(model)


def test_float16_that_overflows_is_told_what_to_use_instead(tmp_path: Path) -> None:
    """The trial at the start does not meet the token whose activations overflow."""
    model = make_model("Llama", tie_word_embeddings=False)
    with torch.no_grad():
        model.model.embed_tokens.weight[120] = 65000.0
        model.model.layers[0].mlp.down_proj.weight *= 3e4
    write_checkpoint("Llama", tmp_path)
    model.save_pretrained(tmp_path)
    prompts = [np.array([5, token, 7, 8], dtype=np.int32) for token in (6, 120)]
    engine = TransformersEngine(tmp_path, dtype=torch.float16)
    assert np.isfinite(engine.generate(prompts[:1], 1, seeds=[0], max_new_tokens=4)[0][0].logps).all()
    message = r"got NaN or infinity from weights in float16, which overflows above 65504: use .*\(--model\.dtype\)$"
    with pytest.raises(ModelError, match=message):
        engine.generate(prompts, 1, seeds=[0, 0], max_new_tokens=4)
    engine = TransformersEngine(tmp_path, dtype=torch.float32)
    for samples in engine.generate(prompts, 1, seeds=[0, 0], max_new_tokens=4):
        assert np.isfinite(samples[0].logps).all()


def test_a_pattern_that_forbids_most_tokens_is_no_fault_of_the_logits(engine: TransformersEngine) -> None:
    pytest.importorskip("llguidance")
    for temperature in (0.0, 1.0):
        (found,) = engine.generate(
            [PROMPTS[1]], 2, seeds=[0], temperature=temperature, max_new_tokens=3, patterns=["Blue"]
        )
        assert all(np.isfinite(s.logps).all() and "Blue".startswith(s.text[:4]) for s in found)


def test_a_bad_pattern_fails_its_own_request_alone(engine: TransformersEngine) -> None:
    pytest.importorskip("llguidance")
    want = alone(engine, request(1))

    async def main() -> list[object]:
        asked = engine.sample(request(0, pattern="(")), engine.sample(request(1))
        return list(await asyncio.gather(*asked, return_exceptions=True))

    error, found = asyncio.run(main())
    assert isinstance(error, ModelError) and tokens(found) == want  # type: ignore[arg-type]


def test_samples_that_drew_the_same_tokens_are_computed_once(
    engine: TransformersEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed, forward = list[int](), SharedColumns.forward

    def counted(self: SharedColumns, rows: Sequence[Growth]) -> torch.Tensor:
        computed.extend(len(growth.tokens) for growth in rows)
        return forward(self, rows)

    monkeypatch.setattr(SharedColumns, "forward", counted)
    for temperature in (0.0, 0.7):
        computed.clear()
        (samples,) = engine.generate(PROMPTS[:1], 6, seeds=[3], temperature=temperature, max_new_tokens=8)
        goes_on = {tuple(s.token_ids[:n]) for s in samples for n in range(1, len(s.token_ids))}
        assert sum(computed) == len(goes_on) and (temperature or max(computed) == 1)


def test_prompts_enter_in_steps_of_bounded_size(engine: TransformersEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    want = engine.generate(PROMPTS, 2, seeds=range(4), max_new_tokens=5)
    monkeypatch.setattr(decoding, "PROMPT_TOKENS", 20)
    engine.prefixes.clear()
    found = engine.generate(PROMPTS, 2, seeds=range(4), max_new_tokens=5)
    assert [tokens(s) for s in found] == [tokens(s) for s in want]


def test_prefixes_are_bounded_by_bytes_and_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefix, "LEAST_BLOCKS", 3)
    monkeypatch.setattr(prefix, "PROMPTS", 2)
    cache, states = PrefixCache(1 << 20), torch.zeros(1, 2, 1, 90, 4)
    cache.add(PROMPTS[2], states)
    assert cache.num_bytes == 3 * 2 * 16 * 4 * 4
    assert [block.shape for block in cache.find(PROMPTS[2])] == [(1, 2, 1, 16, 4)] * 3
    for first in range(100):  # prompts of 5 blocks: room for two of them
        cache.add(np.arange(first, first + 80, dtype=np.int32), states)
    assert cache.num_bytes // (2 * 16 * 4 * 4) == 9  # 2 x 4.97, as the mean has not quite reached 5


@pytest.mark.parametrize(("size", "groups"), [(32, 1), (16, 2), (64, 3), (128, 1), (20, 2), (48, 1)])
def test_attend_rows_is_softmax_attention_of_each_row(size: int, groups: int) -> None:
    rng = np.random.default_rng(0)
    heads, starts, stops, lengths = 2, [0, 1], [1, 6], [41, 399]

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    query, key = normal(6, heads * groups, size).transpose(1, 0, 2), normal(heads, 6, size)  # one with strides
    value, states = normal(heads, 6, size), [normal(2, heads, room, size) for room in (50, 400)]
    visible = rng.random((5, 399)) < 0.7
    want = [each.copy() for each in states]
    out = _core.attend_rows(query, key, value, states, starts, stops, lengths, [None, visible], 0.3)
    for i, (start, stop, length) in enumerate(zip(starts, stops, lengths, strict=True)):
        want[i][:, :, length - (stop - start) : length] = np.stack([key, value])[:, :, start:stop]
        np.testing.assert_array_equal(states[i], want[i])
        for h in range(heads * groups):
            keys, values = want[i][:, h // groups, :length].astype(np.float64)
            scores = 0.3 * query[h, start:stop] @ keys.T
            if i == 1:
                scores[~visible] = -np.inf
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            expected = weights @ values / weights.sum(axis=1, keepdims=True)
            np.testing.assert_allclose(out[start:stop, h], expected, atol=1e-5)


def test_attend_rows_refuses_what_lies_outside_its_arrays() -> None:
    new, state = np.zeros((2, 3, 8), np.float32), np.zeros((2, 2, 9, 8), np.float32)

    def call(**changed: object) -> object:
        given = {"query": new, "key": new, "value": new, "states": [state], "starts": [0], "stops": [3], "lengths": [9]}
        return _core.attend_rows(**{**given, "visible": [None], "scale": 1.0, **changed})  # type: ignore[arg-type]

    call()
    for changed in (
        {"stops": [4]},
        {"starts": [-1]},
        {"starts": [3]},
        {"lengths": [10]},
        {"lengths": [2]},
        {"lengths": []},
        {"key": new[:, :2]},
        {"query": new[:1]},
        {"value": new[..., ::2]},
        {"states": [state[:, :1]]},
        {"states": [np.zeros((2, 2, 9, 7), np.float32)]},
        {"visible": [np.ones((3, 8), bool)]},
    ):
        with pytest.raises((ValueError, TypeError)):
            call(**changed)
