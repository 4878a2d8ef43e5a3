"""Recipes: a name, settings, and the functions collect, credit and loss. `recipes.rounds` runs them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import numpy as np
from pydantic import BaseModel

from agentq.credit.samples import sample_of
from agentq.errors import ConfigError
from agentq.policies.agreement import agreement
from agentq.recipes.pipeline import Pipeline
from agentq.recipes.resources import branches, demonstrations, episodes, inspections
from agentq.recipes.settings import Training
from agentq.searching.branching import Branching
from agentq.searching.collect import StragglerCut, attempts
from agentq.searching.rollout import RolloutSettings
from agentq.seeds import derive_seed
from agentq.store.run import TRAJECTORY, TREE, RunStore
from agentq.types import Split, Task

if TYPE_CHECKING:
    from agentq.learn.learner import Learner, Metrics

PROBE = 32  # number of sampled actions compared per round
S = TypeVar("S", bound=Training)
T = TypeVar("T")
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

        Returns `up_to` times `run.num_tasks` tasks; a round may use fewer of them.
        """
        run = self.settings.run
        n = run.num_tasks * up_to
        return self.pipeline.tasks(Split.TRAIN, n, run.first_task + (0 if again else (self.number - 1) * n))


@dataclass(frozen=True, slots=True)
class Recipe(Generic[S]):
    """A training method, made of plain functions. The training loop is the same for all.

    Attributes:
        name: names the recipe on the command line, its stages and its checkpoint. Letters, digits, spaces and _ - .;
            not "base", which names the stages of the base model.
        settings: a subclass of `Training` whose fields are exactly the settings that the functions read.
        collect: fills the round's stage in the store; finished items are not collected again.
        credit: makes training items from the store.
        loss: takes one optimiser step on a batch of items.
        source: the file or entry point by which other processes find it; empty for a recipe of agentq.

    Raises:
        ConfigError: if the name, the settings or a function is not as described.
    """

    name: str
    settings: type[S]
    collect: Callable[[Round[S]], None]
    credit: Callable[[Round[S]], list[Any]]
    loss: Callable[[Learner, list[Any], S], Metrics]
    source: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not re.fullmatch(r"\w[\w .-]*", self.name) or self.name == "base":
            raise ConfigError(
                "a recipe's name must have only letters, digits, spaces and _ - . and not be base, the name of the "
                f"model before training; got '{self.name}'"
            )
        if not isinstance(self.settings, type) or not issubclass(self.settings, Training):
            raise ConfigError(
                f"settings of recipe {self.name} must be a subclass of Training; got {self.settings!r:.60}"
            )
        for field, about in self.settings.model_fields.items():
            kind = about.annotation
            if not isinstance(kind, type) or not issubclass(kind, BaseModel):
                raise ConfigError(
                    f"a setting of recipe {self.name} must be in a section, a pydantic model such as train; got "
                    f"{field} outside of one: subclass a section, as examples/simpo.py does"
                )
            if not isinstance(about.default, kind):
                raise ConfigError(
                    f"section {field} of recipe {self.name} must have a default: {field}: {kind.__name__} = "
                    f"{kind.__name__}(..), with a default for each of its settings"
                )
        takes(f"collect of recipe {self.name}", self.collect, "round")
        takes(f"credit of recipe {self.name}", self.credit, "round")
        takes(f"loss of recipe {self.name}", self.loss, "learner", "batch", "settings")


def takes(what: str, function: object, *arguments: str) -> None:
    """Raises ConfigError unless `what` is a function that can be called with these arguments, in this order."""
    wanted = f"{what} must be a function ({', '.join(arguments)})"
    if not callable(function):
        raise ConfigError(f"{wanted}; got {function!r:.60}")
    try:
        signature = inspect.signature(function)
    except ValueError:  # some builtins have none
        return
    try:
        signature.bind(*arguments)
    except TypeError as error:
        raise ConfigError(f"{wanted}; got one with {signature}: {error}") from None


def stage_of(name: str, number: int, part: Literal["collect", "learn"] = "collect") -> str:
    """Name of the stage that holds a part of a round."""
    return f"{name}/round{number}/{part}"


def stages_of(name: str, number: int) -> tuple[str, str]:
    """Names of the stages of a round."""
    return stage_of(name, number), stage_of(name, number, "learn")


def sampling_of(r: Round[Training]) -> RolloutSettings:
    """How the round's episodes are sampled."""
    return RolloutSettings(r.settings.temperature, r.seed, max_unreadable=r.settings.run.max_unreadable)


def collect_rollouts(r: Round[Training], tasks: Sequence[Task], n: int, cut: StragglerCut | None = None) -> None:
    """Collect `n` rollouts per task."""
    items, sampling = attempts(tasks, n), sampling_of(r)
    job = partial(episodes, policy=r.policy, sampling=sampling)
    if cut is not None:
        job = partial(job, cut=cut, items=items, known=list(r.store.trajectories(r.stage)))
    r.pipeline.collect(r.stage, items, job)


def collect_groups(r: Round[Any], *, again: bool = False, cut: StragglerCut | None = None) -> None:
    """Collect `run.group_size` rollouts per task of the round, or of the first round with `again`."""
    collect_rollouts(r, r.tasks(again=again), _group_size(r), cut)


def collect_demonstrations(r: Round[Training]) -> None:
    """Collect one episode of the scripted expert per task of the round, in the policy's tokens."""
    r.pipeline.collect(r.stage, attempts(r.tasks()), partial(demonstrations, policy=r.policy))


def collect_inspections(r: Round[Training], *, rollout: bool = False) -> None:
    """Collect the policy's action in each state of the expert, on the same tasks every round.

    With `rollout` also an episode of the policy per task.
    """
    job = partial(inspections, policy=r.policy, sampling=sampling_of(r), rollout=rollout)
    r.pipeline.collect(r.stage, attempts(r.tasks(again=True)), job, kind=TREE)


def collect_branches(r: Round[Any], initial: int, branching: Branching) -> None:
    """Collect `run.group_size` rollouts per task. All but `initial` of them branch off from earlier ones."""
    total = _group_size(r)
    job = partial(branches, policy=r.policy, sampling=sampling_of(r), initial=initial, total=total, branching=branching)
    r.pipeline.collect(r.stage, attempts(r.tasks()), job, kind=TREE)


def _group_size(r: Round[Any]) -> int:
    """Raises ConfigError if the recipe's settings have none."""
    if not hasattr(r.settings.run, "group_size"):
        raise ConfigError(
            f"settings of recipe {r.name} must have run.group_size, the number of rollouts per task: "
            "run: Contests = Contests() with agentq.config.Contests"
        )
    return int(r.settings.run.group_size)


def agrees(r: Round[Training], tolerance: float) -> bool:
    """Whether a round's sampler and the learner, at the same weights, agree within `tolerance` on average.

    The difference is logged. False if the round has no sampled actions to compare.
    """
    episodes = (r.store.trajectory(r.stage, key) for key in _spread(sorted(r.store.keys(r.stage, TRAJECTORY))))
    trees = (r.store.tree(r.stage, int(key)) for key in _spread(sorted(r.store.keys(r.stage, TREE))))
    proposals = [step.proposal for t in episodes if t is not None for step in t.steps]
    proposals += [p for tree in trees if tree is not None for p in tree.proposal if p is not None]
    sampled = [p for p in proposals if len(p.token_ids) and np.isfinite(p.logps).all()]
    if not sampled:
        return False
    probe = [sample_of(p) for p in _spread(sampled)]
    found = agreement(probe, r.learner.recompute_logps)
    agreed = found.mean <= tolerance
    figures = {"logp_difference/mean": found.mean, "logp_difference/max": found.max, "num_tokens": found.num_tokens}
    r.store.log(f"{r.name}/agreement", r.number, **figures, recomputed=float(not agreed))
    return agreed


def _spread(items: Sequence[T]) -> list[T]:
    """PROBE of the items, or all, from the first to the last at equal distances."""
    n = len(items)
    return [items[i] for i in np.linspace(0, n - 1, min(PROBE, n)).astype(int)]
