"""A run killed anywhere ends with the weights of an uninterrupted one: every recipe, and the command itself."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from agentq.cli import main
from agentq.recipes import here
from agentq.recipes.ladder import climb, rungs_of
from agentq.recipes.settings import RECIPES
from agentq.store.run import RunStore
from agentq.types import Proposal
from tests.kill_factory import Moment, killed
from tests.reads import made
from tests.recipes_factory import Idle, Quiet
from tests.train_factory import recipe_of, run, same, weights

WORDS = (
    *("--run.env=shop", "--run.num_rounds=2", "--run.num_tasks=2", "--run.group_size=3", "--eval.num_tasks=1"),
    *("--train.batch_size=1", "--train.epochs=1", "--train.warmup_fraction=0.7", "--train.sft_weight=0"),
    *("--search.num_iterations=3", "--search.num_proposals=2", "--eval.measure_base=false"),
    "--model.threads=1",  # here and in the processes that are killed: rounding depends on it
)
ON_SAMPLES = ("sft", "rft", "ei")
ONE_STEP = ("reinforce", "rloo")  # a round
ALIKE = {"loop", "gspo", "reinforce", "tree_po", "tree_grpo"}  # differ from GRPO, RLOO and TreeRL in a formula alone
PAIRS = ("outcome_dpo", "agent_q", "step_agent_implicit")
BY_TASK = (
    "sft",
    "agent_q",
    "tree_grpo",
    "tree_rl",
    "tree_po",
    "arpo_entropy",
    "step_agent_implicit",
    "step_agent_inverse",
)  # two items
RATIOS = set(RECIPES) - {*ON_SAMPLES, *PAIRS, *ONE_STEP}
QUICK = ("agent_q", "ppo")  # pairs; a policy gradient and its value head; the other recipes are of make test-rest


def recipes(names: Iterable[str]) -> list[Any]:
    """Names of recipes as parameters of a test."""
    return [pytest.param(name, marks=() if name in QUICK else pytest.mark.rest) for name in names]


def words_of(name: str) -> tuple[str, ...]:
    if name in ON_SAMPLES:
        return (*WORDS, "--train.batch_size=4")
    if name in ONE_STEP:
        return (*WORDS, "--train.batch_size=6")
    more = {
        "agent_q": ("--run.seed=1", "--train.epochs=2"),  # has pairs in both rounds
        "arpo_replay": ("--run.seed=11",),  # replays a success
        "gigpo": ("--policy_gradient.kl_weight=0.1",),
        "ppo": ("--policy_gradient.kl_weight=0.1",),
        "grpo": ("--train.epochs=2",),
    }
    return (*WORDS, *more.get(name, ()))


Whole = Callable[[str], Path]


@pytest.fixture(scope="module")
def whole(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """The directory of a recipe's uninterrupted run, which is made once."""

    @cache
    def make(name: str) -> Path:
        out = tmp_path_factory.mktemp(name) / "run"
        run(name, base, out, words_of(name))
        return out

    return make


def logged(out: Path, name: str) -> list[dict[str, Any]]:
    """What was logged of each optimiser step."""
    with RunStore.read(out) as store:
        return [line for line in store.metrics() if line["stage"] == f"{name}/learn"]


def sampled(out: Path, stage: str) -> list[Proposal]:
    with RunStore.read(out) as store:
        episodes = [step.proposal for t in store.trajectories(stage) for step in t.steps]
        return episodes + [p for tree in store.trees(stage) for p in tree.proposal if p is not None]


def assert_same_end(name: str, out: Path, wanted: Path) -> None:
    assert same(weights(out, name), weights(wanted, name))
    assert logged(out, name) == logged(wanted, name)
    heads = [sorted((path / "checkpoints").glob("*.safetensors")) for path in (out, wanted)]
    assert [p.name for p in heads[0]] == [p.name for p in heads[1]]
    assert all(same(load_file(a), load_file(b)) for a, b in zip(*heads, strict=True))


def moments(name: str) -> tuple[Moment, ...]:
    """In a collection of each round; after a step, in round 1 before its checkpoint and in round 2 behind it."""
    item = 1 if name in BY_TASK else 3
    first, second = (1, 1) if name in ONE_STEP else (3, 2)
    return (
        Moment("round1/collect", item),
        Moment("step", first),
        Moment("round2/collect", item),
        Moment("round2/learn", second),
    )


@pytest.mark.parametrize("name", recipes(name for name in RECIPES if name not in ALIKE))
def test_a_run_killed_four_times_ends_with_the_weights_of_an_uninterrupted_one(
    name: str, base: Path, whole: Whole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(here, "CHECKPOINT_EVERY", 2)
    for moment in moments(name):
        killed(name, base, tmp_path / "run", words_of(name), moment)
    run(name, base, tmp_path / "run", words_of(name))
    assert_same_end(name, tmp_path / "run", whole(name))
    steps = [line["round"] for line in logged(whole(name), name)]
    assert steps.count(1) >= moments(name)[1].at and steps.count(2) >= moments(name)[3].at
    assert not same(weights(tmp_path / "run", name), load_file(base / "model.safetensors"))


@pytest.mark.parametrize(
    ("moment", "every"),
    [
        (Moment("step", 13), 20),
        (Moment("write", 4), 2),
        *(
            pytest.param(moment, every, marks=pytest.mark.rest)
            for moment, every in ((Moment("round1/learn", 3), 20), (Moment("write", 1), 2), (Moment("eval", 1), 1))
        ),
    ],
    ids=str,
)
def test_a_killed_run_ends_with_the_weights_of_an_uninterrupted_one(
    moment: Moment, every: int, base: Path, whole: Whole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(here, "CHECKPOINT_EVERY", every)
    killed("grpo", base, tmp_path / "run", words_of("grpo"), moment)
    run("grpo", base, tmp_path / "run", words_of("grpo"))
    assert_same_end("grpo", tmp_path / "run", whole("grpo"))
    assert {p.name for p in (tmp_path / "run" / "checkpoints").iterdir()} == {"grpo", "grpo.states"}


def test_a_killed_run_goes_on_with_its_adapters(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(here, "CHECKPOINT_EVERY", 2)
    words = (*words_of("rloo"), "--train.lora_rank=2")
    run("rloo", base, tmp_path / "whole", words)
    for moment in (Moment("round1/learn", 1), Moment("step", 2)):
        killed("rloo", base, tmp_path / "run", words, moment)
    run("rloo", base, tmp_path / "run", words)
    assert_same_end("rloo", tmp_path / "run", tmp_path / "whole")


@pytest.mark.rest
def test_arpo_replay_replays_and_only_rounding_depends_on_where_it_was_killed(
    base: Path, whole: Whole, tmp_path: Path
) -> None:
    name, stage = "arpo_replay", "arpo_replay/round1/collect"
    with RunStore.read(whole(name)) as store:
        returns = [
            {seed: [t.return_ for t in store.trajectories(s) if t.task.seed == seed] for seed in store.done(s)}
            for s in (stage, f"{name}/round2/collect")
        ]
        items = (store.note(f"{name}/round2/learn") or {})["items"]
    failed = [seed for seed in returns[0] if max(returns[0][seed]) == 1 and max(returns[1][seed]) == 0]
    assert len(failed) == 1 and items == 6  # without a success to compare with, its three would teach nothing
    killed(name, base, tmp_path / "run", words_of(name), Moment("round1/collect", 1))
    run(name, base, tmp_path / "run", words_of(name))
    for a, b in zip(sampled(tmp_path / "run", stage), sampled(whole(name), stage), strict=True):
        assert a.prompt_ids.tolist() == b.prompt_ids.tolist() and a.token_ids.tolist() == b.token_ids.tolist()
        np.testing.assert_allclose(a.logps, b.logps, rtol=1e-5)
    found, wanted = (weights(path, name) for path in (tmp_path / "run", whole(name)))
    assert all(torch.allclose(found[key], wanted[key], atol=1e-7, rtol=1e-6) for key in wanted)


@pytest.mark.parametrize("name", recipes(PAIRS))
def test_a_rounds_reference_is_its_first_weights(name: str, whole: Whole) -> None:
    lines = logged(whole(name), name)
    first = {line["round"]: line for line in reversed(lines)}
    for line in first.values():
        assert line["loss"] == pytest.approx(math.log(2), abs=1e-5)
        assert line["rewards/margins"] == pytest.approx(0.0, abs=1e-5)
    assert set(first) == {1, 2} and len(lines) > 4
    assert all({"logps/chosen", "logps/rejected"} <= line.keys() for line in lines)
    assert abs(lines[-1]["loss"] - math.log(2)) > 1e-5


@pytest.mark.parametrize("name", recipes(sorted(RATIOS)))
def test_a_rounds_ratios_start_at_one(name: str, whole: Whole) -> None:
    first = {line["round"]: line for line in reversed(logged(whole(name), name))}
    for line in first.values():
        assert (
            line["ratio"] == pytest.approx(1.0, abs=1e-5)
            and line["clip_ratio/low_mean"] == line["clip_ratio/high_mean"] == 0
        )
        assert line["approx_kl"] == pytest.approx(0.0, abs=1e-9)


def test_a_finished_run_does_nothing_again(base: Path, whole: Whole) -> None:
    out, recipe = whole("grpo"), recipe_of("grpo")
    before = (out / "summary.json").read_bytes()
    settings = made(recipe.settings, words_of("grpo"))
    with RunStore.open(out, settings.to_dict()) as store:
        climb(Idle(store, settings, base, Quiet()), settings, rungs_of(recipe, settings))
    assert (out / "summary.json").read_bytes() == before


COMMAND = (
    *("--run.env=shop", "--run.num_tasks=2", "--run.group_size=3", "--eval.num_tasks=1"),
    *("--train.batch_size=1", "--train.warmup_fraction=0.5", "--model.threads=1"),
)


@pytest.mark.rest
@pytest.mark.parametrize(("name", "number", "steps"), [("grpo", 1, 2), ("ppo", 2, 8)])
def test_a_killed_command_goes_on_and_ends_with_the_same_weights(
    name: str, number: int, steps: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def command(where: str) -> list[str]:
        return ["train", name, "--json", f"--run.out={tmp_path / where}", *COMMAND, f"--run.num_rounds={number}"]

    metrics = tmp_path / "cut" / "metrics.jsonl"
    with subprocess.Popen([sys.executable, "-m", "agentq", *command("cut")], stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and (not metrics.exists() or metrics.read_text().count(f"{name}/learn") < steps):
            time.sleep(0.005)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    with RunStore.read(tmp_path / "cut") as store:
        assert not (store.note(f"{name}/round{number}/learn") or {}).get("finished")
        assert (store.note(f"{name}/round{number}/collect") or {})["done"] == 6
    rows = {}
    for where in ("whole", "cut"):
        assert main(command(where)) == 0
        rows[where] = json.loads(capsys.readouterr().out)["rungs"]
        assert [row["name"] for row in rows[where]] == ["base", name]
        assert all(row.pop("seconds") > 0 for row in rows[where])
    assert rows["cut"] == rows["whole"]
    assert_same_end(name, tmp_path / "cut", tmp_path / "whole")
    assert len(logged(tmp_path / "cut", name)) == 6 * number
    page = (tmp_path / "cut" / "report.html").read_text()
    assert f"{name}/learn" in page and "reward/mean" in page
