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
from agentq.policies.usage import LISTENERS
from agentq.recipes.pipeline import Pipeline
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
        ({"run": {"env": "shop"}}, r"env must be given as an argument; got run=\{'env': ..\}: write env=.."),
        ({"run": {"out": "other"}}, r"out must be given as an argument; got run=\{'out': ..\}: write out=.."),
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
        (
            "base",
            "Rft",
            "a recipe's name must have .* and not be base, .*; got 'base'",
        ),  # it would measure the base twice
        ("mine/best", "Rft", "a recipe's name must have .*; got 'mine/best'"),
        ("", "Rft", "a recipe's name must have .*; got ''"),
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


PARTS = """
from agentq.config import Contests, TrainOnSampled
from agentq.recipes import policy_gradient, rft
from agentq.recipes.recipe import Recipe, Round, collect_groups
from agentq.recipes.settings import PolicyGradient, Rft, Training

class Train(TrainOnSampled):
    margin: float

class NoDefault(Rft):
    train: Train

def broken(r):
    return 1 / 0

"""


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("Recipe(3, Rft, collect_groups, rft.credit, rft.loss)", "a recipe's name must have .*; got '3'"),
        (
            "Recipe('x', Rft, None, rft.credit, rft.loss)",
            r"collect of recipe x must be a function \(round\); got None",
        ),
        (
            "Recipe('x', Rft, collect_groups, lambda: [], rft.loss)",
            r"credit of recipe x must be a function \(round\)",
        ),
        ("Recipe('x', Rft, collect_groups, rft.credit, 'dpo')", "loss of recipe x must be a function .*; got 'dpo'"),
        (
            "Recipe('x', NoDefault, collect_groups, rft.credit, rft.loss)",
            "section train of recipe x must have a default",
        ),
        ("policy_gradient.recipe('x')", "recipe x must have settings, a subclass of PolicyGradient; got none"),
        (
            "policy_gradient.recipe('x', PolicyGradient, advantages=lambda c: c.returns)",
            "advantages of recipe x must be",
        ),
    ],
)
def test_a_recipe_with_a_wrong_part_is_refused_before_the_run(line: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(f"{PARTS}RECIPE = {line}\n")
    with pytest.raises(ConfigError, match=message):
        agentq.train(file, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_fault_of_ones_own_recipe_names_its_line_in_each_command(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, run = tmp_path / "own.py", tmp_path / "run"
    words = ["--eval.measure_base=false", "--run.num_tasks=1"]
    for line, message in (
        ("Recipe('x', Rft, broken, rft.credit, rft.loss)", "own.py:14: ZeroDivisionError: division by zero"),
        ("Rft(run={'num_task': 3})", "own.py:16: Rft: run.num_task: Extra inputs are not permitted; got 3"),
        ("import nothing.at_all", "own.py:16: SyntaxError: invalid syntax"),
    ):
        file.write_text(f"{PARTS}RECIPE = {line}\n")
        assert main(["train", str(file), "--base", str(base), "--out", str(run), *words]) == 2
        assert message in capsys.readouterr().err
    assert main(["resume", str(run)]) == 2  # the words do not name the file
    assert f"agentq: {file}:16: SyntaxError" in (said := capsys.readouterr().err)
    assert "fault of agentq" not in said


def test_rollouts_per_task_must_be_a_setting(base: Path, tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(f"{PARTS}RECIPE = Recipe('x', Training, collect_groups, rft.credit, rft.loss)\n")
    with pytest.raises(ConfigError, match=r"settings of recipe x must have run\.group_size, .*Contests"):
        agentq.train(file, base=base, out=tmp_path / "run", eval={"measure_base": False}, run={"num_tasks": 1})


def test_what_a_recipes_own_searches_use_is_counted(base: Path, tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    lines = [
        "import agentq",
        "def collect(r):",
        "    for task in r.tasks():",
        "        r.store.set_note(r.stage, {'mine': 1})",
        "        settings = dict(critic=r.start, num_iterations=1, num_proposals=2)",
        "        found = agentq.search(r.settings.run.env, task, r.policy, **settings)",
        "        r.store.add_tree(r.stage, found.tree)",
        "RECIPE = Recipe('x', Rft, collect, lambda r: [], rft.loss)",
    ]
    file.write_text(PARTS + "\n".join(lines))
    settings: dict[str, Any] = {"run": {"num_tasks": 2}, "eval": {"measure_base": False, "num_tasks": 1}}
    (row,) = agentq.train(file, base=base, out=tmp_path / "run", **settings)
    with RunStore.read(tmp_path / "run") as store:
        note, measured = store.note("x/round1/collect") or {}, store.note("x/eval") or {}
        infos = [tree.info for tree in store.trees("x/round1/collect", nodes=())]
    own = note["usage"]
    assert own["policy"]["prompt_tokens"] >= sum(info["prompt_tokens"] for info in infos) > 0
    assert own["critic"]["requests"] > 0 and note["mine"] == 1 and note["seconds"] > 0
    critics = own["critic"]["prompt_tokens"]
    recorded = sum(info["prompt_tokens"] for info in infos) + measured["usage"]["policy"]["prompt_tokens"]
    assert row.prompt_tokens == recorded + critics and not LISTENERS


def test_the_display_counts_no_stage_that_a_recipe_collects_by_itself(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, left_out = tmp_path / "own.py", list[str]()
    file.write_text(f"{PARTS}RECIPE = Recipe('x', Rft, lambda r: None, lambda r: [], rft.loss)\n")
    monkeypatch.setattr(Pipeline, "leave_out", lambda _, stages, needed=(): left_out.extend(stages))
    settings: dict[str, Any] = {"run": {"num_tasks": 1}, "eval": {"measure_base": False, "num_tasks": 1}}
    agentq.train(file, base=base, out=tmp_path / "run", **settings)
    assert left_out == ["x/round1/collect", "x/round1/learn"]
