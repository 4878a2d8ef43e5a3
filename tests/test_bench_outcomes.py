"""What benchmarks keep of a run: success by task, steps that repeat, and a rung's interval."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import outcomes
import pytest

from agentq.evaluation.stats import RungResult, wilson
from agentq.policies.engine_names import embedded_base
from agentq.store import RunStore
from agentq.types import Trajectory
from tests.records_factory import make_trajectory, make_tree
from tests.test_evaluation_stats import rung
from tests.view_factory import lost


def made(path: Path, stage: str, *episodes: Trajectory) -> Path:
    """A run whose episodes are in `stage`, and whose base failed in all tasks."""
    with RunStore.open(path, {}) as store:
        for name, found in (("base/eval", [replace(t, success=False) for t in episodes]), (stage, episodes)):
            for t in found:
                store.add_trajectory(name, f"{t.task.seed}/0", t)
    return path


def test_success_is_the_share_of_the_attempts_that_the_world_did_not_break(tmp_path: Path) -> None:
    one = made(tmp_path / "1", "rft/eval", make_trajectory(2), make_trajectory(10, success=False), lost(7))
    two = made(tmp_path / "2", "rft/eval", make_trajectory(2, success=False), make_trajectory(10, success=False))
    assert outcomes.of_runs([one, two]) == {"2": 0.5, "10": 0.0}
    assert list(outcomes.of_runs([one, two])) == ["2", "10"]
    assert outcomes.of_runs([one], "base/eval") == {"2": 0.0, "10": 0.0}
    with RunStore.open(tmp_path / "3", {}) as store:
        store.add_tree("eval", make_tree(4))
    assert outcomes.of_runs([tmp_path / "3"]) == {"4": 1.0}


def test_repeats_are_steps_whose_action_is_the_one_just_before(tmp_path: Path) -> None:
    t = make_trajectory(10, 2)
    one, two = t.steps[0], replace(t.steps[0], proposal=make_trajectory(10, 3).steps[2].proposal)
    steps = (one, one, two, one)  # the second repeats the first; the last was not just before
    episodes = replace(t, steps=steps), make_trajectory(2), lost(7)
    assert outcomes.repeats_of(made(tmp_path / "run", "rft/eval", *episodes)) == {"2": 0.0, "10": 0.25}


def rungs(*won: int) -> list[RungResult]:
    return [rung(successes, 10) for successes in won]


def test_a_rungs_interval_is_over_seeds_and_stays_a_rate() -> None:
    assert outcomes.interval(rungs(7)) == wilson(7, 10)
    # 0.4, 0.5 and 0.6: 4.302653 * 0.1 / sqrt(3) = 0.248414
    assert outcomes.interval(rungs(4, 5, 6)) == pytest.approx((0.251586, 0.748414), abs=1e-6)
    assert outcomes.interval(rungs(0, 10)) == (0.0, 1.0)


def test_a_difference_over_tasks_goes_by_their_names_in_every_seed() -> None:
    """The first seed gains in x, the second in z: without these two no draw gains, with them alone each gains all."""
    found = outcomes.difference([({"x": 1, "y": 0}, {"x": 0, "y": 0}), ({"y": 0, "z": 1}, {"y": 0, "z": 0})])
    assert (found.mean, found.low_tasks, found.high_tasks) == (0.5, 0.0, 1.0)


def test_tables_and_commands_name_another_base_than_the_embedded_one() -> None:
    assert outcomes.titled("ladder", embedded_base()) == "ladder" and outcomes.base_words(embedded_base()) == []
    assert outcomes.titled("ladder", "models/reading") == "ladder-reading"
    assert outcomes.base_words("models/reading") == ["--base", "models/reading"]
