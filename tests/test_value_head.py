"""The value head beside the policy: its loss and gradient by hand, alone, and in the learner's step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from agentq.learn import value_head
from agentq.learn.batch import Part
from agentq.learn.features import features
from agentq.learn.learner import Learner
from agentq.learn.sharding import Ranks
from agentq.learn.value_head import HEAD, beside, new_head
from agentq.recipes.policy_gradient import policy_gradient, with_old_logps
from agentq.recipes.settings import RECIPES
from agentq.types import CreditedTrajectory, Sample
from tests.learn_factory import sample, tiny_llama
from tests.reads import made


def test_the_loss_and_gradient_of_a_head_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    states = torch.tensor([[1.0, 2.0], [0.0, 1.0], [2.0, 0.0]])
    monkeypatch.setattr(value_head, "features", lambda learner, samples: (states[: len(samples)], None))
    head = torch.nn.Parameter(torch.tensor([0.1, 0.2, 0.3]))
    learner: Any = SimpleNamespace(device="cpu", heads={HEAD: head})
    turn = sample([5], [3])
    batch = [
        CreditedTrajectory((turn, turn), np.ones(2), values=np.array([[1.0, 0.5], [0.0, 0.5]])),
        CreditedTrajectory((turn,), np.ones(1), values=np.array([[1.0, 0.55]])),
    ]
    part = Part((1, 0), ((0,), (1, 2)), torch.ones(3, 1), ())
    loss, metrics = beside(learner, batch)(part)
    # V = 0.1 + 0.4 + 0.3 = 0.8, old 0.5: clipped to 0.7, which is further from 1: 0.09 and no gradient
    # V = 0.2 + 0.3 = 0.5, old 0.5, return 0: 0.25, gradient 0.5 (0, 1, 1)
    # V = 0.2 + 0.3 = 0.5, old 0.55, return 1: 0.25, gradient -0.5 (2, 0, 1)
    assert float(loss.detach()) == pytest.approx((0.09 + 0.25 + 0.25) / 2 / 3, rel=1e-6)
    assert float(metrics["value_loss"]) == float(loss.detach())
    (gradient,) = torch.autograd.grad(loss, head)
    assert gradient.tolist() == pytest.approx([-1 / 3, 0.5 / 3, 0.0], abs=1e-6)
    first, _ = beside(learner, batch)(replace(part, items=(0,)))
    other, _ = beside(learner, batch)(replace(part, items=(1,)))
    assert float((first + other).detach()) == pytest.approx(float(loss.detach()))  # however a step is divided


def items(learner: Learner) -> list[CreditedTrajectory]:
    """A success of two turns and a failure of three, which share their first prompt."""
    turns = [sample([5, 6, 7], [8, 9, 3]), sample([5, 6, 7, 8], [11, 3]), sample([5, 6, 9], [12, 10, 3])]
    found = [
        CreditedTrajectory((turns[0], turns[1]), np.array([1.0, 0.5]), values=np.array([[1.0, 0.1], [1.0, -0.1]])),
        CreditedTrajectory((turns[0], turns[2], turns[1]), -np.ones(3), values=np.array([[0.0, 0.1]] * 3)),
    ]
    return with_old_logps(learner, found)


def step(learner: Learner, batch: list[CreditedTrajectory]) -> dict[str, float]:
    return policy_gradient(beside=beside)(learner, batch, made(RECIPES["ppo"], ["--train.batch_size=2"]))


def learner_with_head(**more: Any) -> Learner:
    learner = Learner(tiny_llama(), learning_rate=1e-2, max_grad_norm=1e9, **more)
    learner.add_head(HEAD, new_head(learner))
    return learner


def by_hand(states: Sequence[np.ndarray], weight: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The gradient of the mean clipped value loss over turns, one turn at a time."""
    total = np.zeros_like(weight)
    for state, (goal, old) in zip(states, values, strict=True):
        x = np.append(state, 1.0)
        v = float(x @ weight)
        clipped = min(max(v, old - 0.2), old + 0.2)
        if (v - goal) ** 2 >= (clipped - goal) ** 2:  # else the clipped one, a constant
            total += (v - goal) * x / len(states)
    return total


@pytest.mark.parametrize("max_tokens", [None, 8])
def test_a_step_trains_the_head_and_no_value_gradient_reaches_the_policy(max_tokens: int | None) -> None:
    learner = learner_with_head(max_tokens=max_tokens)
    alone = Learner(tiny_llama(), learning_rate=1e-2, max_grad_norm=1e9, max_tokens=max_tokens)
    batch = items(learner)
    with torch.no_grad():
        learner.heads[HEAD].copy_(0.05 * torch.randn(33, generator=torch.Generator().manual_seed(1)))
    states, _ = features(learner, [s for item in batch for s in item.samples])
    told = np.concatenate([item.values for item in batch if item.values is not None])
    wanted = by_hand([s.double().numpy() for s in states], learner.heads[HEAD].detach().double().numpy(), told)
    metrics = step(learner, batch)
    assert metrics["value_loss"] > 0
    grad = learner.heads[HEAD].grad
    assert grad is not None and np.allclose(grad.numpy(), wanted, atol=1e-5)
    step(alone, [replace(item, values=None) for item in batch])
    for name, p in alone.parameters.items():
        assert torch.allclose(learner.parameters[name], p, atol=1e-6), name


def test_packed_and_padded_steps_train_the_same_head() -> None:
    packed, padded = learner_with_head(), learner_with_head()
    padded.packed = False
    assert packed.packed
    for _ in range(3):
        step(packed, items(packed)), step(padded, items(padded))
    assert torch.allclose(packed.heads[HEAD], padded.heads[HEAD], atol=1e-4)
    assert packed.heads[HEAD].abs().max() > 1e-3


class TwoRanks(Ranks):
    """The second rank has the same parts. What a rank is sent must be of no device of the sender's."""

    def gather(self, value: Any) -> list[Any]:
        assert not isinstance(value, torch.Tensor)
        return [value, value] if isinstance(value, np.ndarray) else [value]


def test_the_gradient_of_a_head_is_summed_over_ranks() -> None:
    alone, together = learner_with_head(), learner_with_head()
    batch = items(alone)
    together.ranks = TwoRanks()
    step(alone, batch), step(together, batch)
    of_alone, of_both = alone.heads[HEAD].grad, together.heads[HEAD].grad
    assert of_alone is not None and of_both is not None and torch.equal(of_both, 2 * of_alone)
    assert float(of_alone.abs().max()) > 0


def test_a_head_learns_returns() -> None:
    learner = learner_with_head()
    samples: list[Sample] = [sample([5, 6, 7 + i], [3]) for i in range(8)]
    goals = np.array([[float(i % 2), 0.5] for i in range(8)])
    losses = []
    for _ in range(60):
        batch = [
            CreditedTrajectory((s,), np.zeros(1), values=goal[None]) for s, goal in zip(samples, goals, strict=True)
        ]
        losses.append(step(learner, with_old_logps(learner, batch))["value_loss"])
    # a round's values move by at most 0.2 from the old ones of 0.5: (0.5 - 0.2)^2 / 2 is the least loss
    assert losses[0] > 0.1 and losses[-1] == pytest.approx(0.045, abs=5e-3)
