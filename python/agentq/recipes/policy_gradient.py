"""The family of REINFORCE: rollout groups, advantages, a clipped policy gradient. Its members differ in named parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from agentq.config import Config
from agentq.credit.episodes import StepColumns, credited, step_columns, turns_waited_for
from agentq.learn.batch import Part
from agentq.learn.learner import Learner, Metrics
from agentq.learn.losses import weighted_mean
from agentq.learn.policy_gradient import Level, averaging, kl_estimate, policy_gradient_loss
from agentq.recipes.recipe import Recipe, Round, rollout_groups
from agentq.search.collect import StragglerCut
from agentq.types import CreditedTrajectory, Trajectory

Advantages = Callable[[StepColumns], np.ndarray]
Averaging = Literal["token", "sequence", "constant"]


def recipe(
    name: str,
    *,
    advantages: Advantages,
    ratio: Level | None = "token",
    geometric_mean: bool = False,
    clip: tuple[float, float] | None = None,
    average: Averaging = "sequence",
    constant: float = 1.0,
    drop_below: float = 0.0,
    cut: StragglerCut | None = None,
    defaults: tuple[str, ...] = (),
    min_group: int = 2,
) -> Recipe:
    """A recipe over rollout groups of `run.group_size`; one item is a trajectory, an update's batch is of those.

    Args:
        advantages: `[S]` one a step, from the round's columns.
        ratio: what shares a ratio, as in `policy_gradient_loss`; None: strictly on-policy, no ratio.
        geometric_mean, clip: as in `policy_gradient_loss`.
        average, constant: as in `averaging`, over the trajectories of the step.
        drop_below: trajectories whose advantages are all at most this are dropped, as in `credited`.
        cut: stragglers that are not waited for.
        defaults: settings, as in `Recipe`.
    """

    def credit(r: Round) -> list[CreditedTrajectory]:
        return credit_groups(r, waited_for(r, cut), advantages, drop_below=drop_below)

    loss = policy_gradient(ratio=ratio, geometric_mean=geometric_mean, clip=clip, average=average, constant=constant)
    words = ("--search.temperature=1", *defaults)
    return Recipe(
        name, rollout_groups(cut), credit, loss, words, on_policy=True, min_group=min_group, one_step=ratio is None
    )


def per_trajectory(estimate: Callable[[ArrayLike, ArrayLike], np.ndarray]) -> Advantages:
    """An estimate from `[N]` returns and groups, given to every step of the trajectory."""
    return lambda columns: estimate(columns.returns, columns.group_of)[columns.trajectory]


def waited_for(r: Round, cut: StragglerCut | None) -> list[Trajectory]:
    """The round's episodes that the straggler cut keeps, by task."""
    episodes = list(r.store.trajectories(r.stage))
    if cut is None:
        return episodes
    lengths: dict[int, list[int]] = {}
    for t in episodes:
        lengths.setdefault(t.task.seed, []).append(len(t.steps))
    size = r.config.run.group_size
    turns = turns_waited_for(lengths, attempts=size, of_all=cut.of_all, of_task=cut.of_task)
    return [t for t in episodes if len(t.steps) <= turns]


def credit_groups(
    r: Round, episodes: list[Trajectory], advantages: Advantages, *, drop_below: float = 0.0
) -> list[CreditedTrajectory]:
    """Episodes with their advantages, old log-probabilities by the learner: the ratio is 1 before the first step."""
    return with_old_logps(r.learner, credited(episodes, advantages(step_columns(episodes)), drop_below=drop_below))


def with_old_logps(learner: Learner, items: list[CreditedTrajectory]) -> list[CreditedTrajectory]:
    """The items with log-probabilities under the learner's present weights, instead of the sampler's."""
    flat = iter(learner.recompute_logps([sample for item in items for sample in item.samples]))
    return [
        CreditedTrajectory(tuple(next(flat) for _ in item.samples), item.advantages, item.reference) for item in items
    ]


def policy_gradient(
    *,
    ratio: Level | None,
    geometric_mean: bool = False,
    clip: tuple[float, float] | None = None,
    average: Averaging = "sequence",
    constant: float = 1.0,
) -> Callable[[Learner, list[CreditedTrajectory], Config], Metrics]:
    """The `loss` part of a recipe; arguments as in `recipe`.

    Besides what `Learner.update` reports: ratio, clip_fraction, and kl, the k3 estimate of KL(old || new) a token.
    """

    def step(learner: Learner, batch: list[CreditedTrajectory], config: Config) -> Metrics:
        rows = _Rows(batch)
        weights, normalizer = averaging(rows.lengths, average, trajectories=rows.trajectory, constant=constant)

        def loss(part: Part, logps: Tensor) -> tuple[Tensor, Mapping[str, Tensor]]:
            at, taken = rows.of(part)
            lp, mask, old = logps[taken], part.action_mask[taken], rows.old(at, logps)
            own = weights[at].to(lp.device)
            out = policy_gradient_loss(
                lp,
                None if ratio is None else old,
                rows.advantages[at].to(lp.device),
                mask,
                ratio=ratio or "token",
                geometric_mean=geometric_mean,
                trajectories=rows.trajectory[at].to(lp.device),
                clip=clip,
                weights=own,
                normalizer=normalizer,
            )
            kl = weighted_mean(kl_estimate(old, lp.detach(), "k3"), mask, weights=own, normalizer=normalizer)
            return out.loss, {"ratio": out.ratio, "clip_fraction": out.clip_low + out.clip_high, "kl": kl}

        return learner.update([item.samples for item in batch], loss)

    return step


class _Rows:
    """The turns of a batch as rows: a turn that occurs twice is two rows here, and one in the learner's batch."""

    def __init__(self, batch: list[CreditedTrajectory]) -> None:
        turns = [(i, sample) for i, item in enumerate(batch) for sample in item.samples]
        self.samples = [sample for _, sample in turns]
        self.first = np.cumsum([0, *(len(item.samples) for item in batch)])
        self.trajectory = torch.tensor([i for i, _ in turns])
        self.lengths = torch.tensor([len(sample.token_ids) for sample in self.samples])
        self.advantages = torch.from_numpy(np.concatenate([item.advantages for item in batch]))

    def of(self, part: Part) -> tuple[list[int], list[int]]:
        """(row here, row of the part's tensors) of each turn of the part's items."""
        at = [int(self.first[i]) + t for i, own in zip(part.items, part.samples, strict=True) for t in range(len(own))]
        return at, [row for own in part.samples for row in own]

    def old(self, at: list[int], like: Tensor) -> Tensor:
        """`[len(at), T]` old log-probabilities, 0 behind a row's end."""
        padded = np.zeros((len(at), like.shape[1]), dtype=np.float64)
        for row, i in enumerate(at):
            padded[row, : len(self.samples[i].logps)] = self.samples[i].logps
        return torch.from_numpy(padded).to(like)
