"""Rounds of a run: which tasks the first one solved, success on these, and which rounds have been measured."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import learnt
import methods
import pytest
import rounds

from agentq.store.files import write_json
from agentq.store.run import RunStore
from agentq.types import Observation, Step, StepResult, Trajectory
from tests.records_factory import make_proposal, make_task, make_tree


def episode(seed: int, success: bool) -> Trajectory:
    page = Observation("button Find [1]")
    return Trajectory(make_task(seed), (Step(page, make_proposal(1), StepResult(page)),), float(success), success)


def test_a_task_counts_as_solved_if_any_rollout_of_the_first_round_succeeds(tmp_path: Path) -> None:
    with RunStore.open(tmp_path / "rft", {}) as store:
        for seed, outcomes in ((5, (False, True)), (3, (False, False))):
            for attempt, success in enumerate(outcomes):
                store.add_trajectory("rft/round1/collect", f"{seed}-{attempt}", episode(seed, success))
        store.add_trajectory("rft/round2/collect", "3-0", episode(3, True))
        assert {task.seed: won for task, won in learnt.first_round(store).items()} == {5: True, 3: False}
    with RunStore.open(tmp_path / "agent_q", {}) as store:
        store.add_tree("agent_q/round1/collect", make_tree())
        assert list(learnt.first_round(store).values()) == [True]


def test_success_is_told_apart_by_what_training_solved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    with RunStore.open(run, {"run": {}, "model": {}}) as store:
        store.set_note("base", {"name": "before"})
        for seed in range(6):
            store.add_trajectory("rft/round1/collect", str(seed), episode(seed, seed < 4))
        store.add_trajectory("base/eval", "0", episode(900, False))
        for seed, success in ((900, True), (901, False)):
            store.add_trajectory("rft/eval", str(seed), episode(seed, success))
    won = {"before": {0, 4}, str(run / "checkpoints/rft"): {0, 1, 2}}
    monkeypatch.setattr(
        learnt, "greedy", lambda path, model, tasks, config: {t.seed: t.seed in won[model] for t in tasks}
    )
    assert learnt.figures(run, 0, tmp_path)["rows"] == {
        "before": {"solved": [1, 4], "unsolved": [1, 2]},
        "after": {"solved": [3, 4], "unsolved": [0, 2], "held out": [1, 2]},
    }
    halved = learnt.figures(run, 3, tmp_path)  # every second task: 0, 2, 4
    assert halved["rows"]["after"] == {"solved": [2, 2], "unsolved": [0, 1], "held out": [1, 2]}
    assert "| after | 66.7 % of 3" in learnt.table([halved])


def test_a_round_counts_once_its_measurement_has_as_many_tasks_as_the_others(tmp_path: Path) -> None:
    assert rounds.measured_rounds(tmp_path, "agent_q") == 0
    with RunStore.open(tmp_path, {}) as store:
        write_json(tmp_path / "summary.json", [])
        for stage, seeds in (("agent_q/eval/round1", (7, 8)), ("agent_q/eval", (7,)), ("base/eval", (7, 8))):
            for seed in seeds:
                store.add_trajectory(stage, str(seed), episode(seed, True))
        assert rounds.measured_rounds(tmp_path, "agent_q") == 1
        store.add_trajectory("agent_q/eval", "8", episode(8, False))
        assert rounds.measured_rounds(tmp_path, "agent_q") == 2


def test_each_rounds_model_is_sampled_before_the_next_round_removes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, ...]] = []
    monkeypatch.setattr(rounds, "measured_rounds", lambda path, recipe: 1)
    for module in (rounds, methods):
        monkeypatch.setattr(module, "agentq", lambda path, *words: told.append((path.name, *words)))
    args = Namespace(env="shop", base="start", rounds=2, attempts=2)
    rounds.grow(tmp_path / "x", "agent_q", 3, args, ["--eval.num_tasks=5", "--train.epochs=2"])
    names = [f"x-after{number}-sampled{n}" for number in (1, 2) for n in ("", "-2")]
    assert [name for name, *_ in told] == [*names[:2], "x", *names[2:]]
    (_, command, model, *words), (_, *second), (_, trained, recipe, *more) = told[:3]
    assert (command, model) == ("eval", str(tmp_path / "x" / "checkpoints" / "agent_q"))
    assert {"--env=shop", "--seed=3", "--eval.temperature=1", "--eval.num_tasks=5"} < {
        *words
    } and "--seed=1003" in second
    assert "--train.epochs=2" not in words and (trained, recipe) == ("train", "agent_q")
    assert {"--env=shop", "--seed=3", "--base=start", "--run.num_rounds=2", "--train.epochs=2"} < {*more}
