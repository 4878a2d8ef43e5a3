"""Advantages by hand, against the exact gradient of a bandit, and what any group keeps."""

from __future__ import annotations

from itertools import product
from math import comb, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentq.credit.advantages import (
    collapsed,
    gae,
    gigpo,
    group_relative,
    joint_labels,
    leave_one_out,
    reward_to_go,
)

RETURNS = [1, 0, 0.5, 1, 0, 0]
ONE = [0] * 6
RANGE = st.floats(-10, 10, width=16)


def near(*values: float) -> object:
    return pytest.approx(values, abs=2e-6)


@st.composite
def grouped(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    n = draw(st.integers(0, 12))
    returns = draw(st.lists(RANGE, min_size=n, max_size=n))
    return np.array(returns, float), np.array(draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)), int)


# Groups


def test_leave_one_out_golden() -> None:
    # 1 - (0 + .5 + 1 + 0 + 0) / 5 = .7; 0 - 2.5 / 5 = -.5; .5 - 2 / 5 = .1
    assert leave_one_out(RETURNS, ONE).tolist() == near(0.7, -0.5, 0.1, 0.7, -0.5, -0.5)


def test_group_relative_golden() -> None:
    # mean 2.5/6 = .416667; sum of squares 1.208333: std sqrt(/5) = .491596, sqrt(/6) = .448764
    assert group_relative(RETURNS, ONE).tolist() == near(0.583333, -0.416667, 0.083333, 0.583333, -0.416667, -0.416667)
    sample = group_relative(RETURNS, ONE, ddof=1).tolist()
    assert sample == near(1.186609, -0.847578, 0.169516, 1.186609, -0.847578, -0.847578)
    assert group_relative(RETURNS, ONE, ddof=0).tolist()[:3] == near(1.299864, -0.928475, 0.185695)
    assert group_relative([1, 3], [0, 0], ddof=0, epsilon=1.0).tolist() == [-0.5, 0.5]  # 1 / (1 + 1)


def test_the_same_rewards_in_another_order_are_an_equal_return() -> None:
    returns = [sum(rewards) for rewards in ([0.1, 0.2, 0.3], [0.3, 0.2, 0.1], [0.2, 0.3, 0.1])]
    assert len(set(returns)) == 2  # 0.6 and 0.6000000000000001
    for scale in (1.0, 1e6, -1.0):
        many = [scale * each for each in returns]
        assert collapsed(many, [0] * 3).all()
        for ddof in (None, 0, 1):
            assert not group_relative(many, [0] * 3, ddof=ddof).any()
            assert not leave_one_out(many, [0] * 3, ddof=ddof).any()
    assert collapsed([0.0, sum([0.3, -0.1, -0.1, -0.1])], [0, 0]).all()  # -2.8e-17
    assert not collapsed([0.0, 1e-6], [0, 0]).any()


def test_leave_one_out_is_k_over_k_minus_1_of_the_group_mean() -> None:
    for ddof in (None, 0, 1):
        np.testing.assert_allclose(
            leave_one_out(RETURNS, ONE, ddof=ddof), 6 / 5 * group_relative(RETURNS, ONE, ddof=ddof)
        )


def test_groups_do_not_see_one_another_and_may_be_named_by_strings() -> None:
    returns, groups = [1, 5, 0, 7, 0.5], ["a", "b", "a", "b", "a"]
    assert leave_one_out(returns, groups).tolist() == near(0.75, -2, -0.75, 2, 0)
    assert group_relative(returns, groups).tolist() == near(0.5, -1, -0.5, 1, 0)
    assert joint_labels([0, 0, 1, 1], ["x", "y", "y", "y"]).tolist() == [0, 1, 2, 2]


@pytest.mark.parametrize("ddof", [None, 0, 1])
@pytest.mark.parametrize("epsilon", [0.0, 1e-6])
def test_what_has_no_other_to_compare_with_has_advantage_zero(ddof: int | None, epsilon: float) -> None:
    # 3 * .1 / 3 is not .1 in floating point: a mean taken plainly leaves 1e-17, which a std of 1e-17 makes 1
    returns, groups = [0.1, 0.1, 0.1, 7.0, -3.0], [0, 0, 0, 1, 2]
    assert leave_one_out(returns, groups).tolist() == [0] * 5
    assert group_relative(returns, groups, ddof=ddof, epsilon=epsilon).tolist() == [0] * 5
    assert leave_one_out([], []).tolist() == group_relative([], [], ddof=ddof).tolist() == []


def expected_gradient(baseline: str, p: float, rewards: tuple[float, float], k: int) -> float:
    """d E[reward] / d logit of arm 1 as k rollouts estimate it, exactly: over all 2^k outcomes."""
    total = 0.0
    for arms in product((0, 1), repeat=k):
        returns = [rewards[a] for a in arms]
        kept = [i for i in range(k) if baseline != "filtered first" or returns[i] != rewards[0]]
        estimate = group_relative if baseline == "group" else leave_one_out
        advantages = estimate([returns[i] for i in kept], [0] * len(kept))
        probability = np.prod([p if a else 1 - p for a in arms])
        total += probability * sum(a * (arms[i] - p) for a, i in zip(advantages, kept, strict=True)) / k
    return total


@pytest.mark.parametrize("k", [2, 3, 4])
def test_leave_one_out_gives_a_bandits_exact_gradient(k: int) -> None:
    p, rewards = 0.3, (0.25, 1.0)
    truth = p * (1 - p) * (rewards[1] - rewards[0])
    assert expected_gradient("leave one out", p, rewards, k) == pytest.approx(truth)
    assert expected_gradient("group", p, rewards, k) == pytest.approx(truth * (k - 1) / k)  # its own action is in it
    assert abs(expected_gradient("filtered first", p, rewards, k)) < 1e-12  # those left are all equal: no signal


@given(grouped())
def test_advantages_of_a_group_sum_to_zero(case: tuple[np.ndarray, np.ndarray]) -> None:
    for advantages in (leave_one_out(*case), group_relative(*case, ddof=1)):
        assert np.bincount(case[1], advantages, minlength=4) == pytest.approx(np.zeros(4), abs=1e-3)


@given(grouped(), st.randoms(use_true_random=False))
def test_advantages_follow_their_rows_and_ignore_a_shift(case: tuple[np.ndarray, np.ndarray], random: object) -> None:
    returns, groups = case
    order = np.arange(len(returns))
    random.shuffle(order)  # type: ignore[attr-defined]
    for of in (leave_one_out, group_relative):
        np.testing.assert_allclose(of(returns, groups)[order], of(returns[order], groups[order]), atol=1e-9)
        np.testing.assert_allclose(of(returns + 3, groups), of(returns, groups), atol=1e-9)


@pytest.mark.parametrize(("size", "share"), [(6, 0.6855), (8, 0.6044), (16, 0.3653)])
def test_collapsed_groups_golden(size: int, share: float) -> None:
    p = 0.061  # a group for every number of successes j, with its probability
    returns = [float(i < j) for j in range(size + 1) for i in range(size)]
    found = collapsed(returns, np.repeat(np.arange(size + 1), size))[::size]
    chance = [comb(size, j) * p**j * (1 - p) ** (size - j) for j in range(size + 1)]
    assert found @ chance == pytest.approx(share, abs=5e-5)
    assert collapsed([0, 1, 2, 2], [0, 0, 1, 1]).tolist() == [False, False, True, True]


# Steps


def test_reward_to_go_by_hand() -> None:
    # trajectory a: 1, then 2; b between: 4.  a: 1 + .5 * 2
    assert reward_to_go([1, 4, 2], ["a", "b", "a"], discount=0.5).tolist() == [2, 4, 2]
    assert reward_to_go([1, 4, 2], ["a", "b", "a"], discount=0).tolist() == [1, 4, 2]
    assert reward_to_go([0, 0, 1], [0, 0, 0], discount=0.9).tolist() == near(0.81, 0.9, 1)  # not 0.9^t from the start
    assert reward_to_go([], []).tolist() == []


def test_gae_by_hand() -> None:
    # delta = .9 * .5 - .2 = .25, .9 * .6 - .5 = .04, 1 - .6 = .4; A = .4, .04 + .72 * .4 = .328, .25 + .72 * .328
    rewards, values = [0, 0, 1], [0.2, 0.5, 0.6]
    assert gae(rewards, values, ONE[:3], discount=0.9, gae_lambda=0.8).tolist() == near(0.48616, 0.328, 0.4)
    # cut off where V is .5: delta = 1 + .9 * .5 - .6; the other entries are not read
    cut = gae(rewards, values, ONE[:3], discount=0.9, gae_lambda=0, final_values=[9, 9, 0.5])
    assert cut.tolist() == near(0.25, 0.04, 0.85)


STEPS = st.lists(st.tuples(RANGE, RANGE, st.integers(0, 2)), max_size=10)


@given(STEPS, st.sampled_from((0.0, 0.5, 1.0)))
def test_gae_with_lambda_1_is_reward_to_go_less_the_value(steps: list, discount: float) -> None:
    rewards, values, trajectories = np.array(steps, float).reshape(-1, 3).T
    want = reward_to_go(rewards, trajectories, discount=discount) - values
    got = gae(rewards, values, trajectories, discount=discount, gae_lambda=1)
    np.testing.assert_allclose(got, want, atol=1e-9)


@given(STEPS)
def test_gae_of_exact_values_is_zero_for_any_lambda(steps: list) -> None:
    rewards, _, trajectories = np.array(steps, float).reshape(-1, 3).T
    values = reward_to_go(rewards, trajectories, discount=0.5)
    found = gae(rewards, values, trajectories, discount=0.5, gae_lambda=0.7)
    np.testing.assert_allclose(found, np.zeros(len(steps)), atol=1e-9)


# Steps against steps. Rows 0-1, 2-4, 5-7, 8 are trajectories; discount .5 makes the first's reward-to-go .5, 1

REWARDS = [0, 1, 0, 0, 0, 0, 0, 0, 0.25]
TRAJECTORIES = [0, 0, 1, 1, 1, 2, 2, 2, 3]
PAGES = ["a", "b", "a", "c", "a", "a", "b", "a", "b"]


def two(**change: object) -> np.ndarray:
    """GiGPO of the first two trajectories."""
    arguments = {"discount": 0.5} | change
    return gigpo(REWARDS[:5], TRAJECTORIES[:5], ONE[:5], PAGES[:5], **arguments)  # type: ignore[arg-type]


def test_gigpo_by_hand() -> None:
    # episodes 1 and 0: +-.5. Page a: .5, 0, 0 less 1/6; b and c were seen once: 0
    assert two().tolist() == near(0.5 + 1 / 3, 0.5, -0.5 - 1 / 6, -0.5, -0.5 - 1 / 6)
    assert two(step_weight=2).tolist() == near(0.5 + 2 / 3, 0.5, -0.5 - 1 / 3, -0.5, -0.5 - 1 / 3)
    # over steps the episodes' mean is (1 + 1 + 0 + 0 + 0) / 5
    assert two(over="steps", step_weight=0).tolist() == near(0.6, 0.6, -0.4, -0.4, -0.4)
    # stds: of (1, 0) sqrt(1/2); of (.5, 0, 0) sqrt(1/12)
    assert two(ddof=1)[[0, 1]] == pytest.approx([sqrt(0.5) + sqrt(12) / 3, sqrt(0.5)], abs=1e-5)


def test_gigpo_episode_golden() -> None:
    found = gigpo(RETURNS, range(6), ONE, range(6))
    assert found.tolist() == near(0.583333, -0.416667, 0.083333, 0.583333, -0.416667, -0.416667)


def test_gigpo_pages_of_two_groups_are_two_anchors() -> None:
    other = gigpo([*REWARDS[:5], 9], [*TRAJECTORIES[:5], 7], [*ONE[:5], 1], [*PAGES[:5], "a"], discount=0.5)
    assert other.tolist()[:5] == two().tolist()
    assert other[5] == 0  # a group of one episode: no comparison, not its raw return of 9
    assert gigpo([2, 3], [0, 0], [0, 0], ["a", "b"]).tolist() == [0, 0]
    assert gigpo([], [], [], []).tolist() == []


@given(STEPS, st.permutations(range(3)))
def test_step_advantages_follow_their_trajectories(steps: list, rank: list[int]) -> None:
    rewards, values, trajectories = np.array(steps, float).reshape(-1, 3).T
    pages = (values > 0).astype(int)
    order = np.argsort([rank[int(t)] for t in trajectories], kind="stable")  # whole trajectories change places
    groups = trajectories % 2

    def every(o: np.ndarray) -> list[np.ndarray]:
        r, v, t, g, a = rewards[o], values[o], trajectories[o], groups[o], pages[o]
        return [
            gae(r, v, t, gae_lambda=0.5),
            gigpo(r, t, g, a, discount=1),
            gigpo(r, t, g, a, discount=1, over="steps"),
        ]

    for plain, moved in zip(every(np.arange(len(rewards))), every(order), strict=True):
        np.testing.assert_allclose(plain[order], moved, atol=1e-8)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: leave_one_out([1, 2], [0]), r"groups must have one entry per row \(2\); got \[1\]"),
        (lambda: leave_one_out([[1, 2]], [0]), r"returns must be \[N\]; got \[1, 2\]"),
        (lambda: group_relative([1, np.nan], [0, 0]), "returns must be finite; got nan"),
        (lambda: group_relative([1], [0], ddof=2), "ddof must be None, 0 or 1; got 2"),
        (lambda: group_relative([1], [0], epsilon=-1), "epsilon must be at least 0; got -1"),
        (lambda: reward_to_go([1], [0], discount=1.1), r"discount must be in \[0, 1\]; got 1.1"),
        (lambda: gae([1], [0], [0], discount=-0.1), r"discount must be in \[0, 1\]; got -0.1"),
        (lambda: gae([1], [0], [0], gae_lambda=2), r"gae_lambda must be in \[0, 1\]; got 2"),
        (lambda: gae([1], [0, 1], [0]), r"values must be \[1\]; got \[2\]"),
        (lambda: gae([1], [0], [0], final_values=[np.inf]), "final_values must be finite; got inf"),
        (lambda: two(step_weight=-1), "step_weight must be at least 0; got -1"),
        (lambda: two(over="tokens"), "over must be 'trajectories' or 'steps'; got 'tokens'"),
        (lambda: gigpo([1] * 3, [0, 1, 1], [0, 0, 1], [0] * 3), "a trajectory must be in one group; got one in two"),
        (lambda: gigpo([1, 1], [0, 0], [0, 1], [0, 0]), "a trajectory must be in one group; got one in two"),
    ],
)
def test_credit_refuses_wrong_arguments(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]
