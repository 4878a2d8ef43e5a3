"""Losses by hand: values, signs of gradients, errors."""

import math

import pytest
import torch

from agentq.learn.losses import dpo_loss, sequence_logps, sft_loss


def vector(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def test_dpo_loss_golden_vector() -> None:
    # margin = .1 * ((-10 + 12) - (-15 + 14)) = .3; -log sigmoid(.3) = log(1 + exp(-.3)) = 0.554355
    out = dpo_loss(vector(-10), vector(-15), vector(-12), vector(-14), beta=0.1)
    assert out.loss.item() == pytest.approx(0.554355, abs=1e-6)
    assert out.chosen_rewards.item() == pytest.approx(0.2)
    assert out.rejected_rewards.item() == pytest.approx(-0.1)


@pytest.mark.parametrize("label_smoothing", [0.0, 0.3])
def test_dpo_loss_equal_references_give_ln2(label_smoothing: float) -> None:
    x, y = vector(-10, -3), vector(-15, -0.5)
    out = dpo_loss(x, y, x, y, beta=0.7, label_smoothing=label_smoothing)
    assert out.loss.tolist() == pytest.approx([math.log(2)] * 2, abs=1e-12)


def test_dpo_loss_gradient_raises_chosen_and_lowers_rejected() -> None:
    # d loss / d chosen = -beta * sigmoid(-margin), margin = .3 as above: -.1 * 0.425557; rejected: its negative
    chosen, rejected, ref_chosen, ref_rejected = vector(-10), vector(-15), vector(-12), vector(-14)
    dpo_loss(chosen, rejected, ref_chosen, ref_rejected, beta=0.1).loss.sum().backward()
    assert chosen.grad is not None and rejected.grad is not None
    assert chosen.grad.item() == pytest.approx(-0.0425557, abs=1e-7)
    assert rejected.grad.item() == pytest.approx(0.0425557, abs=1e-7)
    assert ref_chosen.grad is None and ref_rejected.grad is None


def test_dpo_loss_label_smoothing_by_hand() -> None:
    # margin 2: .9 * log(1 + e^-2) + .1 * log(1 + e^2) = .9 * 0.126928 + .1 * 2.126928 = 0.326928
    out = dpo_loss(vector(-1), vector(-3), vector(-2), vector(-2), beta=1.0, label_smoothing=0.1)
    assert out.loss.item() == pytest.approx(0.326928, abs=1e-6)


def test_dpo_loss_of_extreme_margins_is_finite() -> None:
    out = dpo_loss(vector(0, -4000), vector(-4000, 0), vector(0, 0), vector(0, 0), beta=1.0)
    assert out.loss.tolist() == pytest.approx([0.0, 4000.0])


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [({"beta": 0.0}, "beta must be"), ({"beta": 1.0, "label_smoothing": 0.5}, "label_smoothing must be")],
)
def test_dpo_loss_refuses_values_out_of_range(kwargs: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dpo_loss(vector(1), vector(1), vector(1), vector(1), **kwargs)


def test_dpo_loss_refuses_shapes_that_would_broadcast() -> None:
    with pytest.raises(ValueError, match=r"one shape \[B\]"):
        dpo_loss(vector(1, 2), vector(1, 2), vector(1), vector(1, 2), beta=0.1)


LOGPS = [[-1.0, -2.0, math.nan], [-4.0, math.nan, math.nan]]
MASK = torch.tensor([[1, 1, 0], [1, 0, 0]])


def test_sft_loss_is_the_mean_over_action_tokens() -> None:
    logps = torch.tensor(LOGPS, requires_grad=True)
    loss = sft_loss(logps, MASK)
    assert loss.item() == pytest.approx((1 + 2 + 4) / 3)  # not the mean of sequence means, (1.5 + 4) / 2
    loss.backward()
    assert logps.grad is not None
    torch.testing.assert_close(logps.grad, -MASK / 3)  # down the loss is up in probability; nothing from padding


def test_sft_loss_weights_and_normalizer() -> None:
    # (2 * (1 + 2) + -1 * 4) / 10
    loss = sft_loss(torch.tensor(LOGPS), MASK, weights=torch.tensor([2.0, -1.0]), normalizer=10)
    assert loss.item() == pytest.approx(0.2)


def test_sft_loss_refuses_what_it_cannot_mean() -> None:
    logps = torch.tensor(LOGPS)
    with pytest.raises(ValueError, match="normalizer must be greater than 0; got 0"):
        sft_loss(logps, torch.zeros_like(MASK))
    with pytest.raises(ValueError, match=r"weights must have one entry a sequence \(2\)"):
        sft_loss(logps, MASK, weights=torch.ones(3))
    with pytest.raises(ValueError, match=r"both be \[B, T\]"):
        sft_loss(logps, MASK[:, :2])


def test_sequence_logps_ignores_what_is_masked() -> None:
    assert sequence_logps(torch.tensor(LOGPS), MASK).tolist() == [-3.0, -4.0]
