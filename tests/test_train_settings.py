"""What the settings of a run change: the KL term, the budget, DAPO's dynamic sampling, the base's row."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from agentq.cli import main
from agentq.config import Compared, Train
from agentq.credit.advantages import collapsed
from agentq.credit.episodes import StepColumns
from agentq.errors import ConfigError, ModelError
from agentq.learn.learner import Learner
from agentq.learn.reference import reference_logps
from agentq.model_settings import ModelSettings
from agentq.recipes import policy_gradient
from agentq.recipes.learners import learner_of
from agentq.recipes.settings import COMMANDS, RECIPES, PolicyGradient, Training
from agentq.store.run import RunStore
from agentq.types import CreditedTrajectory, Split
from tests.learn_factory import plain_logps, sample, tiny_llama
from tests.reads import keys, made, recorded_reads
from tests.train_factory import TINY, Interrupts, Quiet, run, same, weights

TURNS = (sample([5, 6, 7], [8, 9, 3], [0.0] * 3), sample([5, 6, 8], [10, 3], [0.0] * 2), sample([9, 4], [3], [0.0]))


@pytest.mark.parametrize("average", ["token", "sequence"])
def test_the_kl_term_is_half_the_squared_log_ratio_to_the_start(average: str) -> None:
    """Two trajectories, of two turns and of one; advantage 0, so that the KL term is all there is."""
    start, now = tiny_llama(seed=1), tiny_llama()
    references = [plain_logps(start, s).detach() for s in TURNS]
    rows = [
        0.5 * (plain_logps(now, s) - reference).square().sum() for s, reference in zip(TURNS, references, strict=True)
    ]
    wanted = sum(rows) / 6 if average == "token" else ((rows[0] + rows[1]) / 5 + rows[2]) / 2
    assert isinstance(wanted, torch.Tensor)
    torch.autograd.backward(0.3 * wanted)
    gradient = torch.cat([p.grad.flatten() for p in now.parameters() if p.grad is not None])

    learner = Learner(tiny_llama(), learning_rate=1e-3, max_grad_norm=1e9)
    kept = [reference.numpy() for reference in references]
    items = [
        CreditedTrajectory(TURNS[:2], np.zeros(2), (kept[0], kept[1])),
        CreditedTrajectory(TURNS[2:], np.zeros(1), (kept[2],)),
    ]
    items = policy_gradient.with_old_logps(learner, items)
    assert items[0].reference is not None
    config = PolicyGradient(policy_gradient=Compared(average=average, kl_weight=0.3))  # type: ignore[arg-type]
    metrics = policy_gradient.policy_gradient()(learner, items, config)
    found = torch.cat([p.grad.flatten() for p in learner.model.parameters() if p.grad is not None])
    assert metrics["loss"] == pytest.approx(0.3 * wanted.item(), rel=1e-4)
    assert torch.allclose(found, gradient, atol=1e-5) and metrics["kl"] > 0 and metrics["approx_kl"] < 1e-9


@pytest.mark.parametrize("lora_rank", [0, 4])
def test_reference_logps_are_those_of_the_start_whatever_the_learner_learnt(lora_rank: int, base: Path) -> None:
    learner = Learner.from_checkpoint(base, learning_rate=1e-2, lora_rank=lora_rank)
    before = [s.logps for s in learner.recompute_logps(TURNS)]
    for _ in range(6):
        learner.step_sft(TURNS)
    found = reference_logps(learner, base, TURNS)
    for row, was, now in zip(found, before, learner.recompute_logps(TURNS), strict=True):
        np.testing.assert_allclose(row, was, atol=1e-5)
        assert np.abs(now.logps - was).max() > 0.01


def test_a_run_with_a_kl_weight_reports_it_and_starts_at_zero(base: Path, tmp_path: Path) -> None:
    words = [*TINY, "--run.num_rounds=2", "--train.batch_size=2", "--policy_gradient.kl_weight=0.1"]
    run("grpo", base, tmp_path / "run", words)
    with RunStore.read(tmp_path / "run") as store:
        lines = list(store.metrics())
    kl = [line["kl"] for line in lines if line["stage"] == "grpo/learn"]
    apart = [line["logp_difference/max"] for line in lines if line["stage"] == "grpo/agreement"]
    assert len(apart) == 2 and all(0 <= value < 1e-4 for value in apart)  # engine and learner have the same weights
    assert kl[0] == pytest.approx(0.0, abs=1e-9) and all(value > 1e-6 for value in kl[2:])


def test_the_learner_of_a_run_has_its_settings(base: Path) -> None:
    plain = learner_of(Training(), base)
    assert (plain.bf16, plain.gradient_checkpointing, plain.lora_rank) == (False, False, 0)
    model, train = ModelSettings(dtype="bfloat16"), Train(gradient_checkpointing=True, lora_rank=2)
    learner = learner_of(Training(model=model, train=train), base)
    assert (learner.bf16, learner.gradient_checkpointing, learner.lora_rank) == (True, True, 2)


class Plans(Quiet):
    """Keeps the names of the stages of each plan."""

    def __init__(self) -> None:
        self.plans: list[list[str]] = []

    def plan(self, stages: Any, in_flight: int) -> None:
        self.plans.append([stage.name for stage in stages])


def test_no_round_begins_that_would_exceed_the_budget(base: Path, tmp_path: Path) -> None:
    def steps(name: str) -> list[int]:
        with RunStore.read(tmp_path / name) as store:
            notes = [store.note(f"rloo/round{n}/learn") for n in range(1, 9)]
            used = [note["env_steps"] for note in notes if note]
            collected = [t for n in range(1, 9) for t in store.trajectories(f"rloo/round{n}/collect")]
            assert sum(used) == sum(len(t.steps) for t in collected)
        return used

    words = [*TINY, "--run.num_rounds=4", "--eval.measure_base=false"]
    run("rloo", base, tmp_path / "all", words)
    each = steps("all")
    assert len(each) == 4 and min(each) > 0
    limit = sum(each[:2]) * 3 // 2  # exactly what a third round of mean size would reach
    run("rloo", base, tmp_path / "exact", [*words, f"--run.max_env_steps={limit}"])
    assert steps("exact") == each[: 3 if sum(each[:2]) % 2 == 0 else 2]
    shown = Plans()
    run("rloo", base, tmp_path / "less", [*words, f"--run.max_env_steps={limit - 1}"], shown)
    first, second = ([f"rloo/round{n}/{part}" for part in ("collect", "learn")] for n in (1, 2))
    assert shown.plans[0] == [*first, "rloo/eval"]  # what a round takes is not known yet
    assert shown.plans[-1] == [*first, *second, "rloo/eval"]
    assert steps("less") == each[:2]
    assert (tmp_path / "less" / "checkpoints" / "rloo").exists()
    with RunStore.read(tmp_path / "less") as store:
        assert "base/eval" not in store.stages()


@pytest.mark.rest
def test_dapo_samples_other_tasks_in_place_of_groups_that_teach_nothing(base: Path, tmp_path: Path) -> None:
    words = [*TINY, "--run.num_tasks=4", "--run.group_size=2", "--run.num_rounds=2"]

    def groups(name: str, number: int) -> tuple[list[int], list[int]]:
        """(tasks tried, those that teach)."""
        with RunStore.read(tmp_path / name) as store:
            episodes = list(store.trajectories(f"dapo/round{number}/collect"))
        seeds = np.array([t.task.seed for t in episodes])
        equal = collapsed([t.return_ for t in episodes], seeds)
        return np.unique(seeds).tolist(), np.unique(seeds[~equal]).tolist()

    run("dapo", base, tmp_path / "run", words)
    tried, teaching = zip(*(groups("run", number) for number in (1, 2)), strict=True)
    assert all(4 < len(t) <= 12 for t in tried) and not set(tried[0]) & set(tried[1])
    assert all(len(taught) == 4 or len(t) == 12 for t, taught in zip(tried, teaching, strict=True))
    with RunStore.read(tmp_path / "run") as store:
        assert (store.note("dapo/round1/learn") or {})["items"] == 2 * len(teaching[0])
    with pytest.raises(KeyboardInterrupt):  # in the second wave
        run("dapo", base, tmp_path / "cut", words, Interrupts("dapo/round1/collect", 9))
    run("dapo", base, tmp_path / "cut", words)
    assert groups("cut", 1) == (tried[0], teaching[0])
    assert same(weights(tmp_path / "cut", "dapo"), weights(tmp_path / "run", "dapo"))


def test_a_recipe_of_the_users_own_trains(base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example = str(Path(__file__).parents[1] / "examples" / "median_baseline.py")
    words = ["--run.num_rounds=1", "--run.num_tasks=1", "--run.group_size=2", "--eval.num_tasks=1"]
    assert main(["train", example, "--json", "--base", str(base), f"--run.out={tmp_path / 'run'}", *words]) == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)["rungs"]] == ["base", "median_baseline"]

    mine = tmp_path / "mine.py"
    mine.write_text("RECIPE = 3\n")
    for file, wanted in (
        (mine, f"{mine} must define RECIPE, an agentq.recipes.recipe.Recipe; got int"),
        (
            tmp_path / "no.py",
            f"RECIPE must be a recipe's name or a Python file; got {tmp_path}/no.py, which does not exist",
        ),
    ):
        assert main(["train", str(file), f"--run.out={tmp_path / 'other'}"]) == 2
        assert capsys.readouterr().err == f"agentq: {wanted}\n"
    assert not (tmp_path / "other").exists()


def test_the_median_is_the_baseline_of_the_example() -> None:
    recipe = runpy.run_path(str(Path(__file__).parents[1] / "examples" / "median_baseline.py"))
    columns = StepColumns(
        reward=np.zeros(5),
        trajectory=np.array([0, 1, 1, 2, 3]),
        group=np.array([7, 7, 7, 7, 8]),
        anchor=np.zeros(5),
        returns=np.array([1.0, 0.0, 0.0, 1.0]),
        group_of=np.array([7, 7, 7, 8]),
    )
    assert recipe["advantages"](columns, None).tolist() == [1, 0, 0, 0, 0]


def test_eval_measures_any_checkpoint(base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finished: set[str] = set()

    def measured(name: str, *words: str) -> dict[str, Any]:
        small = ["--eval.num_tasks=3", f"--out={tmp_path / name}"]
        with recorded_reads() as read:
            assert main(["eval", str(base), "--json", *small, *words]) == 0
        served = {"train.lora_rank"}  # is read where run.engine serves the checkpoint
        command = " ".join(["eval", *(word for word in words if word in ("--search", "step"))])
        assert read | served == keys(COMMANDS[command]) or name in finished
        finished.add(name)
        (row,) = json.loads(capsys.readouterr().out)["rungs"]
        assert row == json.loads((tmp_path / name / "summary.json").read_text())[0]
        return dict(row)

    rows = [measured("plain", "--eval.temperature=0.7") for _ in range(2)]
    assert rows[0] == rows[1] and (rows[0]["name"], rows[0]["n"]) == (base.name, 3)  # the second found all of it there
    with RunStore.read(tmp_path / "plain") as store:
        episodes = list(store.trajectories("eval"))
    assert {step.proposal.temperature for t in episodes for step in t.steps} == {0.7}
    assert {t.task.split for t in episodes} == {Split.TEST}
    searching = ["--search", "--base", str(base), "--eval.num_iterations=2", "--search.num_proposals=2"]
    measured("searched", *searching)
    stepping = ["--search", "step", *searching[1:], "--search.leaves_in_flight=2"]
    assert measured("stepped", *stepping)["env_steps"] > 0
    with RunStore.read(tmp_path / "stepped") as store:
        assert all(len(tree.children(node)) <= 1 for tree in store.trees("eval") for node in range(len(tree)))
    with RunStore.read(tmp_path / "searched") as store:
        assert len(list(store.trees("eval"))) == 3
    other = Learner.from_checkpoint(base, learning_rate=1e-3)
    other.step_sft(TURNS)
    other.save(tmp_path / "other")
    assert main(["eval", str(tmp_path / "other"), "--eval.num_tasks=3", f"--out={tmp_path / 'plain'}"]) == 2


def test_eval_has_a_row_for_each_way_to_choose_at_equal_calls(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "ways"
    words = [
        "--base",
        str(base),
        "--eval.num_tasks=2",
        "--search.num_proposals=2",
        "--eval.max_calls=7",
        f"--out={out}",
    ]
    words += ["--eval.num_iterations=50", "--eval.split=validation"]
    assert main(["eval", str(base), "--search", "--json", "--eval.chosen_by=all", *words]) == 0
    rows = json.loads(capsys.readouterr().out)["rungs"]
    ways = ["oracle", "value", "majority", "best_of_n"]
    assert [row["name"] for row in rows] == [f"{base.name}, {way}" for way in ways]
    assert rows == json.loads((out / "summary.json").read_text())
    with RunStore.read(out) as store:
        most = max(tree.info["iterations"] for tree in store.trees("oracle/eval"))
        assert [row["oracle"] for row in rows] == [most, 0, 0, 0] and most > 0
        for way in ways:
            trees = list(store.trees(f"{way}/eval"))
            assert len(trees) == 2 and {tree.task.split for tree in trees} == {Split.VALIDATION}
            assert all(0 < tree.info["calls"] <= 7 for tree in trees), way
            assert way == "oracle" or all("checked" in tree.info for tree in trees)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--eval.chosen_by=all"], "eval.max_calls must be at least 1 with eval.chosen_by all"),
        (
            ["--eval.max_calls=9", "--search.leaves_in_flight=2"],
            "search.leaves_in_flight must be 1 with eval.max_calls",
        ),
        (["--search=step", "--eval.chosen_by=majority"], "eval.chosen_by must be oracle or value with --search step"),
    ],
)
def test_eval_refuses_ways_to_choose_that_contradict_the_search(
    words: list[str], message: str, base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    search = [] if words[0] == "--search=step" else ["--search"]
    assert main(["eval", str(base), *search, *words, f"--out={tmp_path / 'run'}"]) == 2
    assert message in capsys.readouterr().err and not (tmp_path / "run").exists()


def test_a_value_head_needs_the_thinking_in_the_loss(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--train.thinking=false", f"--out={tmp_path / 'run'}"]
    assert main(["train", "ppo", "--base", str(base), *words]) == 2
    assert "train.thinking must be true for ppo with a value head" in capsys.readouterr().err
    made(RECIPES["ppo"], ["--train.thinking=false", "--policy_gradient.values=ridge"]).check("ppo")


def test_a_training_that_diverges_says_what_to_lower(base: Path, tmp_path: Path) -> None:
    words = [*TINY, "--train.batch_size=1", "--train.warmup_fraction=0", "--train.learning_rate=1e30"]
    said = (
        r"the gradient must be finite; got norm .*, in step \d+ of sft: lower train.learning_rate \(1e\+30\) in a fork "
        r".*; agentq resume begins from the round's first weights"
    )
    with pytest.raises(ModelError, match=said):
        run("sft", base, tmp_path / "run", words)


@pytest.mark.parametrize("name", ["ppo", "tree_rl", "tree_po"])
def test_data_without_a_ratio_are_for_one_step(name: str) -> None:
    once = ["--policy_gradient.ratio=none", "--run.num_tasks=4", "--run.group_size=4", "--train.batch_size=16"]
    assert made(RECIPES[name], once).policy_gradient.ratio == "none"
    for more in ("--train.epochs=2", "--train.batch_size=15"):
        with pytest.raises(ConfigError, match=r"train.epochs must be 1 and .* \(16\) for .* strictly on-policy"):
            made(RECIPES[name], [*once, more])


@pytest.mark.parametrize(
    ("name", "ratio", "allowed"),
    [
        ("gspo", "token", "turn or sequence"),
        ("gspo", "none", "turn or sequence"),
        ("arpo_replay", "none", "token or turn or sequence"),
        ("step_agent_inverse", "none", "token or turn or sequence"),
    ],
)
def test_a_ratio_that_a_recipe_cannot_have_is_refused(name: str, ratio: str, allowed: str) -> None:
    with pytest.raises(ConfigError, match=rf"policy_gradient.ratio must be {allowed} for .*; got {ratio}"):
        made(RECIPES[name], [f"--policy_gradient.ratio={ratio}"])


def test_a_ratio_given_on_the_command_line_is_held_to_what_it_needs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "loop", "--policy_gradient.ratio=none", f"--run.out={tmp_path / 'run'}"]) == 2
    assert "for loop, which is strictly on-policy; got 2 and 32" in capsys.readouterr().err
    assert main(["train", "loop", "--policy_gradient.ratio=word", f"--run.out={tmp_path / 'run'}"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("agentq: command line: policy_gradient.ratio must be 'none', 'token', 'turn' or 'sequence'")
    assert not (tmp_path / "run").exists()
