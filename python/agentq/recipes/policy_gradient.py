"""The REINFORCE family: rollout groups, advantages, a clipped policy gradient. Recipes differ in these parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Items
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from agentq.credit.advantages import group_relative
from agentq.credit.episodes import (
    Branches,
    StepColumns,
    Turns,
    credited,
    credited_branches,
    credited_forest,
    step_columns,
    whole,
)
from agentq.errors import ConfigError
from agentq.learn.batch import Part
from agentq.learn.learner import Learner, Metrics
from agentq.learn.losses import weighted_mean
from agentq.learn.policy_gradient_loss import (
    averaging,
    kl_estimate,
    policy_gradient_loss,
    truncated_importance_weights,
)
from agentq.learn.reference import reference_logps
from agentq.recipes.recipe import Recipe, Round, agrees, collect_branches, collect_groups, takes
from agentq.recipes.settings import RECIPES, Family, OnPolicy
from agentq.searching.branching import Branching
from agentq.searching.collect import StragglerCut
from agentq.types import CreditedTrajectory, Trajectory

Ddof = int | None  # 1 with `policy_gradient.divide_by_std`, else None; as in `group_relative`
Advantages = Callable[[StepColumns, Ddof], np.ndarray]
Loss = Callable[[Learner, list[CreditedTrajectory], OnPolicy], Metrics]
Beside = Callable[[Learner, list[CreditedTrajectory]], Callable[[Part], tuple[Tensor, Mapping[str, Tensor]]]]


def per_trajectory(estimate: Callable[..., np.ndarray]) -> Advantages:
    """Advantages per step: each trajectory's `estimate(returns, groups, ddof=ddof)`, repeated for its steps."""
    return lambda columns, ddof: estimate(columns.returns, columns.group_of, ddof=ddof)[columns.trajectory]


GRPO = per_trajectory(group_relative)


def recipe(
    name: str,
    settings: type[Family] | None = None,
    *,
    advantages: Advantages = GRPO,
    geometric_mean: bool = False,
    drop_below: float = 0.0,
    cut: StragglerCut | None = None,
    collect: Callable[[Round[Family]], None] | None = None,
    of: Callable[[Round[Family], list[Trajectory]], list[Trajectory]] | None = None,
) -> Recipe[Family]:
    """A recipe over rollout groups of `run.group_size`. Items, and so batches, consist of trajectories.

    Args:
        settings: by default those of the built-in recipe `name`.
        advantages: computes `[S]`, one per step, from the round's columns; by default as in GRPO.
        geometric_mean: as in `policy_gradient_loss`.
        drop_below: trajectories are dropped if all their advantages are at most this, as in `credited`.
        cut: when to stop waiting for stragglers; None: never.
        collect: by default `collect_groups`.
        of: which of the round's episodes get credit; by default all.

    Raises:
        ConfigError: if a recipe of another name has no settings, or as `Recipe`.
    """
    takes(f"advantages of recipe {name}", advantages, "columns", "ddof")
    if settings is None and name not in RECIPES:
        raise ConfigError(f"recipe {name} must have settings, a subclass of PolicyGradient; got none")

    def credit(r: Round[Family]) -> list[CreditedTrajectory]:
        episodes = waited_for(r, cut) if of is None else of(r, waited_for(r, cut))
        own = advantages(step_columns(episodes), ddof(r))
        return prepared(r, credited(episodes, own, drop_below=drop_below))

    collect = collect or partial(collect_groups, cut=cut)
    return Recipe(name, settings or RECIPES[name], collect, credit, policy_gradient(geometric_mean=geometric_mean))


def branch_recipe(
    name: str, initial: Callable[[int], int], branching: Branching, advantages: Callable[..., np.ndarray]
) -> Recipe[Family]:
    """A recipe over rollouts that branch off from `initial(run.group_size)` others; see `credited_branches`."""

    def collect(r: Round[Family]) -> None:
        collect_branches(r, initial(r.settings.run.group_size), branching)

    def credit(r: Round[Family]) -> list[CreditedTrajectory]:
        trees = list(r.store.trees(r.stage))
        return prepared(r, credited_branches(trees, partial(advantages, ddof=ddof(r))))

    return Recipe(name, RECIPES[name], collect, credit, policy_gradient())


def forest_recipe(
    name: str,
    initial: Callable[[int], int],
    branching: Branching,
    advantages: Callable[[Branches], Items[np.ndarray]],
) -> Recipe[OnPolicy]:
    """As `branch_recipe`, with credit by the nodes of the trees; see `credited_forest`."""

    def collect(r: Round[Any]) -> None:
        collect_branches(r, initial(r.settings.run.group_size), branching)

    def credit(r: Round[OnPolicy]) -> list[CreditedTrajectory]:
        return prepared(r, credited_forest(list(r.store.trees(r.stage)), advantages))

    return Recipe(name, RECIPES[name], collect, credit, policy_gradient())


def ddof(r: Round[Family]) -> Ddof:
    """The `ddof` of advantage estimates, from the settings."""
    return 1 if r.settings.policy_gradient.divide_by_std else None


def waited_for(r: Round[Family], cut: StragglerCut | None) -> list[Trajectory]:
    """The round's whole episodes that the straggler cut keeps."""
    episodes = list(r.store.trajectories(r.stage))
    if cut is None:
        return whole(episodes)
    found = Turns((t.task.seed for t in episodes), episodes)
    turns = found.waited_for(attempts=r.settings.run.group_size, of_all=cut.of_all, of_task=cut.of_task)
    return [t for t in whole(episodes) if len(t.steps) <= turns]


def prepared(r: Round[OnPolicy], items: list[CreditedTrajectory]) -> list[CreditedTrajectory]:
    """The items after `old_logps` and `with_reference`."""
    return with_reference(r, old_logps(r, items))


def old_logps(r: Round[OnPolicy], items: list[CreditedTrajectory]) -> list[CreditedTrajectory]:
    """The items with old log-probabilities by the learner, so the ratio is 1 before the first step. The sampler's are
    kept if they agree with the learner's."""
    return items if agrees(r, r.settings.train.logp_tolerance) else with_old_logps(r.learner, items)


def with_old_logps(learner: Learner, items: list[CreditedTrajectory]) -> list[CreditedTrajectory]:
    """The items with log-probabilities under the learner's current weights. `sampled` keeps the sampler's."""
    flat = iter(learner.recompute_logps([sample for item in items for sample in item.samples]))
    return [
        replace(item, samples=tuple(next(flat) for _ in item.samples), sampled=tuple(s.logps for s in item.samples))
        for item in items
    ]


def with_reference(r: Round[OnPolicy], items: list[CreditedTrajectory]) -> list[CreditedTrajectory]:
    """The items with log-probabilities under the weights at the run's start, if `policy_gradient.kl_weight` > 0."""
    if not r.settings.policy_gradient.kl_weight:
        return items
    samples = [sample for item in items for sample in item.samples]
    flat = iter(reference_logps(r.learner, r.start, samples))
    return [replace(item, reference=tuple(next(flat) for _ in item.samples)) for item in items]


def policy_gradient(*, geometric_mean: bool = False, beside: Beside | None = None) -> Loss:
    """The `loss` part of a recipe, configured by the section `policy_gradient` of the settings.

        policy gradient loss + kl_weight * KL(pi || start of the run) + beside

    The KL term is the k2 estimate, whose gradient is that of the KL. Metrics beside those of `Learner.update`: ratio;
    clip_ratio/low_mean and /high_mean, the shares of tokens past a bound; approx_kl, the k3 estimate of KL(old || new)
    per token; with kl_weight, kl, the k3 estimate of KL(pi || start); with importance_cap, importance_weight.

    Args:
        geometric_mean: as in `policy_gradient_loss`.
        beside: makes the loss of a head for the parts of a batch, if all its items have `values`.

    The step raises ConfigError if an item's arrays do not have one entry per turn and one per token.
    """

    def step(learner: Learner, batch: list[CreditedTrajectory], settings: OnPolicy) -> Metrics:
        c = settings.policy_gradient
        _check(batch, with_ratio=c.ratio != "none", with_reference=c.kl_weight > 0)
        rows = _Rows(batch)
        weights, normalizer = averaging(rows.lengths, c.average, trajectories=rows.trajectory)
        mass = float((weights * rows.lengths).sum()) / normalizer  # 1, except for "constant", whose loss is a sum
        of_head = beside(learner, batch) if beside and all(item.values is not None for item in batch) else None

        def loss(part: Part, logps: Tensor) -> tuple[Tensor, Mapping[str, Tensor]]:
            at, taken = rows.of(part)
            lp, mask, old = logps[taken], part.action_mask[taken], _padded(rows.old, at, logps)
            own, importance = weights[at].to(lp.device), None
            if c.importance_cap:
                importance = truncated_importance_weights(
                    old, _padded(rows.sampled, at, logps), mask, cap=c.importance_cap
                )

            def mean(values: Tensor) -> Tensor:
                return weighted_mean(values, mask, weights=own, normalizer=normalizer)

            out = policy_gradient_loss(
                lp,
                None if c.ratio == "none" else old,
                rows.advantages[at].to(lp.device),
                mask,
                ratio="token" if c.ratio == "none" else c.ratio,
                geometric_mean=geometric_mean,
                trajectories=rows.trajectory[at].to(lp.device),
                clip=(c.clip_low, c.clip_high),
                importance_weights=importance,
                weights=own,
                normalizer=normalizer,
            )
            shares = {"clip_ratio/low_mean": out.clip_low, "clip_ratio/high_mean": out.clip_high}
            metrics = {"ratio": out.ratio, **shares, "approx_kl": mean(kl_estimate(old, lp.detach(), "k3"))}
            if importance is not None:
                metrics["importance_weight"] = mean(importance)
            value = out.loss
            if c.kl_weight:
                start = _padded(rows.reference, at, logps)
                metrics["kl"] = mean(kl_estimate(lp.detach(), start, "k3"))
                value = value + c.kl_weight * mean(kl_estimate(lp, start, "k2"))
            metrics = {name: figure / mass for name, figure in metrics.items()}
            if of_head is None:
                return value, metrics
            extra, more = of_head(part)
            return value + extra, {**metrics, **more}

        return learner.update([item.samples for item in batch], loss)

    return step


def _check(batch: list[CreditedTrajectory], *, with_ratio: bool, with_reference: bool) -> None:
    """Raises ConfigError unless every turn has an advantage, and every token the log-probabilities that are read.

    Rows of all items are joined, so one entry too many or too few would credit the turns of others.
    """
    for item in batch:
        n = len(item.samples)
        if np.shape(item.advantages) != (n,):
            raise ConfigError(f"advantages must have one entry per turn ({n}); got {list(np.shape(item.advantages))}")
        if item.values is not None and np.shape(item.values) != (n, 2):
            raise ConfigError(f"values must have two entries per turn ({n}); got {list(np.shape(item.values))}")
        if with_reference and item.reference is None:
            raise ConfigError("a trajectory must have reference log-probabilities for the KL term; got None")
        old = [sample.logps for sample in item.samples]
        wanted = [len(sample.token_ids) for sample in item.samples]
        for name, told in (("logps", old), ("sampled", item.sampled or old), ("reference", item.reference or old)):
            lengths = [len(logps) for logps in told]
            if lengths != wanted:
                raise ConfigError(f"{name} must have one entry per token of each turn ({wanted}); got {lengths}")
        if with_ratio and not all(np.isfinite(logps).all() for logps in old):
            raise ConfigError(
                "old log-probabilities must be finite; got nan or inf: Learner.recompute_logps computes them"
            )


class _Rows:
    """The turns of a batch as rows. A turn that occurs twice has two rows here, but one in the learner's batch."""

    def __init__(self, batch: list[CreditedTrajectory]) -> None:
        turns = [(i, sample) for i, item in enumerate(batch) for sample in item.samples]
        self.samples = [sample for _, sample in turns]
        self.first = np.cumsum([0, *(len(item.samples) for item in batch)])
        self.trajectory = torch.tensor([i for i, _ in turns])
        self.lengths = torch.tensor([len(sample.token_ids) for sample in self.samples])
        self.advantages = torch.from_numpy(np.concatenate([item.advantages for item in batch]))
        self.old = [sample.logps for sample in self.samples]
        self.sampled = [a for item in batch for a in item.sampled or [s.logps for s in item.samples]]
        self.reference = [logps for item in batch for logps in item.reference or ()]

    def of(self, part: Part) -> tuple[list[int], list[int]]:
        """Rows here and rows in the part's tensors, for each turn of the part's items."""
        at = [int(self.first[i]) + t for i, own in zip(part.items, part.samples, strict=True) for t in range(len(own))]
        return at, [row for own in part.samples for row in own]


def _padded(rows: list[np.ndarray], at: list[int], like: Tensor) -> Tensor:
    """`[len(at), T]` log-probabilities of the rows `at`, 0 after a row's end."""
    padded = np.zeros((len(at), like.shape[1]), dtype=np.float64)
    for row, i in zip(padded, at, strict=True):
        row[: len(rows[i])] = rows[i]
    return torch.from_numpy(padded).to(like)
