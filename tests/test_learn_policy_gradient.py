"""The policy gradient by hand: derivative tables, ratios of a three-turn episode, steps cut into parts."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from agentq.learn.losses import sft_loss, weighted_mean
from agentq.learn.policy_gradient_loss import (
    averaging,
    policy_gradient_loss,
    reciprocal_clip,
)


def tensor(*values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def token(ratio: float, advantage: float, **options: Any) -> tuple[float, float, float, float]:
    """(objective, d objective / d log pi, clip_low, clip_high) of a single token."""
    logps = tensor([math.log(ratio) - 1]).requires_grad_()
    out = policy_gradient_loss(logps, tensor([-1.0]), tensor(advantage), torch.ones(1, 1), **options)
    out.loss.backward()
    assert logps.grad is not None
    assert out.ratio.item() == pytest.approx(ratio)
    return -out.loss.item(), -logps.grad.item(), out.clip_low.item(), out.clip_high.item()


def grad_of(loss: Tensor, logps: Tensor) -> Tensor:
    (grad,) = torch.autograd.grad(loss, logps)
    return grad


# Clipping


def test_clip_golden() -> None:
    assert token(0.7, -1.0, clip=(0.1, 0.1))[0] == pytest.approx(-0.9)
    assert token(0.7, -1.0, clip=reciprocal_clip(0.1))[0] == pytest.approx(-0.909091, abs=1e-6)
    assert token(1.3, 1.0, clip=reciprocal_clip(0.1))[0] == pytest.approx(1.1)
    assert reciprocal_clip(0) == (0, 0)
    assert (token(1.3, 1.0)[0], token(0.7, -1.0)[0]) == pytest.approx((1.2, -0.8))  # PPO's 0.2 unless told otherwise


@pytest.mark.parametrize("ratio", [0.5, 0.85, 1.0, 1.15, 1.25, 2.0, 4.0])
@pytest.mark.parametrize("advantage", [-2.0, 0.0, 2.0])
def test_clip_gradient_is_zero_only_past_the_bound_that_the_advantage_pushes_to(ratio: float, advantage: float) -> None:
    for low, high, dual in ((0.2, 0.2, None), (0.1, 0.3, None), (0.2, 0.2, 3.0), (0.0, 0.0, None)):
        below = advantage < 0 and ratio < 1 - low
        above = (advantage > 0 and ratio > 1 + high) or (advantage < 0 and dual is not None and ratio > dual)
        bound = 1 - low if below else (1 + high if advantage > 0 else dual)
        want = (advantage * bound, 0.0) if below or above else (advantage * ratio, advantage * ratio)  # type: ignore[operator]
        found = token(ratio, advantage, clip=(low, high), dual_clip=dual)
        assert found == pytest.approx((*want, float(below), float(above))), (low, high, dual)
    assert token(ratio, advantage, clip=None)[:2] == pytest.approx((advantage * ratio,) * 2)


@pytest.mark.parametrize("old", [True, False])
@pytest.mark.parametrize("ratio", ["token", "turn", "sequence"])
def test_before_the_first_update_the_loss_is_reinforce(old: bool, ratio: Any) -> None:
    logps = tensor([-1.0, -2.0], [-3.0, math.nan]).requires_grad_()
    mask, advantages = torch.tensor([[1, 1], [1, 0]]), tensor(2.0, -1.0)
    out = policy_gradient_loss(
        logps, logps if old else None, advantages, mask, ratio=ratio, trajectories=torch.tensor([4, 4]), clip=(0, 0)
    )
    assert out.loss.item() == pytest.approx(-(2 + 2 - 1) / 3)
    assert (out.ratio.item(), out.clip_low.item(), out.clip_high.item()) == (1, 0, 0)
    if ratio == "token":
        assert grad_of(out.loss, logps).tolist() == [[-2 / 3, -2 / 3], [1 / 3, 0]]


def test_a_ratio_beyond_all_numbers_has_a_finite_loss_and_no_gradient() -> None:
    logps = tensor([-1.0, -1.0]).requires_grad_()
    out = policy_gradient_loss(logps, tensor([-1e4, 1e4]), tensor([-1.0, 1.0]), torch.ones(1, 2))
    assert out.loss.item() == pytest.approx((math.exp(20) - math.exp(-20)) / 2)
    assert grad_of(out.loss, logps).tolist() == [[0, 0]]


def test_masked_tokens_have_no_effect_whatever_stands_there() -> None:
    mask = torch.tensor([[1, 0, 1]])
    for ratio in ("token", "turn", "sequence"):
        found = []
        for other in (0.0, 5.0, math.nan, math.inf):
            logps = tensor([-1.0, other, -2.0]).requires_grad_()
            old = tensor([-1.1, other, -1.9]).requires_grad_()
            advantages, weights = tensor([1.0, other, 2.0]).requires_grad_(), tensor([1.0, other, 1.0]).requires_grad_()
            options: Any = {"ratio": ratio, "importance_weights": weights}
            out = policy_gradient_loss(logps, old, advantages, mask, **options)
            grad, *others = torch.autograd.grad(out.loss, (logps, old, advantages, weights), allow_unused=True)
            assert grad[0, 1] == 0 and others == [None] * 3
            found.append((out.loss.item(), out.ratio.item(), *grad[0].tolist()))
        assert found == [found[0]] * 4


# Ratios. Three turns of four tokens; the turns' log-ratios add up to ln .82, ln 1.03, ln 1.37

TURNS = torch.tensor([0.82, 1.03, 1.37], dtype=torch.float64)
LOG_RATIOS = TURNS.log()[:, None] * tensor([0.1, 0.2, 0.3, 0.4])
EPISODE = torch.tensor([7, 7, 7])


def of_episode(**options: Any) -> Tensor:
    """The loss of the three turns with advantage 1, averaged per sequence."""
    weights, normalizer = averaging(torch.tensor([4, 4, 4]), "sequence", trajectories=EPISODE)
    options = {"clip": None, "trajectories": EPISODE, "weights": weights, "normalizer": normalizer} | options
    return policy_gradient_loss(
        LOG_RATIOS - 1, torch.full((3, 4), -1.0), torch.ones(3), torch.ones(3, 4), **options
    ).loss


def test_ratios_of_a_three_turn_episode_by_hand() -> None:
    product = float(TURNS.prod())
    assert product == pytest.approx(1.157, abs=5e-4)
    assert of_episode().item() == pytest.approx(-float(LOG_RATIOS.exp().mean()))
    assert of_episode(ratio="turn").item() == pytest.approx(-(0.82 + 1.03 + 1.37) / 3)
    assert of_episode(ratio="sequence").item() == pytest.approx(-product)  # one term, not one a turn
    assert of_episode(ratio="sequence", geometric_mean=True).item() == pytest.approx(-1.012, abs=5e-4)
    assert of_episode(ratio="turn", geometric_mean=True).item() == pytest.approx(-float((TURNS**0.25).mean()))
    assert of_episode(ratio="sequence", trajectories=None) == of_episode(ratio="turn")
    assert of_episode(ratio="sequence", clip=(0.1, 0.1)).item() == pytest.approx(-1.1)


def test_sequence_ratio_gradient_is_that_of_the_product() -> None:
    # d rho / d log pi of any token is rho; for the geometric mean rho / 12, as of the token form sg(s) * pi / sg(pi)
    logps = (LOG_RATIOS - 1).requires_grad_()
    weights, normalizer = averaging(torch.tensor([4, 4, 4]), "sequence", trajectories=EPISODE)
    for geometric_mean, scale in ((False, 1.0), (True, 1 / 12)):
        out = policy_gradient_loss(
            logps, torch.full((3, 4), -1.0), torch.full((3,), 2.0), torch.ones(3, 4), ratio="sequence",
            geometric_mean=geometric_mean, trajectories=EPISODE, clip=None, weights=weights, normalizer=normalizer,
        )  # fmt: skip
        s = float(TURNS.prod()) ** scale
        torch.testing.assert_close(grad_of(out.loss, logps), torch.full((3, 4), -2 * s * scale, dtype=torch.float64))


def test_turns_are_products_over_their_own_tokens_only() -> None:
    logps, old = tensor([-1.0, -1.0, 9.0], [-1.0, -1.0, -1.0]), tensor([-1.5, -1.0, 0.0], [-1.0, -1.0, -2.0])
    mask = torch.tensor([[1, 1, 0], [1, 1, 1]])
    out = policy_gradient_loss(logps, old, tensor(1.0, -1.0), mask, ratio="turn", clip=(0.2, 0.2))
    # rho = e^.5 over two tokens, clipped to 1.2; e^1 over three, not clipped
    assert out.loss.item() == pytest.approx(-(2 * 1.2 - 3 * math.e) / 5)
    assert (out.clip_low.item(), out.clip_high.item()) == pytest.approx((0, 0.4))
    out = policy_gradient_loss(logps, old, tensor(1.0, -1.0), mask, ratio="turn", geometric_mean=True, clip=None)
    assert out.loss.item() == pytest.approx(-(2 * math.exp(0.5 / 2) - 3 * math.exp(1 / 3)) / 5)


def test_geometric_mean_of_a_turn_of_one_token_and_of_none() -> None:
    logps = tensor([-1.0], [-1.0]).requires_grad_()
    mask, advantages = torch.tensor([[1], [0]]), tensor(1.0, 1.0)
    out = policy_gradient_loss(
        logps, logps.detach() - 0.5, advantages, mask, ratio="turn", geometric_mean=True, clip=None
    )
    assert out.loss.item() == pytest.approx(-math.exp(0.5))
    assert grad_of(out.loss, logps).flatten().tolist() == pytest.approx([-math.exp(0.5), 0])


# Averaging


@pytest.mark.parametrize(
    ("mode", "constant", "want"),
    [("token", 1, 16 / 12), ("sequence", 1, 2.0), ("constant", 1, 8.0), ("constant", 10, 0.8)],
)
def test_averaging_of_two_sequences_by_hand(mode: Any, constant: float, want: float) -> None:
    # 2 tokens of loss 3 and 10 of loss 1; then the second sequence as rows of 4 and 6, out of order
    losses, lengths = tensor([3.0] * 10, [1.0] * 10), torch.tensor([2, 10])
    weights, normalizer = averaging(lengths, mode, constant=constant)
    mask = torch.arange(10) < lengths[:, None]
    assert constant != 1 or averaging(lengths, mode)[0].tolist() == weights.tolist()
    assert weighted_mean(losses, mask, weights=weights, normalizer=normalizer).item() == pytest.approx(want)
    assert sft_loss(-losses, mask, weights=weights, normalizer=normalizer).item() == pytest.approx(want)

    losses, lengths = tensor([1.0] * 6, [3.0] * 6, [1.0] * 6), torch.tensor([4, 2, 6])
    weights, normalizer = averaging(lengths, mode, trajectories=torch.tensor([5, 2, 5]), constant=constant)
    mask = torch.arange(6) < lengths[:, None]
    assert weighted_mean(losses, mask, weights=weights, normalizer=normalizer).item() == pytest.approx(want)


@st.composite
def steps(draw: st.DrawFn) -> tuple[dict[str, Any], list[int], dict[str, Any]]:
    """A step's columns, where each row's part is (all rows of a trajectory together), and options."""
    rows, width = draw(st.integers(2, 6)), 3
    seed = draw(st.integers(0, 10_000))
    generator = torch.Generator().manual_seed(seed)
    trajectories = torch.randint(0, 3, (rows,), generator=generator)
    columns = {
        "logps": torch.randn(rows, width, generator=generator, dtype=torch.float64),
        "old_logps": torch.randn(rows, width, generator=generator, dtype=torch.float64),
        "advantages": torch.randn(rows, generator=generator, dtype=torch.float64),
        "action_mask": torch.arange(width) < torch.randint(1, width + 1, (rows, 1), generator=generator),
        "trajectories": trajectories,
        "importance_weights": torch.rand(rows, width, generator=generator, dtype=torch.float64),
    }
    ratio = draw(st.sampled_from(("token", "turn", "sequence")))
    options = {
        "ratio": ratio,
        "geometric_mean": ratio != "token" and draw(st.booleans()),
        "clip": draw(st.sampled_from(((0.2, 0.3), None))),
        "dual_clip": draw(st.sampled_from((None, 2.0))),
    }
    part = [draw(st.integers(0, 1)) for _ in range(3)]
    return columns, [part[int(t)] for t in trajectories], options


@given(steps(), st.sampled_from(("token", "sequence", "constant")))
def test_a_step_means_the_same_however_it_is_cut(case: Any, mode: Any) -> None:
    columns, part, options = case
    lengths = columns["action_mask"].sum(dim=1)
    weights, normalizer = averaging(lengths, mode, trajectories=columns["trajectories"], constant=7)

    def of(rows: list[int]) -> tuple[list[float], Tensor]:
        logps = columns["logps"].clone().requires_grad_()
        mine = {name: column[rows] for name, column in (columns | {"logps": logps}).items()}
        out = policy_gradient_loss(**mine, **options, weights=weights[rows], normalizer=normalizer)
        return [x.item() for x in out], grad_of(out.loss, logps)

    whole, gradient = of(list(range(len(part))))
    parts = [of([row for row, p in enumerate(part) if p == wanted]) for wanted in set(part)]
    assert [sum(x) for x in zip(*(found for found, _ in parts), strict=True)] == pytest.approx(whole)
    torch.testing.assert_close(torch.stack([g for _, g in parts]).sum(dim=0), gradient)


def test_mean_of_the_parts_means_is_another_objective() -> None:
    # without the step's normalizer: (3 + 1) / 2 for the two sequences above, where the mean over tokens is 4/3
    first, second = (sft_loss(-tensor(row), torch.ones(1, len(row))) for row in ([3.0] * 2, [1.0] * 10))
    assert (first + second).item() / 2 == pytest.approx(2.0)


ROW: Any = (torch.zeros(2, 3), torch.zeros(2, 3), torch.zeros(2), torch.ones(2, 3))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: policy_gradient_loss(*ROW, clip=(-0.1, 0.1)), "clip must be two numbers of at least 0; got"),
        (lambda: policy_gradient_loss(*ROW, dual_clip=1.0), "dual_clip must be greater than 1; got 1.0"),
        (lambda: policy_gradient_loss(*ROW, ratio="step"), "ratio must be 'token', 'turn' or 'sequence'; got 'step'"),
        (lambda: policy_gradient_loss(*ROW, geometric_mean=True), "geometric_mean must go with ratio 'turn' or"),
        (lambda: policy_gradient_loss(*ROW, normalizer=0), "normalizer must be greater than 0; got 0.0"),
        (lambda: policy_gradient_loss(*ROW, weights=torch.ones(3)), r"weights must have one entry per sequence \(2\)"),
        (
            lambda: policy_gradient_loss(*ROW, ratio="sequence", trajectories=torch.zeros(3)),
            r"trajectories must have one entry per row \(2\); got \[3\]",
        ),
        (lambda: policy_gradient_loss(*ROW[:2], torch.zeros(3), ROW[3]), r"advantages must be \[S\] or \[S, T\] of"),
        (lambda: policy_gradient_loss(ROW[0], torch.zeros(2, 1), *ROW[2:]), r"must have one shape \[S, T\]; got"),
        (
            lambda: policy_gradient_loss(*ROW, importance_weights=torch.ones(3)),
            r"importance_weights must be \[2, 3\]; got",
        ),
        (lambda: reciprocal_clip(-0.1), "epsilon must be at least 0; got -0.1"),
        (lambda: averaging(torch.tensor([1]), "turn"), "mode must be 'token', 'sequence' or 'constant'; got 'turn'"),  # type: ignore[arg-type]
        (
            lambda: averaging(torch.tensor([1, 0]), "token"),
            r"num_tokens must be \[S\] of at least 1 each; got \[1, 0\]",
        ),
        (lambda: averaging(torch.tensor([]), "token"), r"num_tokens must be \[S\] of at least 1 each; got \[\]"),
        (lambda: averaging(torch.tensor([1]), "constant", constant=0), "constant must be greater than 0; got 0"),
    ],
)
def test_policy_gradient_refuses_wrong_arguments(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
