"""The reading base that is kept in `benchmarks/reading`, and the log of its gates."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from gates import AT_LEAST, GATES, copy

from agentq.policies.engine_names import make_engine

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.mark.rest
def test_the_kept_base_types_words_that_its_training_never_drew() -> None:
    found = copy(make_engine(str(BENCHMARKS / "reading")), 20, 0)
    assert min(found["quoted"]["hits"], found["plain"]["hits"]) >= 18


def test_the_log_has_every_gate_of_the_kept_base() -> None:
    last = json.loads((BENCHMARKS / "results/gates-reading.jsonl").read_text().splitlines()[-1])
    trained = json.loads((BENCHMARKS / "reading/training.jsonl").read_text().splitlines()[-1])
    assert (last["checkpoint"], last["tokens"]) == ("benchmarks/reading", trained["tokens"])
    assert last["figures"].keys() == GATES.keys() == AT_LEAST.keys()
