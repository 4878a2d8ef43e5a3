"""What a recipe is: a name for four parts, settings, collect, credit and loss. Owns no loop; `rounds` runs them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from agentq import envs
from agentq.learn.learner import Learner, Metrics
from agentq.recipes.pipeline import Pipeline
from agentq.recipes.settings import Grouped, Training
from agentq.searching.branching import Branching, branched
from agentq.searching.collect import Item, StragglerCut, Work, attempts, rollouts
from agentq.searching.demonstrate import demonstrate, inspect
from agentq.searching.faults import Resets
from agentq.searching.rollout import RolloutSettings
from agentq.seeds import derive_seed
from agentq.store.records import TreeRecord
from agentq.store.run import RunStore
from agentq.types import Split, Task, Trajectory

S = TypeVar("S", bound=Training)
S_co = TypeVar("S_co", bound=Training, covariant=True)


@dataclass(frozen=True, slots=True)
class Round(Generic[S_co]):
    """One round of a run by a recipe: what its parts read.

    Attributes:
        settings: of the recipe.
        name: of the run: its stages and checkpoints have it.
        number: from 1.
        policy: names the present weights to the pipeline.
        start: the checkpoint that the first round began with.
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
        """Where the round's data lie in the store."""
        return stage_of(self.name, self.number)

    @property
    def seed(self) -> int:
        """What the round's samples are drawn by: with the same tasks again, others than before."""
        return derive_seed(self.settings.run.seed, self.number)

    def tasks(self, *, again: bool = False, up_to: int = 1) -> list[Task]:
        """Training tasks of this round: new ones each round, or with `again` the first round's.

        `up_to` times `run.num_tasks` is what the round may take at most; so many are returned.
        """
        run = self.settings.run
        n = run.num_tasks * up_to
        return self.pipeline.tasks(Split.TRAIN, n, run.first_task + (0 if again else (self.number - 1) * n))


@dataclass(frozen=True, slots=True)
class Recipe(Generic[S]):
    """A method. Each part is a plain function; what the learner does with them is the same for all.

    Attributes:
        name: the word on the command line.
        settings: a subclass of `Training`, whose fields are what the parts read; others are refused.
        collect: fills the round's stage of the store; what is there already is not collected again.
        credit: training items out of what the store holds.
        loss: one optimiser step on a batch of them.
    """

    name: str
    settings: type[S]
    collect: Callable[[Round[S]], None]
    credit: Callable[[Round[S]], list[Any]]
    loss: Callable[[Learner, list[Any], S], Metrics]


def stage_of(name: str, number: int) -> str:
    """Name of the stage that a round's data lie in."""
    return f"{name}/round{number}/collect"


def collect_rollouts(
    r: Round[Training], tasks: Sequence[Task], n: int, temperature: float, cut: StragglerCut | None = None
) -> None:
    """Collect `n` rollouts of each task."""
    p, items, sampling = r.pipeline, attempts(tasks, n), RolloutSettings(temperature=temperature, seed=r.seed)

    def begin() -> Work:
        known = list(r.store.trajectories(r.stage)) if cut else ()
        return rollouts(p.make_env, p.policy(r.policy), sampling, cut=cut, items=items, known=known)

    p.collect(r.stage, items, begin, unit="episodes")


def collect_groups(r: Round[Grouped]) -> None:
    """Collect `run.group_size` rollouts of each of the round's tasks."""
    collect_rollouts(r, r.tasks(), r.settings.run.group_size, r.settings.search.temperature)


def collect_demonstrations(r: Round[Training]) -> None:
    """Collect the scripted expert's episode of each of the round's tasks, in the policy's tokens."""

    def begin() -> Work:
        demonstrated = _demonstrations(r)

        async def work(item: Item, resets: Resets) -> Trajectory:
            return demonstrated(item.task, resets)

        return work

    r.pipeline.collect(r.stage, attempts(r.tasks()), begin, unit="episodes")


def collect_inspections(r: Round[Training], temperature: float) -> None:
    """Collect what the policy does at each state of the expert, on the same tasks every round."""
    sampling = RolloutSettings(temperature=temperature, seed=r.seed)

    def begin() -> Work:
        demonstrated, policy = _demonstrations(r), r.pipeline.policy(r.policy)

        def work(item: Item, resets: Resets) -> Awaitable[TreeRecord]:
            return inspect(demonstrated(item.task, resets), policy, sampling)

        return work

    r.pipeline.collect(r.stage, attempts(r.tasks(again=True)), begin, unit="tasks")


def _demonstrations(r: Round[Training]) -> Callable[[Task, Resets], Trajectory]:
    p = r.pipeline
    policy, env = p.policy(r.policy), r.settings.run.env
    return lambda task, resets: demonstrate(p.make_env(), envs.expert(env), task, policy.write, resets)


def collect_branches(r: Round[Training], initial: int, total: int, branching: Branching) -> None:
    """Collect `total` rollouts of each task, all but `initial` of which go on from the middle of others."""
    p, sampling = r.pipeline, RolloutSettings(temperature=1.0, seed=r.seed)

    def begin() -> Work:
        policy = p.policy(r.policy)
        return lambda item, resets: branched(
            p.make_env(),
            item.task,
            policy,
            sampling,
            initial=initial,
            total=total,
            branching=branching,
            resets=resets,
        )

    p.collect(r.stage, attempts(r.tasks()), begin, unit="trees")
