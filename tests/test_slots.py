"""Rows in slots of one tensor, as on accelerators, computed here on the CPU: logits, room, and what is given back."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from architectures import make_model

from agentq.policies import columns, llama, slots, trial
from agentq.policies.columns import Growth, SharedColumns
from agentq.policies.prefix import PrefixCache
from agentq.policies.slots import Slots
from agentq.policies.transformers_engine import TransformersEngine
from agentq.policies.trial import choose_columns
from tests.test_small_llama import SHAPES, check_logits, model_of


class InSlots(SharedColumns):
    """Its rows have slots on a CPU, too."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.slots = Slots()


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little room at first, and no decoder in the core, which has no slots."""
    monkeypatch.setattr(llama, "SMALL", 0)
    monkeypatch.setattr(slots, "LEAST", 2)
    monkeypatch.setattr(slots, "ROOM", 8)
    monkeypatch.setattr(columns, "ROOM", 2)


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@torch.inference_mode()
def test_rows_in_slots_have_the_logits_of_a_plain_forward_pass(shape: tuple[int, int, int, int, int]) -> None:
    model, rng = model_of(*shape), np.random.default_rng(0)
    shared = InSlots(model, PrefixCache(1 << 30))
    prompts = [rng.integers(0, 90, n).astype(np.int32) for n in (100, 600, 1, 40)]
    prompts.append(np.concatenate([prompts[1][:300], prompts[3][:4]]))  # its new tokens are few

    near = partial(check_logits, model)
    rows = [shared.begin(prompt) for prompt in prompts[:4]]
    near(shared.forward([Growth(row) for row in rows]), *prompts[:4])
    rows.append(shared.begin(prompts[4]))
    assert rows[4].num_cached == 288
    branches = [[p] for p in prompts]
    for widths in (
        (3, 1, 2, 9, 0),
        (3, 2, 2, 20, 1),
        (1, 2, 1, 9, 1),
        (2, 2, 2, 2, 2),
        (2, 1, 3, 2, 2),
        (1, 1, 1, 1, 1),
    ):
        grown = []
        for i, (row, width) in enumerate(zip(rows, widths, strict=True)):
            tokens = rng.integers(0, 90, width).tolist()
            parents = rng.integers(0, len(branches[i]), width).tolist()
            branches[i] = [np.append(branches[i][parent], token) for token, parent in zip(tokens, parents, strict=True)]
            branches[i] = branches[i] or [prompts[i]]
            grown.append(Growth(row, tokens, parents))
        near(shared.forward(grown), *(branch for each in branches for branch in each))


@pytest.mark.usefixtures("narrow")
@torch.inference_mode()
def test_a_slot_is_free_when_its_row_is_gone_and_without_rows_there_is_no_memory() -> None:
    shared = InSlots(model_of(*SHAPES[0]), PrefixCache(0))
    rows = [shared.begin(np.arange(n, dtype=np.int32)) for n in (5, 20, 9)]
    shared.forward([Growth(row) for row in rows])
    assert {row.slot for row in rows} == {0, 1, 2} and shared.slots is not None
    assert shared.slots.layers[2].shape[1:4] == (4, 4, 24)  # slots doubled, room for 20 + 2 in eights
    free = rows.pop(1).slot
    rows.append(shared.begin(np.arange(7, dtype=np.int32)))
    shared.forward([Growth(rows[2])])
    assert rows[2].slot == free
    rows.clear()
    assert not shared.slots.layers


@pytest.mark.parametrize("name", ["Mistral", "Qwen3", "Gemma3Text", "Phi3"])
def test_the_trial_takes_slots_of_other_models_with_windows_and_without(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "SharedColumns", InSlots)
    assert choose_columns(make_model(name))[1]
    monkeypatch.setattr(slots.Batch, "attend", lambda self, layer, query, key, value, scale: torch.zeros_like(query[0]))
    assert not choose_columns(make_model(name))[1]


def test_an_engine_answers_many_requests_in_few_slots(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts = [np.arange(4, 10 + i, dtype=np.int32) for i in range(30)]

    def answers(engine: TransformersEngine) -> list[list[int]]:
        found = engine.generate(prompts, 3, seeds=range(30), max_new_tokens=12)
        return [sample.token_ids.tolist() for some in found for sample in some]

    want = answers(TransformersEngine(base))
    engine = TransformersEngine(base, max_rows=5)
    shared = InSlots(engine.model, engine.prefixes)
    shared.llama, engine._columns = None, shared
    most = list[int]()
    take = Slots.take
    monkeypatch.setattr(Slots, "take", lambda self, *given: most.append(take(self, *given)) or most[-1])
    assert answers(engine) == want and len(most) == 30 and max(most) < 5
    assert shared.slots is not None and not shared.slots.layers


@pytest.mark.usefixtures("narrow")
def test_slots_that_grew_in_some_layers_only_serve_the_requests_that_begin_again(
    base: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = [np.arange(4, 60 - 9 * i, dtype=np.int32) for i in range(4)]
    engine = TransformersEngine(base, max_rows=4)
    shared = InSlots(engine.model, engine.prefixes)
    shared.llama, engine._columns = None, shared
    slots, new_zeros, calls = shared.slots, torch.Tensor.new_zeros, list[tuple[int, ...]]()
    assert slots is not None

    def full(like: torch.Tensor, *shape: Any) -> torch.Tensor:
        if len(shape) == 5:  # a layer that grows
            calls.append(shape)
            if len(calls) == 2:
                rooms.append([layer.shape[1] for layer in slots.layers])
                raise torch.OutOfMemoryError("CUDA out of memory")
        return new_zeros(like, *shape)

    def answers() -> list[list[int]]:
        found = engine.generate(prompts, 3, seeds=range(4), max_new_tokens=30)
        return [sample.token_ids.tolist() for some in found for sample in some]

    rooms = list[list[int]]()
    want, held = answers(), shared.begin(prompts[0])  # a row that keeps its slot
    with torch.inference_mode():
        shared.forward([Growth(held)])
    monkeypatch.setattr(torch.Tensor, "new_zeros", full)
    assert answers() == want and engine.limit.rows < 4
    assert rooms[0][0] > rooms[0][1] and "goes on with" in capsys.readouterr().err
    assert len({layer.shape for layer in slots.layers}) == 1 and len(slots._taken) == slots.layers[0].shape[1]
