"""`make bench-all`: every benchmark takes part or says why not, within 40 minutes, and a missed target is seen."""

from __future__ import annotations

import importlib
import re
import sys
import time
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


bench = importlib.import_module("all")  # of benchmarks/


def test_every_benchmark_takes_part_or_has_a_reason() -> None:
    short = {each.name for each in bench.SHORT}
    programs = {file.stem for file in BENCHMARKS.glob("*.py") if "__main__" in file.read_text()} - {"all"}
    parts = {name for name in programs - short if any(name.startswith(f"{whole}_") for whole in programs)}
    assert short | bench.WITHOUT.keys() == programs - parts and not short & bench.WITHOUT.keys()
    listed = set(re.findall(r"^\| `(\w+)\.py` \|", (BENCHMARKS / "README.md").read_text(), re.M))
    assert listed - {"all"} - parts == programs - parts


def test_the_whole_run_ends_after_its_minutes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert bench.MOST_S <= 40 * 60
    monkeypatch.setattr(bench, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr(bench, "SHORT", [bench.Short("startup", ("--repeats", "9"), 60)] * 2)
    monkeypatch.setattr(bench, "MOST_S", 1)
    seen = []
    monkeypatch.setattr(bench, "show", lambda result, _: seen.append(result.failed))
    assert bench.main([]) == 1
    assert seen == ["not done after 1 s", "not begun: the 0 minutes are over"]


def test_what_a_benchmark_started_ends_with_it(tmp_path: Path) -> None:
    child = f"import time; time.sleep(3); open({str(tmp_path / 'alive')!r}, 'w')"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    assert bench._ended([sys.executable, "-c", parent], 1.0) is None
    time.sleep(3)
    assert not (tmp_path / "alive").exists()


def test_a_missed_target_that_was_met_before_is_a_regression(capsys: pytest.CaptureFixture) -> None:
    goals = {name: {"value": 1.5, "target": 1, "met": name == "a"} for name in ("a", "b", "c")}
    goals["d"] = {"value": [0.2, 0.1], "target": ["base", "rft"], "met": False}
    result = bench.Result("forest", targets=goals)
    found = bench.verdicts(result, {"forest: b": True, "forest: c": False, "critic: c": True})
    assert found == {"a": "met", "b": "REGRESSED", "c": "MISSED", "d": "MISSED"}
    bench.show(result, found)
    printed = capsys.readouterr().out
    assert "1 of 4 targets met" in printed and "REGRESSED: b: 1.5, target 1" in printed
    assert "MISSED: d: [0.2, 0.1], target ['base', 'rft']" in printed


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
