"""Who collects for a run, and runs by worker processes from start to table."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agentq import envs
from agentq.cli import main
from agentq.errors import ConfigError
from agentq.recipes import executor
from agentq.recipes.executor import workers_of
from agentq.recipes.ladder import RUNGS
from agentq.recipes.resources import Resources
from agentq.recipes.settings import AgentQ
from agentq.store.records import TreeRecord
from agentq.store.run import RunStore
from tests.reads import made
from tests.test_recipes import SMALLER


class Here:
    """An environment of this process."""

    def reset(self, seed: int) -> dict[str, str]:
        return {"instruction": "stop", "text": ""}

    def step(self, command: str, element: int | None, text: str | None) -> dict[str, object]:
        return {"text": "", "terminated": True}


class Started:
    """What would be worker processes."""

    def __init__(self, resources: Resources, num_workers: int, modules: object) -> None:
        self.num_workers, self.closed = num_workers, False

    def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1}, raising=False)


@contextmanager
def chosen(monkeypatch: pytest.MonkeyPatch, base: Path | str, *words: str) -> Iterator[Any]:
    monkeypatch.setattr(executor, "Processes", Started)
    resources = Resources(made(AgentQ, words), base)
    with workers_of(resources, [base]) as found:
        yield found


def test_a_small_model_on_several_cores_has_a_worker_per_core(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with chosen(monkeypatch, base) as found:
        assert found.num_workers == 2 and not found.closed
    assert found.closed
    with chosen(monkeypatch, base, "--run.workers=5") as found:
        assert found.num_workers == 5
    for words in (["--run.executor=inline"], ["--run.workers=1"]):
        with chosen(monkeypatch, base, *words) as found:
            assert found is None
    with chosen(monkeypatch, base, "--run.executor=processes", "--run.workers=1") as found:
        assert found.num_workers == 1


def test_a_large_model_has_one_engine(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "LIGHT_BYTES", 1000)
    with chosen(monkeypatch, base) as found:
        assert found is None
    with chosen(monkeypatch, base, "--run.executor=processes") as found:
        assert found.num_workers == 2


def test_workers_are_chosen_by_all_that_each_of_them_would_load(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The base, the trained weights of its size, and a critic of ten times that."""
    weights = sum(file.stat().st_size for file in base.glob("*.safetensors"))
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(bytes(10 * weights))
    for words, load in (
        ([], 2),
        (["--train.lora_rank=2"], 1),
        (["--critic.model=none"], 2),
        ([f"--critic.model={tmp_path}"], 12),
        (["--critic.model=http://localhost:1/v1"], 2),
    ):
        for limit, fits in ((load * weights, True), (load * weights - 1, False)):
            monkeypatch.setattr(executor, "LIGHT_BYTES", limit)
            with chosen(monkeypatch, base, *words) as found:
                assert (found is not None) == fits, (words, limit)
    with chosen(monkeypatch, base, f"--critic.model=vllm:{tmp_path}") as found:  # each would start a vLLM
        assert found is None


def test_what_only_this_process_can_do_it_does(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    envs.register("known_here", Here)
    for model, word, reason in (
        (base, "--run.env=known_here", "only this process knows known_here"),
        (base, "--run.engine=http://localhost:1/v1", "another process samples"),
        ("http://localhost:1/v1", "--run.seed=0", "another process samples"),
    ):
        with chosen(monkeypatch, model, word) as found:
            assert found is None
        with (
            pytest.raises(ConfigError, match=f"run.executor must be inline, since {reason}; got processes"),
            chosen(monkeypatch, model, word, "--run.executor=processes"),
        ):
            pass


def test_where_nothing_forks_this_process_collects(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "fork")
    with chosen(monkeypatch, base, "--run.workers=2") as found:
        assert found is None
    refused = "run.executor must be inline, since this system forks no processes; got processes"
    with pytest.raises(ConfigError, match=refused), chosen(monkeypatch, base, "--run.executor=processes"):
        pass


@pytest.mark.rest
def test_a_ladder_by_processes_has_the_rows_and_trees_of_one_by_this_process(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["ladder", "--json", "--base", str(base), *SMALLER.split()]
    rows, trees = {}, {}
    for name in ("inline", "processes"):
        assert main([*words, f"--run.out={tmp_path / name}", f"--run.executor={name}"]) == 0
        rows[name] = json.loads(capsys.readouterr().out)["rungs"]
        for row in rows[name]:
            assert row.pop("seconds") > 0
        with RunStore.read(tmp_path / name) as store:
            trees[name] = [shape(tree) for stage in store.stages() for tree in store.trees(stage)]
            used = [(store.note(stage) or {}).get("usage") for stage in store.stages()]
        assert sum(roles["policy"]["requests"] for roles in used if roles) > 0
    assert len(rows["inline"]) == len(RUNGS) and trees["inline"]
    assert rows["inline"] == rows["processes"] and trees["inline"] == trees["processes"]


def shape(tree: TreeRecord) -> Any:
    tokens = [None if p is None else p.token_ids.tolist() for p in tree.proposal]
    return tree.task.seed, tree.parent.tolist(), tree.visit_count.tolist(), tokens


def test_models_on_a_gpu_are_not_shared_out_to_processes(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "read_devices", lambda given: ("cuda:0",))
    for name in ("auto", "processes"):
        resources = Resources(made(AgentQ, [f"--run.executor={name}", "--run.workers=2"]), base)
        if name == "auto":
            with workers_of(resources, [base]) as processes:
                assert processes is None
            continue
        with (
            pytest.raises(ConfigError, match=r"run.executor must be inline, since models run on a GPU; got processes"),
            workers_of(resources, [base]),
        ):
            pass
