"""The models and environments of a run, by name: what the work of a stage is made of, in any process.

Here are also the works themselves. Each is a function of `Resources` and what keeps growing trees, so that any process
can make its own; `functools.partial` binds the other arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from agentq import envs
from agentq.config import Settings
from agentq.critics.protocol import Critic
from agentq.critics.ranker import LLMRanker
from agentq.envs.protocol import SiteEnv
from agentq.policies.engine_names import make_engine, read_name
from agentq.policies.model_policy import ModelPolicy
from agentq.policies.protocol import Engine
from agentq.policies.usage import Usage
from agentq.searching.branching import Branching, branched
from agentq.searching.collect import Item, StragglerCut, Work, rollouts, trees
from agentq.searching.demonstrate import demonstrate, inspect
from agentq.searching.faults import Resets
from agentq.searching.partial import KeepsPartials
from agentq.searching.rollout import RolloutSettings
from agentq.searching.selection import SearchSettings
from agentq.store.records import TreeRecord
from agentq.types import Task, Trajectory

Name = Path | str


class Resources:
    """Engines by checkpoint or name, and the policies, critics and environments made of them."""

    def __init__(self, settings: Settings, base: Name, engines: dict[Name, Engine] | None = None) -> None:
        self.settings, self.base = settings, base
        self.engines = {} if engines is None else engines
        self.staying = {base}  # models whose engines stay loaded
        self.closed = Usage()  # of engines that are gone

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled without engines: each process loads its own."""
        return Resources, (self.settings, self.base)

    def engine(self, checkpoint: Name) -> Engine:
        """The engine of a checkpoint or name. Those of the base, critics and the latest checkpoint stay loaded."""
        if checkpoint not in self.engines:
            if checkpoint not in self.staying:
                self.close_others()
            self.engines[checkpoint] = make_engine(checkpoint)
        return self.engines[checkpoint]

    def close_others(self) -> None:
        """Close the engines of trained weights before the next ones are loaded."""
        for other in [path for path in self.engines if path not in self.staying]:
            engine = self.engines.pop(other)
            self.closed += engine.usage.since(None)
            engine.close()

    @property
    def usage(self) -> Usage:
        """Usage of all engines so far, as a copy."""
        return sum((engine.usage.since(None) for engine in set(self.engines.values())), self.closed + Usage())

    def close(self) -> None:
        """Close the engines."""
        for engine in self.engines.values():
            engine.close()

    def policy(self, checkpoint: Name) -> ModelPolicy:
        """The policy of a checkpoint."""
        return ModelPolicy(self.engine(checkpoint), constrained=self.settings.run.constrained)

    def critic(self, name: str) -> Critic | None:
        """The critic named by `search.critic`: a prompted model. In the paper, the frozen base."""
        if name == "none":
            return None
        model = self.base if name == "base" else read_name(name)
        self.staying.add(model)
        return LLMRanker(self.engine(model))

    def make_env(self) -> SiteEnv:
        """A session of the run's environment."""
        return envs.make(self.settings.run.env)


def loading(resources: Resources, _: KeepsPartials, *, names: Sequence[Name]) -> Work:
    """Loads engines, and does nothing with items."""
    for name in names:
        resources.engine(name)

    async def work(item: Item, resets: Resets) -> None:
        return None

    return work


def episodes(
    resources: Resources,
    _: KeepsPartials,
    *,
    policy: Name,
    sampling: RolloutSettings,
    cut: StragglerCut | None = None,
    items: Sequence[Item] = (),
    known: Iterable[Trajectory] = (),
) -> Work:
    """Episodes under the policy; see `searching.collect.rollouts`."""
    return rollouts(resources.make_env, resources.policy(policy), sampling, cut=cut, items=items, known=known)


def searches(
    resources: Resources,
    kept: KeepsPartials,
    *,
    policy: Name,
    critic: str,
    settings: SearchSettings,
    stage: str,
    by_steps: bool = False,
) -> Work:
    """One search tree per task; see `searching.collect.trees`."""
    ranker = resources.critic(critic)  # first, so its engine stays loaded
    return trees(
        resources.make_env, resources.policy(policy), ranker, settings, by_steps=by_steps, kept_in=(kept, stage)
    )


def branches(
    resources: Resources,
    _: KeepsPartials,
    *,
    policy: Name,
    sampling: RolloutSettings,
    initial: int,
    total: int,
    branching: Branching,
) -> Work:
    """`total` rollouts per task. All but `initial` of them branch off from earlier ones."""
    chosen = resources.policy(policy)
    return lambda item, resets: branched(
        resources.make_env(),
        item.task,
        chosen,
        sampling,
        initial=initial,
        total=total,
        branching=branching,
        resets=resets,
    )


def demonstrations(resources: Resources, _: KeepsPartials, *, policy: Name) -> Work:
    """One episode of the scripted expert per task, in the policy's tokens."""
    demonstrated = _demonstrated(resources, policy)

    async def work(item: Item, resets: Resets) -> Trajectory:
        return demonstrated(item.task, resets)

    return work


def inspections(resources: Resources, _: KeepsPartials, *, policy: Name, sampling: RolloutSettings) -> Work:
    """One demonstration per task, with the policy's own action at each of its states."""
    demonstrated, chosen = _demonstrated(resources, policy), resources.policy(policy)

    async def work(item: Item, resets: Resets) -> TreeRecord:
        return await inspect(demonstrated(item.task, resets), chosen, sampling)

    return work


def _demonstrated(resources: Resources, policy: Name) -> Callable[[Task, Resets], Trajectory]:
    chosen, expert = resources.policy(policy), envs.expert(resources.settings.run.env)

    def demonstrated(task: Task, resets: Resets) -> Trajectory:
        return demonstrate(resources.make_env(), expert, task, chosen.write, resets)

    return demonstrated
