"""Intervals over training seeds, by hand and against tables of Student's t."""

from __future__ import annotations

import math

import numpy as np
import pytest

from agentq.evaluation.seeds import over_seeds, seed_difference, t_quantile


@pytest.mark.parametrize(
    ("df", "p", "t"),
    [
        *((1, 0.975, 12.706205), (2, 0.975, 4.302653), (3, 0.975, 3.182446), (4, 0.975, 2.776445)),
        *((5, 0.95, 2.015048), (9, 0.995, 3.249836), (30, 0.975, 2.042272), (7, 0.5, 0.0)),
    ],
)
def test_t_quantile_is_that_of_the_tables(df: int, p: float, t: float) -> None:
    assert t_quantile(df, p) == pytest.approx(t, abs=1e-6)


def test_the_interval_over_seeds_by_hand() -> None:
    found = over_seeds([0.1, 0.2, 0.3])  # s = 0.1, so 4.302653 * 0.1 / sqrt(3)
    assert (found.mean, found.low, found.high) == pytest.approx((0.2, 0.2 - 0.248414, 0.2 + 0.248414), abs=1e-6)
    one = over_seeds([0.4])
    assert one.mean == 0.4 and (one.low, one.high) == (-math.inf, math.inf)


def test_a_difference_that_seeds_do_not_share_is_open_however_many_tasks_there_are() -> None:
    """Three seeds with gains of 30, 5 and 1 points on 1,000 tasks: tasks alone would call this significant."""
    a = [[True] * (500 + gain) + [False] * (500 - gain) for gain in (300, 50, 10)]
    b = [[True] * 500 + [False] * 500 for _ in a]
    found = seed_difference(a, b)
    assert found.by_seed == pytest.approx((0.3, 0.05, 0.01)) and found.mean == pytest.approx(0.12)
    assert found.low < 0 < found.low_tasks < found.mean < found.high_tasks < found.high


def test_pairs_of_tasks_stay_together() -> None:
    """Where both methods solve the same tasks, no draw of tasks makes them differ."""
    rng = np.random.default_rng(0)
    solved = [(rng.random(50) < 0.5).tolist() for _ in range(3)]
    found = seed_difference(solved, solved)
    assert (found.mean, found.low, found.high, found.low_tasks, found.high_tasks) == (0, 0, 0, 0, 0)


def test_a_model_that_is_counted_several_times_is_as_sure_as_counted_once() -> None:
    """The tasks of several seeds are the same: outcomes of one task are no independent draws."""
    rng = np.random.default_rng(0)
    a, b = ((rng.random(100) < rate).tolist() for rate in (0.6, 0.4))
    once, often = (seed_difference([a] * n, [b] * n) for n in (1, 5))
    assert (once.low_tasks, once.high_tasks) == pytest.approx((often.low_tasks, often.high_tasks))


def test_tasks_go_by_their_names_and_a_seed_may_lack_some() -> None:
    a, b, tasks = [[1, 1, 0], [0, 1]], [[0, 0, 0], [0, 0]], [["x", "y", "z"], ["z", "x"]]
    found = seed_difference(a, b, tasks)
    assert found.by_seed == pytest.approx((2 / 3, 1 / 2))
    turned = seed_difference([[0, 1, 1], [1, 0]], [[0, 0, 0], [0, 0]], [["z", "y", "x"], ["x", "z"]])
    wide = seed_difference([[0, 1, 1], [1, 0]], [[0, 0, 0], [0, 0]], [["z", "y", "x"], ["u", "v"]])
    assert turned.by_seed == found.by_seed and (found.low_tasks, found.high_tasks) == (0.0, 1.0)
    assert wide.high_tasks - wide.low_tasks < 1.0


def test_a_task_is_the_same_one_in_every_seed_in_whatever_order() -> None:
    found = seed_difference([[1, 0], [0, 1]], [[0, 0], [0, 0]], [["x", "y"], ["y", "x"]])
    assert (found.low_tasks, found.high_tasks) == (0.0, 1.0)  # both seeds gain in x alone


def test_a_seed_counts_by_those_of_its_tasks_that_are_drawn() -> None:
    found = seed_difference([[1], [1]], [[0], [0]], [["x"], ["y"]])
    assert (found.low_tasks, found.high_tasks) == (1.0, 1.0)  # each gains in all its tasks, whichever are drawn


def test_both_intervals_of_a_difference_have_the_confidence_that_is_asked() -> None:
    gains = [[1] * gain + [0] * (10 - gain) for gain in (1, 2, 3)]
    found = seed_difference(gains, [[0] * 10] * 3, confidence=0.5)
    # s = 0.1 and t(2) at 0.75 is 0.816497, so 0.816497 * 0.1 / sqrt(3) = 0.047140
    assert (found.low, found.high) == pytest.approx((0.2 - 0.047140, 0.2 + 0.047140), abs=1e-6)
    wide = seed_difference(gains, [[0] * 10] * 3)
    assert wide.low_tasks < found.low_tasks < found.high_tasks < wide.high_tasks


def test_the_interval_over_tasks_covers_these_models_on_all_tasks() -> None:
    """Tasks that are hard for all seeds: five models of 60 tasks, again and again, against their gap on 4,000 tasks."""
    rng = np.random.default_rng(2)
    hard = rng.random(4000)
    gaps = np.clip(0.2 + np.where(hard < 0.5, 0.8, -0.4) + rng.normal(0, 0.2, (5, 4000)), -1, 1)
    truth, covered = gaps.mean(), 0
    for trial in range(200):
        shown = gaps[:, rng.integers(4000, size=60)]
        found = seed_difference(shown.tolist(), np.zeros((5, 60)).tolist(), seed=trial)
        covered += found.low_tasks <= truth <= found.high_tasks
    assert covered >= 180


@pytest.mark.parametrize(("a", "b"), [([], []), ([[]], [[]]), ([[True]], [[True, False]]), ([[True]], [])])
def test_seeds_and_tasks_must_be_the_same(a: list[list[bool]], b: list[list[bool]]) -> None:
    with pytest.raises(ValueError, match="same seeds and tasks"):
        seed_difference(a, b)


def test_a_task_must_be_once_in_a_seed() -> None:
    """With a task twice, the interval over tasks would count only its last entry."""
    with pytest.raises(ValueError, match="a task must be once in a seed; got 3 entries of 2 tasks"):
        seed_difference([[1, 0, 1]], [[0, 0, 0]], [["x", "x", "y"]])


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    """Gains that vary by seed (sd 0.1) around 0.1, 5 seeds, 100 tasks each: t covers, tasks alone do not."""
    rng, covered, by_tasks = np.random.default_rng(1), 0, 0
    for trial in range(200):
        rates = np.clip(0.5 + rng.normal(0.1, 0.1, 5), 0, 1)
        a, b = [(rng.random(100) < rate).tolist() for rate in rates], [(rng.random(100) < 0.5).tolist() for _ in rates]
        found = seed_difference(a, b, seed=trial)
        covered += found.low <= 0.1 <= found.high
        by_tasks += found.low_tasks <= 0.1 <= found.high_tasks
    assert covered >= 180 > by_tasks
