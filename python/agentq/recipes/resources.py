"""The models and environments of a run, by name: what the work of a stage is made of, in any process.

Here are also the works themselves. Each is a function of `Resources` and what keeps growing trees, so that any process
can make its own; `functools.partial` binds the other arguments.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from agentq import envs
from agentq.config import Settings, Train
from agentq.critics.judge import OutcomeJudge
from agentq.critics.ranker import LLMRanker
from agentq.envs.calls import session
from agentq.envs.protocol import SiteEnv
from agentq.errors import ConfigError
from agentq.model_settings import CriticSettings
from agentq.policies.engine_names import check_same, make_engine, read_name, sampler_name
from agentq.policies.model_policy import ModelPolicy
from agentq.policies.protocol import Engine, Gives
from agentq.policies.unadapted import Unadapted
from agentq.policies.usage import Usage
from agentq.policies.weights import adapter_of, is_adapter
from agentq.recipes.prompted import policy_of
from agentq.searching.branching import Branching, branched
from agentq.searching.choices import by_majority, by_score
from agentq.searching.collect import Item, StragglerCut, Work, choices, rollouts, trees
from agentq.searching.demonstrate import demonstrate, inspect, with_rollout
from agentq.searching.faults import Resets
from agentq.searching.partial import KeepsPartials
from agentq.searching.rollout import RolloutSettings
from agentq.searching.rollout import rollout as roll_out
from agentq.searching.selection import SearchSettings
from agentq.store.records import TreeRecord
from agentq.types import Task, Trajectory

Name = Path | str
SAMPLER = "run.engine"  # the key of its engine, which no model is named like


class Resources:
    """Engines by checkpoint or name, and the policies, critics and environments made of them.

    If `run.engine` is set, that engine samples for every trained checkpoint, whose weights are published to it. With
    adapters (`train.lora_rank`) one engine serves the base, the critic that is the base, and every trained checkpoint,
    by the adapter beside it (`adapter_of`).
    """

    def __init__(self, settings: Settings, base: Name, engines: dict[Name, Engine] | None = None) -> None:
        self.settings, self.base = settings, base
        self.engines = {} if engines is None else engines
        self.staying = {base}  # models whose engines stay loaded
        self.serving: Name | None = None  # the checkpoint published to the sampler
        self.closed = Usage()  # of engines that are gone

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled without engines: each process loads its own."""
        return Resources, (self.settings, self.base)

    @property
    def shares(self) -> bool:
        """Whether the base and everything trained from it are one engine: the base's, with adapters."""
        return self.settings.train.lora_rank > 0 and isinstance(self.base, Path)

    def engine(self, checkpoint: Name) -> Engine:
        """The engine of a checkpoint or name. Those of the base, critics and the latest checkpoint stay loaded."""
        if self.shares and checkpoint == self.base and Gives.BASE in self.sampler().gives:
            return Unadapted(self.sampler())
        adapter = _adapter_for(checkpoint) if self.shares else None
        if adapter is not None or (self.settings.run.engine and self._trained(checkpoint)):
            assert isinstance(checkpoint, Path)
            if checkpoint != self.serving:
                self.sampler().publish(adapter or checkpoint)
                self.serving = checkpoint
            return self.sampler()
        if checkpoint not in self.engines:
            if checkpoint not in self.staying:
                self.close_others()
            self.engines[checkpoint] = self._make(checkpoint)
        return self.engines[checkpoint]

    def publish(self, checkpoint: Name) -> None:
        """Publish a trained checkpoint to the servers of `run.engine`, where other processes then find it."""
        served = self.settings.run.engine
        if served and not served.startswith("vllm:") and self._trained(checkpoint):
            self.engine(checkpoint)

    def _trained(self, checkpoint: Name) -> bool:
        return isinstance(checkpoint, Path) and checkpoint not in self.staying

    def sampler(self) -> Engine:
        """The engine to which trained weights are published: that of `run.engine`, or the base's, with adapters.

        Raises:
            ConfigError: if the engine does not return token ids and log-probabilities, or starts with other weights
                than those that the adapters are made for.
        """
        served = self.settings.run.engine
        key = SAMPLER if served else self.base
        if key not in self.engines:
            name = sampler_name(served) if served else self.base
            if self.shares and isinstance(name, str):
                check_same(self.base, name)
            engine = self._make(name, self.settings.train.lora_rank, trained=True)
            if served and Gives.TOKEN_IDS | Gives.LOGPS not in engine.gives:
                engine.close()
                raise ConfigError(f"run.engine must return token ids and log-probabilities; got text alone from {name}")
            self.engines[key] = engine
        self.staying.add(key)
        return self.engines[key]

    def _make(self, name: Name, lora_rank: int = 0, *, trained: bool = False) -> Engine:
        """`trained`: its samples go to a learner, so they must fit the learner's context."""
        model, most, reserved, arguments = self.settings.model, 0, 0, dict(self.settings.vllm)
        if trained and isinstance(name, str) and isinstance(self.settings.train, Train) and isinstance(self.base, Path):
            from agentq.policies.head import context_at  # needs torch

            most = context_at(self.base)
        if str(name).startswith("vllm:"):
            from agentq.recipes.memory import learner_bytes  # needs torch

            reserved = learner_bytes(self.settings, self.base)
        elif most:
            model = model.model_copy(update={"context": min(model.context or most, most)})
        engine = make_engine(name, model, arguments, lora_rank=lora_rank, reserved_bytes=reserved)
        renderer: Any = getattr(engine, "renderer", None)
        if most and renderer is not None:  # of a vLLM: its own limit may not be longer than it takes
            renderer.context_tokens = min(renderer.context_tokens, most)
        return engine

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

    def computed(self) -> dict[Engine, float]:
        """The seconds that each loaded engine has computed."""
        return {engine: engine.usage.seconds for engine in self.engines.values()}

    def num_computing(self, then: dict[Engine, float], workers: object) -> int:
        """How many engines have computed since `computed()` was `then`; each worker has one."""
        own = len(self.computed().items() - then.items())
        return own or int(getattr(workers, "num_workers", 1))

    def close(self) -> None:
        """Close the engines."""
        for engine in self.engines.values():
            engine.close()

    def policy(self, checkpoint: Name) -> ModelPolicy:
        """The policy of a checkpoint."""
        return policy_of(self.engine(checkpoint), self.settings.model, constrained=self.settings.run.constrained)

    def critic(self, critic: CriticSettings) -> LLMRanker | None:
        """The critic of the settings: a prompted model. In the paper, the frozen base."""
        if critic.model == "none":
            return None
        model = self.base if critic.model == "base" else read_name(critic.model)
        self.staying.add(model)
        return LLMRanker(self.engine(model), method=critic.method, max_new_tokens=critic.max_new_tokens)

    def judge(self, max_new_tokens: int) -> OutcomeJudge | None:
        """The base as the judge of outcomes; none without tokens for its answers."""
        return OutcomeJudge(self.engine(self.base), max_new_tokens=max_new_tokens) if max_new_tokens else None

    def make_env(self) -> SiteEnv:
        """A session of the run's environment."""
        run = self.settings.run
        return envs.make(run.env, screenshots=run.screenshots, marks=self.settings.model.sees)


def _adapter_for(checkpoint: Name) -> Path | None:
    """The adapter that a checkpoint is, or the one beside it; None without one."""
    if not isinstance(checkpoint, Path):
        return None
    if is_adapter(checkpoint):
        return checkpoint
    return beside if (beside := adapter_of(checkpoint)).exists() else None


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
    critic: CriticSettings,
    settings: SearchSettings,
    stage: str,
    by_steps: bool = False,
    judge_tokens: int = 0,
) -> Work:
    """One search tree per task, told by the checker, or by the base with `judge_tokens`; see `collect.trees`."""
    ranker = resources.critic(critic)  # first, so its engine stays loaded
    judge = resources.judge(judge_tokens)
    chosen, kept_in = resources.policy(policy), (kept, stage)
    return trees(resources.make_env, chosen, ranker, settings, by_steps=by_steps, kept_in=kept_in, judge=judge)


def votes(resources: Resources, _: KeepsPartials, *, policy: Name, settings: SearchSettings, judge_tokens: int) -> Work:
    """Episodes of each task, of which the majority chooses one, or with `judge_tokens` the base as a judge."""
    judge = resources.judge(judge_tokens)
    choice, score = (by_score, judge.score) if judge else (by_majority, None)
    return choices(resources.make_env, resources.policy(policy), settings, choice, score)


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
    chosen, counts = resources.policy(policy), {"initial": initial, "total": total}

    async def work(item: Item, resets: Resets) -> TreeRecord:
        async with session(resources.make_env) as env:
            return await branched(env, item.task, chosen, sampling, branching=branching, resets=resets, **counts)

    return work


def demonstrations(resources: Resources, _: KeepsPartials, *, policy: Name) -> Work:
    """One episode of the scripted expert per task, in the policy's tokens."""
    demonstrated = _demonstrated(resources, policy)

    async def work(item: Item, resets: Resets) -> Trajectory:
        return await demonstrated(item.task, resets)

    return work


def inspections(
    resources: Resources, _: KeepsPartials, *, policy: Name, sampling: RolloutSettings, rollout: bool = False
) -> Work:
    """One demonstration per task, with the policy's own action at each of its states.

    With `rollout`, the tree has an episode of the policy, too.
    """
    demonstrated, chosen = _demonstrated(resources, policy), resources.policy(policy)

    async def work(item: Item, resets: Resets) -> TreeRecord:
        tree = await inspect(await demonstrated(item.task, resets), chosen, sampling)
        if not rollout:
            return tree
        async with session(resources.make_env) as env:
            episode = await roll_out(env, item.task, chosen, sampling, resets=resets)
        return tree if episode is None else with_rollout(tree, episode)

    return work


def _demonstrated(resources: Resources, policy: Name) -> Callable[[Task, Resets], Awaitable[Trajectory]]:
    chosen, expert = resources.policy(policy), envs.expert(resources.settings.run.env)

    async def demonstrated(task: Task, resets: Resets) -> Trajectory:
        async with session(resources.make_env) as env:
            return await demonstrate(env, expert, task, chosen.write, resets)

    return demonstrated
