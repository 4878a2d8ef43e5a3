"""Importance weights between an inference engine's numbers and the learner's, by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from agentq.learn.policy_gradient_loss import policy_gradient_loss, truncated_importance_weights


def tensor(*values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_truncated_importance_weights_by_hand() -> None:
    # .5 nats: e^.5 = 1.65; 1 nat: over the cap of 2
    old, sampler = tensor([-1.0, -1.0, math.nan], [-1.0, -2.0, -2.0]), tensor([-1.5, -2.0, 0.0], [-1.0, -1.0, -1.0])
    mask = torch.tensor([[1, 1, 0], [1, 1, 1]])
    e = math.exp
    want = [e(0.5), 2, 0, 1, e(-1), e(-1)]
    assert truncated_importance_weights(old, sampler, mask).flatten().tolist() == pytest.approx(want)
    want[1] = 0
    assert truncated_importance_weights(old, sampler, mask, drop=True).flatten().tolist() == pytest.approx(want)
    turn = truncated_importance_weights(old, sampler, mask, ratio="turn", cap=5).flatten().tolist()
    assert turn == pytest.approx([e(1.5)] * 2 + [0] + [e(-2)] * 3)
    both = {"ratio": "sequence", "trajectories": torch.tensor([1, 1])}
    assert truncated_importance_weights(old, sampler, mask, **both)[0, 0].item() == pytest.approx(e(-0.5))  # type: ignore[arg-type]


def test_the_cap_itself_is_kept() -> None:
    zeros, mask = torch.zeros(1, 1), torch.ones(1, 1)
    found = [
        truncated_importance_weights(zeros, zeros, mask, cap=c, drop=d).item() for c in (1, 0.5) for d in (True, False)
    ]
    assert found == [1, 1, 0, 0.5]


@pytest.mark.parametrize("length", [80, 100])
def test_a_constant_offset_drops_a_sequence_once_it_is_long(length: int) -> None:
    offset, cap = 0.012, 3.0  # ln 3 / .012 = 91.6 tokens
    old = torch.zeros(1, length, dtype=torch.float64, requires_grad=True)
    mask = torch.ones(1, length)
    weights = truncated_importance_weights(old, old - offset, mask, cap=cap, ratio="sequence", drop=True)
    kept = length * offset <= math.log(cap)
    assert weights.tolist() == [[pytest.approx(math.exp(length * offset) if kept else 0)] * length]
    assert not weights.requires_grad
    by_token = truncated_importance_weights(old, old - offset, mask, cap=cap)
    assert by_token.tolist() == [[pytest.approx(math.exp(offset))] * length]


def test_importance_weights_scale_the_gradient_and_get_none() -> None:
    logps, weights = tensor([-1.0, -1.0]).requires_grad_(), tensor([2.0, 0.0]).requires_grad_()
    out = policy_gradient_loss(logps, None, tensor(3.0), torch.ones(1, 2), importance_weights=weights)
    assert out.loss.item() == -3
    grad, unused = torch.autograd.grad(out.loss, (logps, weights), allow_unused=True)
    assert grad.tolist() == [[-3, 0]] and unused is None


def test_truncated_importance_weights_refuse_wrong_arguments() -> None:
    logps, mask = torch.zeros(2, 3), torch.ones(2, 3)
    unreported = logps.index_fill(1, torch.tensor([2]), math.nan)  # such as a stop token that the engine added
    with pytest.raises(ValueError, match="cap must be greater than 0; got 0"):
        truncated_importance_weights(logps, logps, mask, cap=0)
    for pair in ((logps, unreported), (unreported, logps)):
        with pytest.raises(ValueError, match="old_logps and sampler_logps must be finite at every action token"):
            truncated_importance_weights(*pair, mask)
    with pytest.raises(ValueError, match=r"must have one shape \[S, T\]; got"):
        truncated_importance_weights(logps, logps, mask[:1])
