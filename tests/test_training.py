"""`agentq.train`: the same run as the command's, in the same directory."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import agentq
from agentq import envs
from agentq.cli import main
from agentq.errors import ConfigError
from agentq.store.run import RunStore
from tests.train_factory import weights

SETTINGS: dict[str, Any] = {"run": {"num_tasks": 2, "seed": 4}, "eval": {"num_tasks": 2}, "train": {"batch_size": 6}}
WORDS = ["--run.num_tasks=2", "--run.seed=4", "--eval.num_tasks=2", "--train.batch_size=6"]


def test_train_is_the_run_of_the_command(base: Path, tmp_path: Path) -> None:
    by_call, by_command = tmp_path / "call", tmp_path / "command"
    before, after = agentq.train("sft", base=base, out=by_call, **SETTINGS)
    assert (before.name, after.name, after.n) == ("base", "sft", 2)
    assert main(["train", "sft", "--base", str(base), "--out", str(by_command), *WORDS]) == 0
    first, second = weights(by_call, "sft"), weights(by_command, "sft")
    assert all((first[name] == second[name]).all() for name in first)
    # the command goes on in the directory of the call: all is done there
    with RunStore.read(by_call) as store:
        items = [(stage, store.count(stage, "trajectory")) for stage in store.stages()]
    assert main(["train", "sft", "--base", str(base), "--out", str(by_call), *WORDS]) == 0
    with RunStore.read(by_call) as store:
        assert [(stage, store.count(stage, "trajectory")) for stage in store.stages()] == items
    assert (by_call / "report.html").is_file()


def test_train_refuses_in_one_line(base: Path, tmp_path: Path) -> None:
    for settings, message in (
        ({"search": {"c_expl": 1}}, "agentq.train: unknown key 'search.c_expl'"),
        ({"pairs": {"alpha": 0.5}}, "agentq train sft does not read pairs.alpha"),
        ({"eval": {"num_tasks": 0}}, "eval.num_tasks must be greater than or equal to 1; got 0"),
        ({"run": {"env": "shop"}}, r"env must be an argument of its own; got run=\{'env': ..\}: write env=.."),
        ({"run": {"out": "other"}}, r"out must be an argument of its own; got run=\{'out': ..\}: write out=.."),
    ):
        with pytest.raises(ConfigError, match=message):
            agentq.train("sft", base=base, out=tmp_path / "run", **settings)
    with pytest.raises(ConfigError, match="no recipe 'sfd'; did you mean 'sft'"):
        agentq.train("sfd", base=base, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_train_async_takes_a_class_and_works_in_a_loop(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Tiny:
        name, max_steps = "tiny", 3

        def reset(self, seed: int) -> dict[str, Any]:
            return {"instruction": f"Stop {seed}", "text": "button Up [1]"}

        def step(self, command: str, element: int | None, text: str | None) -> dict[str, Any]:
            return {"text": "button Up [1]", "reward": 1.0, "success": True, "terminated": True}

    monkeypatch.setenv("HOME", str(tmp_path))
    rows = asyncio.run(agentq.train_async("rft", base=base, env=Tiny, out="~/run", **SETTINGS))
    assert [(row.name, row.successes) for row in rows] == [("base", 2), ("rft", 2)]
    assert (tmp_path / "run" / "checkpoints" / "rft").is_dir()
    assert envs.make("tiny").name == "tiny"


NAMED = """
from agentq.recipes.recipe import Recipe, collect_groups
from agentq.recipes.settings import Rft
from agentq.recipes import rft

class Own(Rft):
    margin: float = 1.0

RECIPE = Recipe({}, {}, collect_groups, rft.credit, rft.loss)
"""


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("base", "Rft", "a recipe's name must be .* and not base, .*; got 'base'"),  # it would measure the base twice
        ("mine/best", "Rft", "a recipe's name must be .*; got 'mine/best'"),
        ("", "Rft", "a recipe's name must be .*; got ''"),
        ("mine", "Own", "a setting of recipe mine must be in a section, .*; got margin outside of one"),
        ("mine", "Rft()", "settings of recipe mine must be a subclass of Training; got Rft"),
    ],
)
def test_a_recipe_of_ones_own_is_refused_before_the_run(
    name: str, settings: str, message: str, base: Path, tmp_path: Path
) -> None:
    file = tmp_path / "own.py"
    file.write_text(NAMED.format(repr(name), settings))
    with pytest.raises(ConfigError, match=message):
        agentq.train(file, base=base, out=tmp_path / "run", **SETTINGS)
    assert not (tmp_path / "run").exists()
