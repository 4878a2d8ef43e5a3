"""`make bench-all`: every benchmark takes part, within 40 minutes, and a missed target is seen."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


bench = importlib.import_module("all")  # of benchmarks/


def test_every_benchmark_of_the_readme_takes_part() -> None:
    # gates.py needs a checkpoint that is to pass them; correction.py and results.py only read what was measured;
    # face_images.py draws
    listed = set(re.findall(r"^\| `(\w+)\.py` \|", (BENCHMARKS / "README.md").read_text(), re.M)) - {
        "all",
        "correction",
        "face_images",
        "gates",
        "results",
    }
    assert {short.name for short in bench.SHORT} == listed
    assert sum(short.seconds for short in bench.SHORT) <= 40 * 60


def test_a_missed_target_that_was_met_before_is_a_regression(capsys: pytest.CaptureFixture) -> None:
    goals = {name: {"value": 1.5, "target": 1, "met": name == "a"} for name in ("a", "b", "c")}
    result = bench.Result("forest", targets=goals)
    found = bench.verdicts(result, {"forest: b": True, "forest: c": False, "critic: c": True})
    assert found == {"a": "met", "b": "REGRESSED", "c": "MISSED"}
    bench.show(result, found)
    printed = capsys.readouterr().out
    assert "1 of 3 targets met" in printed and "REGRESSED: b: 1.5, target 1" in printed


@pytest.mark.parametrize(
    ("words", "seconds", "said"),
    [(("--nonsense",), 60, "exit code 2"), (("--repeats", "9"), 1, "not done after 1 s")],
)
def test_a_benchmark_that_does_not_end_well_is_told(words: tuple[str, ...], seconds: int, said: str) -> None:
    result = bench.run(bench.Short("startup", words, seconds), sys.executable)
    assert said in result.failed and not result.targets


def test_a_benchmark_without_its_packages_is_skipped() -> None:
    result = bench.run(bench.Short("remote", (), 60, ("build/nowhere/bin/python",)), "python")
    assert result.skipped == "no build/nowhere/bin/python: make bench-setup" and not result.failed
