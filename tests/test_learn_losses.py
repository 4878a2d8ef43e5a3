"""Losses by hand: values, signs of gradients, errors."""

import math
from typing import Any

import pytest
import torch

from agentq.learn.losses import discriminator_loss, dpo_loss, sequence_logps, sft_loss, value_loss


def vector(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def test_dpo_loss_golden_vector() -> None:
    # margin = .1 * ((-10 + 12) - (-15 + 14)) = .3; -log sigmoid(.3) = log(1 + exp(-.3)) = 0.554355
    out = dpo_loss(vector(-10), vector(-15), vector(-12), vector(-14), beta=0.1)
    assert out.loss.item() == pytest.approx(0.554355, abs=1e-6)
    assert out.chosen_rewards.item() == pytest.approx(0.2)
    assert out.rejected_rewards.item() == pytest.approx(-0.1)
    assert not out.chosen_rewards.requires_grad and not out.rejected_rewards.requires_grad


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


def test_dpo_loss_by_length_takes_means_over_tokens() -> None:
    # log-ratios 2 over 4 tokens and -1 over 2: margin .1 * (.5 + .5); log(1 + exp(-.1)) = 0.644397
    lengths = torch.tensor([4]), torch.tensor([2])
    out = dpo_loss(vector(-10), vector(-15), vector(-12), vector(-14), beta=0.1, lengths=lengths)
    assert out.loss.item() == pytest.approx(0.644397, abs=1e-6)
    assert (out.chosen_rewards.item(), out.rejected_rewards.item()) == pytest.approx((0.05, -0.05))
    one = torch.tensor([1]), torch.tensor([1])
    out = dpo_loss(vector(-10), vector(-15), vector(-12), vector(-14), beta=0.1, lengths=one)
    assert out.loss.item() == pytest.approx(0.554355, abs=1e-6)


def test_dpo_loss_ipo_by_hand() -> None:
    # log-ratios 2 and -1 differ by 3; 1 / (2 * .1) = 5: (3 - 5)^2. Means over 4 and 2 tokens differ by 1: (1 - 5)^2
    x, lengths = (vector(-10), vector(-15), vector(-12), vector(-14)), (torch.tensor([4]), torch.tensor([2]))
    assert dpo_loss(*x, beta=0.1, loss_type="ipo").loss.item() == pytest.approx(4)
    assert dpo_loss(*x, beta=0.1, loss_type="ipo", lengths=lengths).loss.item() == pytest.approx(16)


def test_dpo_loss_ipo_stops_where_the_margin_is_a_half() -> None:
    # d (h - 5)^2 / d chosen = 2 (h - 5): -4 at h = 3, 0 at 5, 4 at 7, where sigmoid still pushes on
    chosen = vector(-10, -8, -6)
    zeros = [torch.full((3,), value, dtype=torch.float64) for value in (-15, -12, -14)]
    dpo_loss(chosen, *zeros, beta=0.1, loss_type="ipo").loss.sum().backward()
    assert chosen.grad is not None
    assert chosen.grad.tolist() == pytest.approx([-4, 0, 4])


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"beta": 0.0}, "beta must be greater than 0; got 0.0"),
        ({"label_smoothing": 0.5}, r"label_smoothing must be in \[0, 0.5\); got 0.5"),
        ({"loss_type": "hinge"}, "loss_type must be 'sigmoid' or 'ipo'; got 'hinge'"),
        ({"loss_type": "ipo", "label_smoothing": 0.1}, "label_smoothing must be 0 with loss_type 'ipo'; got 0.1"),
        ({"lengths": (torch.tensor([3]), torch.tensor([0]))}, "lengths must be at least 1; got 0"),
        ({"lengths": (torch.tensor([3]), torch.tensor([1, 2]))}, r"one shape \[B\]"),
    ],
)
def test_dpo_loss_refuses_wrong_arguments(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dpo_loss(vector(1), vector(1), vector(1), vector(1), **({"beta": 1.0} | kwargs))


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
    with pytest.raises(ValueError, match=r"weights must have one entry per sequence \(2\)"):
        sft_loss(logps, MASK, weights=torch.ones(3))
    with pytest.raises(ValueError, match=r"both be \[B, T\]"):
        sft_loss(logps, MASK[:, :2])


def test_sequence_logps_ignores_what_is_masked() -> None:
    assert sequence_logps(torch.tensor(LOGPS), MASK).tolist() == [-3.0, -4.0]


def test_sequence_logps_are_added_in_float64() -> None:
    # 2^24 + 1 is no float32
    assert sequence_logps(torch.tensor([[2.0**24, 1.0, 1.0]]), torch.ones(1, 3)).item() == 2**24 + 2


# Discriminator


def test_discriminator_loss_by_hand() -> None:
    # D = 3/4: -log(3/4) if the expert's, -log(1/4) if not; d loss / d logit = D - y
    logits = vector(math.log(3), math.log(3))
    loss = discriminator_loss(logits, torch.tensor([1, 0]))
    assert loss.tolist() == pytest.approx([math.log(4 / 3), math.log(4)])
    loss.sum().backward()
    assert logits.grad is not None
    assert logits.grad.tolist() == pytest.approx([-0.25, 0.75])
    smoothed = discriminator_loss(logits, torch.tensor([1, 0]), label_smoothing=0.1).tolist()
    assert smoothed == pytest.approx([math.log(4) - 0.9 * math.log(3), math.log(4) - 0.1 * math.log(3)])
    assert discriminator_loss(vector(1e4, -1e4), torch.tensor([0, 1])).tolist() == [1e4, 1e4]


def test_discriminator_loss_refuses_wrong_arguments() -> None:
    with pytest.raises(ValueError, match=r"both be \[B\]; got \[2\] and \[1\]"):
        discriminator_loss(vector(1, 2), torch.ones(1))
    with pytest.raises(ValueError, match=r"label_smoothing must be in \[0, 0.5\); got 0.5"):
        discriminator_loss(vector(1), torch.ones(1), label_smoothing=0.5)


# Values: G = 1 for all


def test_value_loss_by_hand() -> None:
    # half of (.5^2 + 1^2 + 0) / 3, the fourth is masked
    values = torch.tensor([[0.5, 2.0], [1.0, math.nan]], requires_grad=True)
    mask = torch.tensor([[1, 1], [1, 0]])
    loss = value_loss(values, torch.tensor([[1.0, 1.0], [1.0, math.nan]]), mask)
    assert loss.item() == pytest.approx(0.5 * 1.25 / 3)
    loss.backward()
    assert values.grad is not None
    torch.testing.assert_close(values.grad, torch.tensor([[-0.5, 1.0], [0.0, 0.0]]) / 3)
    weighted = value_loss(values, torch.ones(2, 2), mask, weights=torch.tensor([2.0, 1.0]), normalizer=5)
    assert weighted.item() == pytest.approx(0.5 * 2 * 1.25 / 5)


def test_value_loss_clipped_by_hand() -> None:
    # old .4, clip .2: .9 counts as .6 (.16 > .01, no gradient); .45 is inside; 0 counts as .2, nearer to 1, so 1 stays.
    # From old 1.3, 1.6 counts as 1.5, nearer too. With G = 0 from old .9, .1 counts as .7 (.49 > .01); .45 is inside
    values = vector(0.9, 0.45, 0.0, 1.6, 0.1, 0.45)
    old = torch.tensor([[0.4, 0.4, 0.4, 1.3, 0.9, 0.4]], requires_grad=True)
    returns, mask = torch.tensor([[1.0, 1.0, 1.0, 1.0, 0.0, 0.0]], requires_grad=True), torch.ones(1, 6)
    loss = value_loss(values[None], returns, mask, old_values=old, clip=0.2, normalizer=1)
    assert loss.item() == pytest.approx(0.5 * (0.16 + 0.55**2 + 1 + 0.36 + 0.49 + 0.45**2))
    loss.backward()
    assert values.grad is not None
    assert values.grad.tolist() == pytest.approx([0, -0.55, -1, 0.6, 0, 0.45])
    assert returns.grad is None and old.grad is None
    still = value_loss(values[None, :1], returns[:, :1], mask[:, :1], old_values=old[:, :1], clip=0.0)
    assert still.item() == pytest.approx(0.5 * 0.36)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"clip": 0.2}, "clip and old_values must come together; got clip 0.2"),
        ({"old_values": torch.ones(1, 2)}, "clip and old_values must come together; got clip None"),
        ({"clip": -1.0, "old_values": torch.ones(1, 2)}, "clip must be at least 0; got -1.0"),
        ({"clip": 1.0, "old_values": torch.ones(2)}, r"returns and old_values must be \[1, 2\] as values"),
    ],
)
def test_value_loss_refuses_wrong_arguments(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        value_loss(torch.ones(1, 2), torch.ones(1, 2), torch.ones(1, 2), **kwargs)
