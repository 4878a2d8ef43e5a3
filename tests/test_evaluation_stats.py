"""Statistics against values worked out by hand or printed by others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentq.evaluation.stats import (
    PairedResult,
    RungResult,
    Share,
    mcnemar_p,
    paired_difference,
    wilson,
)

Z2 = 1.959963984540054**2  # the square of the normal 97.5 % quantile


def compare(both: int, only_a: int, only_b: int, neither: int) -> PairedResult:
    a = [True] * both + [True] * only_a + [False] * only_b + [False] * neither
    b = [True] * both + [False] * only_a + [True] * only_b + [False] * neither
    return paired_difference(a, b)


def test_wilson_at_the_ends_is_closed_form() -> None:
    # p = 0: (z^2/2n + z * z/2n) / (1 + z^2/n) = z^2 / (n + z^2), and mirrored for p = 1.
    assert wilson(0, 10) == (0.0, pytest.approx(Z2 / (10 + Z2), abs=1e-15))
    assert wilson(10, 10) == (pytest.approx(10 / (10 + Z2), abs=1e-15), 1.0)


def test_wilson_solves_the_score_equation() -> None:
    # By hand for 8 of 10: (0.8 + 0.192073 -+ 1.959964 * sqrt(0.016 + 0.009604)) / 1.384146
    assert wilson(8, 10) == (pytest.approx(0.490162, abs=1e-6), pytest.approx(0.943318, abs=1e-6))
    for limit in wilson(8, 10):  # the definition: (p - limit)^2 = z^2 limit (1 - limit) / n
        assert (0.8 - limit) ** 2 == pytest.approx(Z2 * limit * (1 - limit) / 10, rel=1e-12)


def test_wilson_narrows_with_n_and_widens_with_confidence() -> None:
    def width(k: int, n: int, confidence: float = 0.95) -> float:
        low, high = wilson(k, n, confidence)
        return high - low

    assert width(80, 100) < width(8, 10) < width(8, 10, 0.99)


@given(st.integers(1, 3000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_holds_the_rate_and_mirrors(counts: tuple[int, int]) -> None:
    k, n = counts
    low, high = wilson(k, n)
    assert 0 <= low <= k / n <= high <= 1
    assert wilson(n - k, n) == (pytest.approx(1 - high, abs=1e-12), pytest.approx(1 - low, abs=1e-12))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 0), "n must be at least 1; got 0"),
        ((11, 10), r"successes must be in \[0, 10\]; got 11"),
        ((-1, 10), r"successes must be in \[0, 10\]; got -1"),
        ((1, 2, 1.0), r"confidence must be in \(0, 1\); got 1.0"),
    ],
)
def test_wilson_refuses_what_is_no_count(arguments: tuple[int, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        wilson(*arguments)


def test_mcnemar_p_by_hand() -> None:
    assert mcnemar_p(0, 0) == mcnemar_p(3, 3) == 1.0
    assert mcnemar_p(1, 7) == mcnemar_p(7, 1) == 2 * (1 + 8) / 2**8
    assert mcnemar_p(0, 5) == 2 / 32
    assert 0 < mcnemar_p(0, 1000) < 1e-300  # no overflow, no rounding to 0
    assert mcnemar_p(2000, 2000) == 1.0


@pytest.mark.parametrize(
    ("table", "low", "high"),
    [
        ((36, 12, 2, 0), 0.0569, 0.3404),  # Newcombe 1998, worked example of method 10
        ((1, 1, 7, 12), -0.507, -0.026),  # Fagerland et al. 2014, airway hyper-responsiveness, Newcombe's interval
    ],
)
def test_paired_difference_gives_published_intervals(table: tuple[int, int, int, int], low: float, high: float) -> None:
    result = compare(*table)
    digits = 10.0 ** -len(str(high).split(".")[1])
    assert result.low == pytest.approx(low, abs=digits / 2)
    assert result.high == pytest.approx(high, abs=digits / 2)


@given(st.tuples(*[st.integers(0, 60)] * 4).filter(any))
def test_paired_difference_is_antisymmetric_and_inside_its_interval(table: tuple[int, int, int, int]) -> None:
    both, only_a, only_b, neither = table
    forward, backward = compare(*table), compare(both, only_b, only_a, neither)
    assert forward.diff == pytest.approx((only_a - only_b) / sum(table), abs=1e-12)
    assert -1 - 1e-12 <= forward.low <= forward.diff <= forward.high <= 1 + 1e-12
    assert (backward.low, backward.high) == (pytest.approx(-forward.high), pytest.approx(-forward.low))
    assert backward.p_value == forward.p_value


def test_pairing_narrows_the_interval_of_agents_that_agree() -> None:
    together, apart = compare(90, 10, 0, 100), compare(40, 60, 50, 50)
    assert together.diff == apart.diff == pytest.approx(0.05)
    assert together.high - together.low < (apart.high - apart.low) / 2
    assert together.p_value < 0.01 < apart.p_value


def test_agents_that_solve_the_same_half_of_the_tasks_differ_by_half_of_a_rates_error() -> None:
    """Both agents solve the same 8 of 16 tasks.

    half width of a rate of 1/2        h = z / (2 sqrt(n + z^2)) = 1.959964 / (2 sqrt(19.841459)) = 0.220004
    correlation, corrected             phi = (8 * 8 - 16 / 2) / 64 = 7/8
    half width of the difference       sqrt(h^2 - 2 * 7/8 * h^2 + h^2) = h / 2
    """
    solved = [True] * 8 + [False] * 8
    found = paired_difference(solved, solved)
    assert (found.diff, found.low, found.high) == pytest.approx((0, -0.110002, 0.110002), abs=1e-6)


def test_paired_difference_refuses_other_tasks() -> None:
    with pytest.raises(ValueError, match=r"equally long and not empty; got shapes \(2,\) and \(1,\)"):
        paired_difference([True, False], [True])
    with pytest.raises(ValueError, match="not empty"):
        paired_difference([], [])


@pytest.mark.parametrize("wrong", [0.5, 2, float("nan")])
def test_paired_difference_refuses_shares_which_are_all_true_as_bools(wrong: float) -> None:
    with pytest.raises(ValueError, match=f"a success must be true or false; got {wrong}"):
        paired_difference([True, wrong], [False, True])  # type: ignore[list-item]
    assert paired_difference([1.0, 0.0], [0, 0]).diff == 0.5  # type: ignore[list-item]


def rung(successes: int, n: int, name: str = "agent_q") -> RungResult:
    won = [i < successes for i in range(n)]
    cost = {"env_steps": 5 * n, "prompt_tokens": 7, "generated_tokens": 3, "seconds": 1.5}
    return RungResult.from_outcomes(name, won, [float(w) for w in won], [4] * n, **cost)  # type: ignore[arg-type]


def test_rung_result_counts_and_round_trips() -> None:
    result = rung(8, 10)
    assert (result.successes, result.n, result.rate, result.mean_return, result.mean_steps) == (8, 10, 0.8, 0.8, 4.0)
    assert (result.low, result.high) == wilson(8, 10)
    assert RungResult.from_dict(result.to_dict()) == result
    assert list(result.to_dict())[:5] == ["name", "successes", "n", "low", "high"]
    with pytest.raises(ValueError, match="a rung must have 'low'"):
        RungResult.from_dict({"name": "x", "successes": 1, "n": 2})
    with pytest.raises(ValueError, match="must be equally long; got 2, 1, 2"):
        RungResult.from_outcomes(
            "x", [True, False], [1.0], [1, 2], env_steps=0, prompt_tokens=0, generated_tokens=0, seconds=0
        )


def test_rung_result_counts_broken_tasks_as_not_solved_and_gives_the_rate_without_them() -> None:
    won, broken = [True, False, True, False], [False, True, False, False]
    cost = {"env_steps": 1, "prompt_tokens": 1, "generated_tokens": 1, "seconds": 1.0}
    row = RungResult.from_outcomes("x", won, [1.0, 0.0, 1.0, 0.0], [4, 9, 5, 6], ["a", "a", "b", "b"], broken, **cost)  # type: ignore[arg-type]
    assert (row.successes, row.n, row.broken, row.rate, row.mean_steps) == (2, 4, 1, 0.5, 5.0)
    assert (row.low, row.high) == wilson(2, 4)
    assert row.unbroken == Share(2, 3, *wilson(2, 3)) and row.unbroken.rate == pytest.approx(2 / 3)
    assert row.by_env["a"]["broken"] == 1 and row.by_env["b"]["broken"] == 0
    assert row.to_dict()["unbroken"] == {"successes": 2, "n": 3, "low": wilson(2, 3)[0], "high": wilson(2, 3)[1]}
    assert RungResult.from_dict(row.to_dict()) == row
    assert rung(8, 10).unbroken is None and "unbroken" not in rung(8, 10).to_dict()
    older = {k: v for k, v in rung(8, 10).to_dict().items() if k != "broken"}
    assert RungResult.from_dict(older) == rung(8, 10)
    lost = RungResult.from_outcomes("x", [False], [0.0], [0], [], [True], **cost)  # type: ignore[arg-type]
    assert lost.unbroken is None and lost.broken == 1 and lost.mean_steps == 0.0


def test_paired_difference_leaves_out_tasks_broken_for_either() -> None:
    a, b, broken = [True, False, True, True], [False, False, True, False], [True, False, False, False]
    assert paired_difference(a, b, broken=broken) == paired_difference(a[1:], b[1:])
    with pytest.raises(ValueError, match="broken must leave one of 1 tasks at least; got 0 of 1"):
        paired_difference([True], [True], broken=[True])


def test_rung_result_counts_each_environment_where_there_are_several() -> None:
    won, cost = [True, False, True], {"env_steps": 1, "prompt_tokens": 1, "generated_tokens": 1, "seconds": 1.0}
    several = RungResult.from_outcomes("sft", won, [1.0, 0.0, 1.0], [1] * 3, ["b", "b", "a"], **cost)  # type: ignore[arg-type]
    counts = {env: (row["successes"], row["n"], row["low"], row["high"]) for env, row in several.by_env.items()}
    assert counts == {"a": (1, 1, *wilson(1, 1)), "b": (1, 2, *wilson(1, 2))}
    assert RungResult.from_dict(several.to_dict()) == several
    one = RungResult.from_outcomes("sft", won, [1.0, 0.0, 1.0], [1] * 3, ["a"] * 3, **cost)  # type: ignore[arg-type]
    assert one.by_env == {}
    assert RungResult.from_dict({k: v for k, v in one.to_dict().items() if k != "by_env"}) == one, "an older run's"
