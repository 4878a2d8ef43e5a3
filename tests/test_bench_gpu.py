"""`benchmarks/gpu.py`: every part runs without a GPU in its tiny form, and results are kept."""

from __future__ import annotations

import json
from pathlib import Path

import gpu
import pytest

TINY = ["--shape", "tiny", "--device", "cpu"]


@pytest.mark.rest
def test_every_part_runs_without_a_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu.main([*TINY, "--out", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert list(found["figures"]) == list(gpu.PARTS)
    for part, figures in found["figures"].items():
        assert ("skipped" in figures) == part.endswith("trl")
    steps = [figures for part, figures in found["figures"].items() if part.endswith("packed")]
    assert len(steps) == 4 and all(figures["fed_tokens"] < figures["data_tokens"] for figures in steps)
    assert found["targets"] and all(goal["met"] for goal in found["targets"].values())


def test_a_result_is_kept_and_a_part_without_one_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def measure(part: str, args: object) -> dict[str, object]:
        asked.append(part)
        return {"skipped": "no reason"} if part.endswith("trl") else {"seconds": 1.0}

    monkeypatch.setattr(gpu, "measure", measure)
    words = [*TINY, "--out", str(tmp_path), "--part", "dpo-7b-packed", "dpo-7b-trl"]
    assert gpu.main(words) == gpu.main(words) == 0
    assert asked == ["dpo-7b-packed", "dpo-7b-trl", "dpo-7b-trl"]
    capsys.readouterr()
    gpu.main([*words, "--list"])
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines() if "has a result" in line] == asked[:1]
    monkeypatch.setattr(gpu, "commit", lambda: "another")
    gpu.main(words)
    assert asked[3:] == asked[:2]  # other code


def test_a_part_has_a_process_of_its_own_and_a_time_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "part.py"
    monkeypatch.setattr(gpu, "__file__", str(script))
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda: "NVIDIA H100 80GB HBM3")
    words = ["--out", str(tmp_path / "out"), "--part", "loop"]
    script.write_text("import sys; print('no memory', file=sys.stderr); sys.exit(1)")
    assert gpu.main(words) == 1
    assert 'loop: failed "exit code 1: no memory (more in' in capsys.readouterr().out
    monkeypatch.setattr(gpu, "LIMIT_S", 0.5)
    script.write_text("import time; time.sleep(60)")
    assert gpu.main(words) == 1
    assert "not done after 0 s; the same command tries again" in capsys.readouterr().out
    monkeypatch.setattr(gpu, "LIMIT_S", 60.0)
    script.write_text("import json; print('loading'); print(json.dumps({'seconds': 2.5}))")
    assert gpu.main(words) == 0 and "loop: seconds 2.5" in capsys.readouterr().out
    assert gpu.main([*words, "--part", "base", "--minutes", "0.01"]) == 0
    assert "base: not begun; the same command goes on" in capsys.readouterr().out


def test_without_a_gpu_one_line_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="must be a CUDA device; got none: --shape tiny --device cpu"):
        gpu.main(["--out", str(tmp_path)])
    assert not list(tmp_path.iterdir())


def test_steps_are_compared_on_a_gpu_only() -> None:
    figures = {"dpo-7b-packed": {"seconds": 2.0}, "dpo-7b-loop": {"seconds": 9.0}, "dpo-7b-trl": {"skipped": "none"}}
    assert gpu.targets_of(figures, "cpu") == {}
    (goal,) = gpu.targets_of(figures, "cuda").items()
    assert goal == ("dpo 7b: times as fast as loop", {"value": 4.5, "target": 4.0, "met": True})
