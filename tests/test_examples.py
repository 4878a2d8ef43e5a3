"""The scripts of `examples/` run as they stand; three are what a newcomer writes first, each under 20 lines."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FIRST = ("search_own_env", "dpo_own_pairs", "evaluate_checkpoint")


def run(name: str, *words: str | Path) -> str:
    done = subprocess.run(
        [sys.executable, f"examples/{name}.py", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", FIRST)
def test_a_first_script_is_under_twenty_lines(name: str) -> None:
    text = (ROOT / "examples" / f"{name}.py").read_text()
    assert len(text.splitlines()) < 20
    assert not re.findall(r"^\s*from agentq\.|^\s*import agentq\.", text, re.MULTILINE), "the root has all it needs"


def test_search_your_own_environment_with_your_own_model() -> None:
    printed = run("search_own_env")
    assert "solved in 3 steps" in printed and "success" in printed


def test_dpo_on_your_own_pairs(base: Path, tmp_path: Path) -> None:
    printed = run("dpo_own_pairs", base, tmp_path / "new")
    losses = [float(found) for found in re.findall(r"loss ([\d.]+)", printed)]
    assert losses[0] == 0.693 and losses == sorted(losses, reverse=True) and losses[-1] < 0.6
    assert (tmp_path / "new" / "model.safetensors").is_file()


def test_evaluate_a_checkpoint(base: Path) -> None:
    printed = run("evaluate_checkpoint", base)
    assert re.match(r"\d+ of 20 tasks \(\d+\.\d %, 95 % interval \d+\.\d - \d+\.\d\)\n(solved|failed) in ", printed)


def test_plan_with_the_search_core_alone() -> None:
    printed = run("plan_with_forest")
    assert "from 1: go to 2\n" in printed and printed.endswith(" bytes\n")  # 1, 2, 5, 10, 20
