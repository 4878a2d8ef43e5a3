"""One step's loss of every recipe at its own settings, without a model: log-probabilities and values by hand."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from agentq.errors import ConfigError
from agentq.learn.batch import LossFn, Part
from agentq.learn.learner import Learner
from agentq.recipes.rounds import nothing_learnt
from agentq.recipes.settings import RECIPES
from agentq.types import CreditedTrajectory, PreferencePair, Sample
from tests.learn_factory import sample
from tests.reads import made
from tests.train_factory import TINY, recipe_of, run


class Known:
    """A learner whose log-probabilities are given, one list per sample of a step; `gradient` is that of the loss."""

    step_count = lora_rank = 0
    step_sft, step_dpo = Learner.step_sft, Learner.step_dpo

    def __init__(self, *logps: list[float]) -> None:
        self.logps, self.reference = logps, dict[bytes, np.ndarray]()
        self.gradient: list[list[float]] = []

    def update(self, items: Sequence[Sequence[Sample]], loss_fn: LossFn) -> dict[str, float]:
        rows = iter(range(len(self.logps)))
        samples = tuple(tuple(next(rows) for _ in item) for item in items)
        longest = max(map(len, self.logps))
        padded = torch.tensor([[*row, *[0.0] * (longest - len(row))] for row in self.logps], dtype=torch.float64)
        mask = torch.tensor([[t < len(row) for t in range(longest)] for row in self.logps])
        padded.requires_grad_()
        value, metrics = loss_fn(Part(tuple(range(len(items))), samples, mask, ()), padded)
        (gradient,) = torch.autograd.grad(value, padded)
        self.gradient = [row[: len(own)].tolist() for row, own in zip(gradient, self.logps, strict=True)]
        return {"loss": value.item(), **{name: _number(metric) for name, metric in metrics.items()}}


def _number(x: Tensor | float) -> float:
    return float(x)


def step(name: str, learner: Any, batch: list[Any], words: Sequence[str] = ()) -> dict[str, float]:
    settings = made(RECIPES[name], ["--train.batch_size=240", *words])
    return recipe_of(name).loss(learner, batch, settings)


def trajectories() -> list[CreditedTrajectory]:
    """A turn of two tokens with advantage 1, and turns of one and two tokens with advantage -1; old logps are -1."""
    turns = [sample([5], [8, 3], [-1.0, -1.0]), sample([6], [3], [-1.0]), sample([7], [9, 3], [-1.0, -1.0])]
    first = CreditedTrajectory(tuple(turns[:1]), np.array([1.0]))
    return [first, CreditedTrajectory(tuple(turns[1:]), np.array([-1.0, -1.0]))]


def at_ratios(*rows: list[float]) -> Known:
    return Known(*([-1 + log(ratio) for ratio in row] for row in rows))


RATIOS = ([1.25, 1.0], [0.7], [1.0, 0.95])
STANDARD = -((1.2 + 1) / 2 + (-0.8 - 1 - 0.95) / 3) / 2  # clip 0.2 both ways, mean over trajectories' means
LOSSES = {
    "grpo": STANDARD,
    "gigpo": STANDARD,
    "tree_grpo": STANDARD,
    "tree_rl": STANDARD,
    "arpo_entropy": STANDARD,
    "ppo": STANDARD,
    "step_agent_inverse": STANDARD,
    "dapo": -(1.25 + 1 - 0.8 - 1 - 0.95) / 5,  # clip 0.2 and 0.28, mean over all tokens
    "tree_po": -(1.25 + 1 - 0.8 - 1 - 0.95) / 5,
    "arpo_replay": -((1.25 + 1) / 2 + (-0.8 - 1 - 0.95) / 3) / 2,  # clip 0.2 and 0.3
    "loop": -((1.1 + 1) / 2 + (-1 / 1.1 - 1 - 0.95) / 3) / 2,  # the ratio is clipped to [1 / 1.1, 1.1]
    "gspo": -(1.0004 - 0.9997) / 2,  # both trajectories' ratios are far past the clip
    "reinforce": -(2 - 3) / 2,  # no ratio, mean over trajectories' sums
    "rloo": -(2 - 3) / 2,
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_policy_gradient_step_has_the_clip_and_the_average_of_its_recipe(name: str) -> None:
    learner = at_ratios(*RATIOS)
    metrics = step(name, learner, trajectories())
    gradient = learner.gradient
    assert metrics["loss"] == pytest.approx(LOSSES[name], abs=1e-9)
    if name in ("reinforce", "rloo"):
        assert metrics["ratio"] == pytest.approx(1)  # a mean over trajectories, though the loss is of their sums
        assert gradient == [[-0.5, -0.5], [0.5], [0.5, 0.5]]
    elif name == "gspo":
        assert gradient == [[0, 0], [0], [0, 0]]
    else:  # clipped tokens have none; others -advantage * ratio / what the average divides by
        up, down = (1 / 5, 1 / 5) if name in ("dapo", "tree_po") else (1 / 4, 1 / 6)
        past = {"dapo": 1.25, "tree_po": 1.25, "arpo_replay": 1.25}.get(name, 0.0)
        assert gradient[0] == pytest.approx([-past * up, -up])
        assert [*gradient[1], *gradient[2]] == pytest.approx([0, down, 0.95 * down])


def test_gspo_has_one_ratio_per_trajectory_the_geometric_mean_of_its_tokens() -> None:
    learner = Known([-1 + 6e-4, -1.0], [-1.0], [-1.0, -1 - 6e-4])
    loss = step("gspo", learner, trajectories())["loss"]
    up, down = exp(3e-4), exp(-2e-4)  # not past the clips of 4e-4 and 3e-4, as the products would be
    assert loss == pytest.approx(-(up - down) / 2, abs=1e-12)
    assert learner.gradient[0] == pytest.approx([-up / 4] * 2)
    assert learner.gradient[1] == pytest.approx([down / 6])


def test_the_clip_is_that_of_the_settings() -> None:
    learner = at_ratios(*RATIOS)
    words = ["--policy_gradient.clip_low=0.4", "--policy_gradient.clip_high=0.1"]
    metrics = step("grpo", learner, trajectories(), words)
    assert metrics["loss"] == pytest.approx(-((1.1 + 1) / 2 + (-0.7 - 1 - 0.95) / 3) / 2)
    assert metrics["clip_ratio/high_mean"] == pytest.approx(1 / 4) and metrics["clip_ratio/low_mean"] == 0
    assert metrics["ratio"] == pytest.approx((2.25 / 2 + 2.65 / 3) / 2)
    k3 = [r - 1 - log(r) for row in RATIOS for r in row]  # KL(old || new), a token
    assert metrics["approx_kl"] == pytest.approx((sum(k3[:2]) / 2 + sum(k3[2:]) / 3) / 2)


def test_the_kl_term_is_half_the_square_of_the_log_ratio_to_the_start() -> None:
    batch = [
        replace(item, reference=tuple(np.full(len(s.token_ids), -1.5) for s in item.samples)) for item in trajectories()
    ]
    metrics = step("grpo", Known([-1.0, -1.0], [-1.0], [-1.0, -2.0]), batch, ["--policy_gradient.kl_weight=0.4"])
    plain = step("grpo", Known([-1.0, -1.0], [-1.0], [-1.0, -2.0]), trajectories())
    assert metrics["loss"] - plain["loss"] == pytest.approx(0.4 * 0.5**2 / 2)  # each token differs by 0.5
    up, down = exp(-0.5) - 1 + 0.5, exp(0.5) - 1 - 0.5  # k3 of a token half a nat above the start's, and below
    assert metrics["kl"] == pytest.approx((up + (2 * up + down) / 3) / 2)


NAN = float("nan")


@pytest.mark.parametrize(
    ("change", "words", "message"),
    [
        ({"advantages": np.array([1.0, 1.0])}, [], r"advantages must have one entry per turn \(1\); got \[2\]"),
        ({"advantages": np.array([[1.0]])}, [], r"advantages must have one entry per turn \(1\); got \[1, 1\]"),
        ({"values": np.zeros((2, 2))}, [], r"values must have two entries per turn \(1\); got \[2, 2\]"),
        ({"samples": (sample([5], [8, 3], [-1.0]),)}, [], r"logps must .* each turn \(\[2\]\); got \[1\]"),
        ({"sampled": (np.zeros(3),)}, [], r"sampled must have one entry per token .* got \[3\]"),
        ({"reference": (np.zeros(2), np.zeros(2))}, [], r"reference must have one entry per token .* got \[2, 2\]"),
        ({}, ["--policy_gradient.kl_weight=0.1"], "reference log-probabilities for the KL term; got None"),
        ({"samples": (sample([5], [8, 3], [-1.0, NAN]),)}, [], "old log-probabilities must be finite; got nan or inf"),
    ],
)
def test_a_policy_gradient_step_refuses_arrays_that_do_not_fit(
    change: dict[str, Any], words: list[str], message: str
) -> None:
    """The rows of all items are joined, so the advantages of one would else be taken for those of the next."""
    first, second = trajectories()
    with pytest.raises(ConfigError, match=message):
        step("grpo", at_ratios(*RATIOS), [replace(first, **change), second], words)


def test_a_step_without_ratios_needs_no_old_log_probabilities() -> None:
    """REINFORCE on actions of another source, whose log-probabilities are unknown."""
    first, second = trajectories()
    unknown = replace(first, samples=(sample([5], [8, 3], [NAN, NAN]),))
    assert step("reinforce", at_ratios(*RATIOS), [unknown, second])["loss"] == pytest.approx(LOSSES["reinforce"])


def test_importance_weights_are_old_over_sampler_up_to_the_cap() -> None:
    """Each token weighs exp(old - sampled): 1 in the first trajectory, min(2, e) and 1 / e in the second."""
    first, second = trajectories()
    batch = [replace(first, sampled=(np.array([-1.0, -1.0]),))]
    batch.append(replace(second, sampled=(np.array([-2.0]), np.array([0.0, 0.0]))))
    learner = Known([-1.0, -1.0], [-1.0], [-1.0, -1.0])
    metrics = step("grpo", learner, batch, ["--policy_gradient.importance_cap=2"])
    assert metrics["loss"] == pytest.approx(-(1 - (2 + 2 / np.e) / 3) / 2)
    assert learner.gradient[2] == pytest.approx([1 / np.e / 6] * 2)
    assert metrics["importance_weight"] == pytest.approx((1 + (2 + 2 / np.e) / 3) / 2)


# Preferences and demonstrations

PAIR = PreferencePair((sample([5], [8, 3], [-1.0, -1.0]),), (sample([5], [9, 3], [-1.5, -1.5]),), 1.0)
MARGIN = 0.1 * ((-1 - -2) - (-4 - -3))  # beta times what the chosen side has gained over the rejected one


@pytest.mark.parametrize(("name", "sft"), [("agent_q", 1.0), ("outcome_dpo", 1.0), ("step_agent_implicit", 0.0)])
def test_a_preference_step_is_dpo_and_sft_on_what_was_chosen(name: str, sft: float) -> None:
    metrics = step(name, Known([-0.5, -0.5], [-2.0, -2.0]), [PAIR])
    assert metrics["loss"] == pytest.approx(log(1 + exp(-MARGIN)) + sft * 1 / 2)
    assert metrics["rewards/chosen"] == pytest.approx(0.1) and metrics["rewards/rejected"] == pytest.approx(-0.1)


def test_agent_q_replays_beside_the_pairs() -> None:
    replayed = sample([6], [7], [-1.0])
    learner = Known([-0.5, -0.5], [-2.0, -2.0], [-0.3])
    words = ["--train.beta=0.2", "--train.sft_weight=0.5"]
    metrics = step("agent_q", learner, [replayed, PAIR], words)  # pairs go first
    assert metrics["loss"] == pytest.approx((log(1 + exp(-2 * MARGIN)) + 0.5 * 1 / 2 + 0.5 * 0.3) / 2)
    pull = 0.2 / (1 + exp(2 * MARGIN)) / 2
    assert learner.gradient[0] == pytest.approx([-pull - 0.125] * 2) and learner.gradient[1] == pytest.approx(
        [pull] * 2
    )
    assert learner.gradient[2] == pytest.approx([-0.25])


@pytest.mark.parametrize("name", ["sft", "rft", "ei"])
def test_an_imitation_step_is_the_mean_over_tokens(name: str) -> None:
    learner = Known([-0.5, -0.7], [-1.5])
    assert step(name, learner, [sample([5], [8, 3]), sample([6], [3])])["loss"] == pytest.approx(2.7 / 3)
    assert learner.gradient == [pytest.approx([-1 / 3] * 2), pytest.approx([-1 / 3])]


def test_a_loss_that_returns_nothing_is_told(base: Path, tmp_path: Path) -> None:
    recipe = replace(recipe_of("sft"), loss=lambda learner, batch, settings: None)
    with pytest.raises(ConfigError, match=r"loss of recipe sft must return what Learner\.update does; got None"):
        run("sft", base, tmp_path / "run", TINY, recipe=recipe)


@pytest.mark.parametrize(("items", "got"), [(None, "None"), ([(1, 2)], r"\(1, 2\)"), (iter([]), "<list_iterator")])
def test_credit_that_returns_no_items_is_told(items: Any, got: str, base: Path, tmp_path: Path) -> None:
    recipe = replace(recipe_of("sft"), credit=lambda r: items)
    must = "credit of recipe sft must return a list of Sample, PreferencePair or CreditedTrajectory"
    with pytest.raises(ConfigError, match=f"{must}; got {got}"):
        run("sft", base, tmp_path / "run", TINY, recipe=recipe)


@pytest.mark.parametrize(
    ("found", "remedy"),
    [
        ({}, "easier tasks"),
        ({"success": 0.0, "group_collapse": 1.0}, "easier tasks"),
        ({"success": 0.5, "group_collapse": 0.9}, "easier tasks"),
        ({"success": 0.5, "group_collapse": 1.0}, r"attempts \(run\.group_size\) may differ$"),
        ({"success": 1.0, "group_collapse": 1.0}, "harder tasks give failures to compare them with$"),
    ],
)
def test_a_round_without_items_says_what_would_give_some(found: dict[str, float], remedy: str) -> None:
    assert re.search(remedy, nothing_learnt("grpo", 1, found))
