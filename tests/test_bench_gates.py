"""The reading bases that are kept in `benchmarks`, and the logs of their gates."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from gates import AT_LEAST, GATES, copy

from agentq.policies.engine_names import make_engine

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
KEPT = ("reading", "reading-220", "reading-236")


@pytest.mark.rest
@pytest.mark.parametrize("name", KEPT)
def test_a_kept_base_types_words_that_its_training_never_drew(name: str) -> None:
    found = copy(make_engine(str(BENCHMARKS / name)), 20, 0)
    assert min(found["quoted"]["hits"], found["plain"]["hits"]) >= 18


@pytest.mark.parametrize("name", KEPT)
def test_the_log_has_every_gate_of_a_kept_base(name: str) -> None:
    last = json.loads((BENCHMARKS / f"results/gates-{name}.jsonl").read_text().splitlines()[-1])
    trained = json.loads((BENCHMARKS / name / "training.jsonl").read_text().splitlines()[-1])
    assert (last["checkpoint"], last["tokens"]) == (f"benchmarks/{name}", trained["tokens"])
    assert last["figures"].keys() == GATES.keys() == AT_LEAST.keys()
