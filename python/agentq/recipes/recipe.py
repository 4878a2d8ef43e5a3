"""What a recipe is: a name for four parts, collect, credit, loss and defaults. Owns no loop; `rounds` runs them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentq.config import Config
from agentq.errors import ConfigError
from agentq.learn.learner import Learner, Metrics
from agentq.recipes.pipeline import Pipeline
from agentq.searching.branching import Branching
from agentq.searching.collect import StragglerCut
from agentq.seeds import derive_seed
from agentq.store.run import RunStore
from agentq.types import Split, Task


@dataclass(frozen=True, slots=True)
class Round:
    """One round of a recipe's run: what its parts read. `policy` names the present weights to the pipeline.

    `agreed`: the sampler's log-probabilities are near enough to the learner's to be the old ones, see `agrees`.
    """

    pipeline: Pipeline
    recipe: str
    number: int  # from 1
    policy: Path
    learner: Learner
    agreed: bool = False

    @property
    def config(self) -> Config:
        return self.pipeline.config

    @property
    def store(self) -> RunStore:
        return self.pipeline.store

    @property
    def stage(self) -> str:
        """Where the round's data lie in the store."""
        return stage_of(self.recipe, self.number)

    @property
    def seed(self) -> int:
        """What the round's samples are drawn by: with the same tasks again, others than before."""
        return derive_seed(self.config.run.seed, self.number)

    def tasks(self, *, again: bool = False, up_to: int = 1) -> list[Task]:
        """Training tasks of this round: new ones each round, or with `again` the first round's.

        `up_to` times `run.num_tasks` is what the round may take at most; so many are returned.
        """
        n = self.config.run.num_tasks * up_to
        return self.pipeline.tasks(Split.TRAIN, n, 0 if again else (self.number - 1) * n)


@dataclass(frozen=True, slots=True)
class Recipe:
    """A method. Each part is a plain function; what the learner does with them is the same for all.

    Attributes:
        name: the word on the command line, and of its stages and checkpoint.
        collect: fills the round's stage of the store; what is there already is not collected again.
        credit: training items out of what the store holds.
        loss: one optimiser step on a batch of them.
        defaults: settings that differ from the defaults of `config.py`, as command-line words.
        on_policy: actions must be sampled from the very density that is trained, that is at temperature 1.
        min_group: rollouts of a task that the credit needs at least, to compare them.
        reads: settings that the parts read, keys and whole sections; others are refused on the command line. None: not
            known, so that any is taken. Those of the built-in recipes are in `presets`.
    """

    name: str
    collect: Callable[[Round], None]
    credit: Callable[[Round], list[Any]]
    loss: Callable[[Learner, list[Any], Config], Metrics]
    defaults: tuple[str, ...] = ()
    on_policy: bool = False
    min_group: int = 1
    reads: tuple[str, ...] | None = None

    def check(self, config: Config) -> None:
        """Raises ConfigError if the recipe cannot work with these settings."""
        if self.on_policy and config.search.temperature != 1:
            raise ConfigError(
                f"search.temperature must be 1 for {self.name}, whose ratios are of the policy at temperature 1; "
                f"got {config.search.temperature}"
            )
        if self.on_policy and config.run.constrained:
            raise ConfigError(f"run.constrained must be false for {self.name}, whose ratios are of the free policy")
        if self.min_group > 1 and config.run.group_size < self.min_group:
            raise ConfigError(
                f"run.group_size must be at least {self.min_group} for {self.name}, which compares rollouts of a task; "
                f"got {config.run.group_size}"
            )
        if not self.on_policy or config.policy_gradient.ratio != "none":
            return
        most, t = config.run.num_tasks * config.run.group_size, config.train
        if t.epochs > 1 or t.batch_size < most:  # no ratio: the data serve for one step only
            raise ConfigError(
                f"train.epochs must be 1 and train.batch_size at least run.num_tasks * run.group_size ({most}) for "
                f"{self.name}, which is strictly on-policy; got {t.epochs} and {t.batch_size}"
            )


def stage_of(recipe: str, number: int) -> str:
    """Name of the stage that a round's data lie in."""
    return f"{recipe}/round{number}/collect"


def rollout_groups(cut: StragglerCut | None = None, *, again: bool = False) -> Callable[[Round], None]:
    """Collect `run.group_size` rollouts of each of the round's tasks; `again`: of the same tasks every round."""

    def collect(r: Round) -> None:
        size, temperature = r.config.run.group_size, r.config.search.temperature
        tasks = r.tasks(again=again)
        r.pipeline.rollouts(r.stage, r.policy, tasks, attempts=size, temperature=temperature, cut=cut, seed=r.seed)

    return collect


def search_trees(r: Round) -> None:
    """Collect one search tree of each of the round's tasks, with the critic."""
    iterations = r.config.search.num_iterations
    r.pipeline.search(r.stage, r.policy, r.tasks(), iterations=iterations, critic=True)


def demonstrations(r: Round) -> None:
    """Collect the scripted expert's episode of each of the round's tasks."""
    r.pipeline.demonstrations(r.stage, r.policy, r.tasks())


def inspections(r: Round) -> None:
    """Collect what the policy does at each state of the expert, on the same tasks every round."""
    temperature = r.config.search.temperature
    r.pipeline.inspections(r.stage, r.policy, r.tasks(again=True), temperature=temperature, seed=r.seed)


def branched_rollouts(branching: Branching, initial: Callable[[int], int]) -> Callable[[Round], None]:
    """Collect `run.group_size` rollouts of each task, of which `initial(group_size)` start at the root."""

    def collect(r: Round) -> None:
        size, temperature = r.config.run.group_size, r.config.search.temperature
        r.pipeline.branched(
            *(r.stage, r.policy, r.tasks()),
            initial=initial(size),
            total=size,
            branching=branching,
            temperature=temperature,
            seed=r.seed,
        )

    return collect
