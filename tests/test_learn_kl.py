"""KL estimators against exact expectations over seven symbols: their means and what each use's gradient is."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from agentq.learn.policy_gradient_loss import kl_estimate


def tensor(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def grad_of(loss: Tensor, logits: Tensor) -> Tensor:
    (grad,) = torch.autograd.grad(loss, logits)
    return grad


LOGITS = tensor(0.3, -1.0, 0.8, 0.0, 1.5, -0.4, 0.1)
REF = torch.log_softmax(tensor(-0.5, 0.2, 1.0, 0.7, -0.3, 0.4, 0.0), 0)


def expected(form: str) -> tuple[float, Tensor]:
    """(E[estimate], gradient of the loss it makes) under pi; in the reward by the score function."""
    logits = LOGITS.clone().requires_grad_()
    logps = torch.log_softmax(logits, 0)
    p = logps.detach().exp()
    estimator, _, where = form.partition(" ")
    k = kl_estimate(logps, REF, estimator)  # type: ignore[arg-type]
    terms = {"loss": k, "reward": k.detach() * logps, "ratio": k * (logps - logps.detach()).exp()}[where]
    return float(p @ k.detach()), grad_of((p * terms).sum(), logits)


def test_kl_estimates_have_the_right_mean() -> None:
    logps = torch.log_softmax(LOGITS, 0)
    exact = float(logps.exp() @ (logps - REF))
    assert expected("k1 loss")[0] == pytest.approx(exact)
    assert expected("k3 loss")[0] == pytest.approx(exact)
    assert (kl_estimate(logps, REF, "k3") > 0).all()
    assert kl_estimate(tensor(-1.0), tensor(-1.5), "k2").item() == 0.125
    assert kl_estimate(tensor(-1.0), tensor(-1.5), "k3").item() == pytest.approx(math.exp(-0.5) - 1 + 0.5)


def test_kl_gradients_are_right_only_where_said() -> None:
    logits = LOGITS.clone().requires_grad_()
    logps = torch.log_softmax(logits, 0)
    exact = grad_of((logps.exp() * (logps - REF)).sum(), logits)
    reverse = grad_of((REF.exp() * (REF - torch.log_softmax(logits, 0))).sum(), logits)
    for right in ("k2 loss", "k1 reward", "k3 ratio"):
        torch.testing.assert_close(expected(right)[1], exact)
    torch.testing.assert_close(expected("k1 loss")[1], torch.zeros(7, dtype=torch.float64))
    torch.testing.assert_close(expected("k3 loss")[1], reverse)
    for wrong in ("k3 loss", "k2 reward", "k3 reward"):
        assert torch.cosine_similarity(expected(wrong)[1], exact, dim=0) < 0.99


def test_kl_estimate_gives_the_reference_no_gradient() -> None:
    ref = REF.clone().requires_grad_()
    assert not kl_estimate(LOGITS, ref, "k2").requires_grad


def test_kl_estimate_refuses_wrong_arguments() -> None:
    unknown: Any = "k4"
    with pytest.raises(ValueError, match=r"logps and ref_logps must have one shape; got \[7\] and \[1\]"):
        kl_estimate(REF, REF[:1], "k1")
    with pytest.raises(ValueError, match="estimator must be 'k1', 'k2' or 'k3'; got 'k4'"):
        kl_estimate(REF, REF, unknown)
