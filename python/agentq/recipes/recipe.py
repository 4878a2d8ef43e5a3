"""Recipes: a name, settings, and the functions collect, credit and loss. `recipes.rounds` runs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from agentq.learn.learner import Learner, Metrics
from agentq.recipes.pipeline import Pipeline
from agentq.recipes.resources import branches, demonstrations, episodes, inspections
from agentq.recipes.settings import Grouped, Training
from agentq.searching.branching import Branching
from agentq.searching.collect import StragglerCut, attempts
from agentq.searching.rollout import RolloutSettings
from agentq.seeds import derive_seed
from agentq.store.run import TREE, RunStore
from agentq.types import Split, Task

S = TypeVar("S", bound=Training)
S_co = TypeVar("S_co", bound=Training, covariant=True)


@dataclass(frozen=True, slots=True)
class Round(Generic[S_co]):
    """One round of training, as a recipe's functions see it.

    Attributes:
        settings: the recipe's settings.
        name: name of the training, also of its stages and checkpoint.
        number: number of the round, from 1.
        policy: path by which the pipeline finds the engine with the current weights.
        start: the checkpoint with which the first round began.
    """

    pipeline: Pipeline
    settings: S_co
    name: str
    number: int
    policy: Path
    start: Path
    learner: Learner

    @property
    def store(self) -> RunStore:
        return self.pipeline.store

    @property
    def stage(self) -> str:
        """Name of the stage that holds the round's data in the store."""
        return stage_of(self.name, self.number)

    @property
    def seed(self) -> int:
        """Seed of the round's samples, different for each round."""
        return derive_seed(self.settings.run.seed, self.number)

    def tasks(self, *, again: bool = False, up_to: int = 1) -> list[Task]:
        """Training tasks of this round: new ones in each round, or those of the first round with `again`.

        Returns `up_to` times `run.num_tasks` tasks, of which a round may use only some.
        """
        run = self.settings.run
        n = run.num_tasks * up_to
        return self.pipeline.tasks(Split.TRAIN, n, run.first_task + (0 if again else (self.number - 1) * n))


@dataclass(frozen=True, slots=True)
class Recipe(Generic[S]):
    """A training method, made of plain functions. The training loop is the same for all.

    Attributes:
        name: the word on the command line.
        settings: a subclass of `Training` whose fields are exactly the settings that the functions read.
        collect: fills the round's stage in the store; finished items are not collected again.
        credit: makes training items from the store.
        loss: takes one optimiser step on a batch of items.
    """

    name: str
    settings: type[S]
    collect: Callable[[Round[S]], None]
    credit: Callable[[Round[S]], list[Any]]
    loss: Callable[[Learner, list[Any], S], Metrics]


def stage_of(name: str, number: int) -> str:
    """Name of the stage that holds a round's data."""
    return f"{name}/round{number}/collect"


def collect_rollouts(
    r: Round[Training], tasks: Sequence[Task], n: int, temperature: float, cut: StragglerCut | None = None
) -> None:
    """Collect `n` rollouts per task."""
    items, sampling = attempts(tasks, n), RolloutSettings(temperature=temperature, seed=r.seed)
    job = partial(episodes, policy=r.policy, sampling=sampling)
    if cut is not None:
        job = partial(job, cut=cut, items=items, known=list(r.store.trajectories(r.stage)))
    r.pipeline.collect(r.stage, items, job)


def collect_groups(r: Round[Grouped]) -> None:
    """Collect `run.group_size` rollouts per task of the round."""
    collect_rollouts(r, r.tasks(), r.settings.run.group_size, r.settings.search.temperature)


def collect_demonstrations(r: Round[Training]) -> None:
    """Collect one episode of the scripted expert per task of the round, in the policy's tokens."""
    r.pipeline.collect(r.stage, attempts(r.tasks()), partial(demonstrations, policy=r.policy))


def collect_inspections(r: Round[Training], temperature: float) -> None:
    """Collect the policy's own actions alongside the expert, on the same tasks every round."""
    sampling = RolloutSettings(temperature=temperature, seed=r.seed)
    job = partial(inspections, policy=r.policy, sampling=sampling)
    r.pipeline.collect(r.stage, attempts(r.tasks(again=True)), job, kind=TREE)


def collect_branches(r: Round[Training], initial: int, total: int, branching: Branching) -> None:
    """Collect `total` rollouts per task. All but `initial` of them branch off from earlier ones."""
    sampling = RolloutSettings(temperature=1.0, seed=r.seed)
    job = partial(branches, policy=r.policy, sampling=sampling, initial=initial, total=total, branching=branching)
    r.pipeline.collect(r.stage, attempts(r.tasks()), job, kind=TREE)
