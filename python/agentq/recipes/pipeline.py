"""One run: its store, settings and engines, and its stages: collecting and evaluating. `recipes.rounds` trains.

A finished stage is not repeated. An interrupted stage continues with the missing items.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Protocol

from agentq import envs
from agentq.config import Search, Settings
from agentq.critics.protocol import Critic
from agentq.critics.ranker import LLMRanker
from agentq.envs.protocol import SiteEnv
from agentq.errors import ConfigError
from agentq.evaluation.outcomes import TaskOutcome, of_episode, of_tree
from agentq.evaluation.stats import RungResult
from agentq.model_settings import CriticMethod
from agentq.policies.engine_names import checkpoint_to_train, make_engine, read_name, sampler_name
from agentq.policies.model_policy import ModelPolicy
from agentq.policies.protocol import Engine, Gives
from agentq.policies.usage import Price, Usage
from agentq.policies.weights import fingerprint
from agentq.recipes.accounts import Cost, cost_of
from agentq.searching.collect import Item, OnItem, Work, attempts, collect, rollouts, trees
from agentq.searching.rollout import RolloutSettings
from agentq.searching.selection import SearchSettings
from agentq.store.run import RunStore
from agentq.types import Split, Task


class StageDisplay(Protocol):
    """Shows the progress of stages to the user."""

    def stage(self, name: str, total: int, unit: str) -> Callable[[int, str], None]:
        """Start showing a stage. Call the returned function with the number of finished units and a short note."""
        ...


@dataclass
class Pipeline:
    """What the stages of one run share.

    If `run.engine` is set, that engine samples for every trained checkpoint. The checkpoint's weights are published to
    it, or the adapter beside the checkpoint (`adapter_of`).
    """

    store: RunStore
    settings: Settings
    base: Path | str
    status: StageDisplay
    engines: dict[Path | str, Engine] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.staying = {self.base}  # models whose engines stay loaded

    def engine(self, checkpoint: Path | str) -> Engine:
        """The engine of a checkpoint or name. Those of the base, critics and the latest checkpoint stay loaded."""
        if checkpoint not in self.engines:
            if checkpoint not in self.staying:
                self.close_others()
            if not self.settings.run.engine or checkpoint in self.staying or isinstance(checkpoint, str):
                self.engines[checkpoint] = make_engine(checkpoint)
            else:
                beside = adapter_of(checkpoint)
                self.sampler(checkpoint).publish(beside if beside.exists() else checkpoint)
        return self.engines[checkpoint]

    def close_others(self) -> None:
        """Close the engines of trained weights before the next ones are loaded."""
        for other in [path for path in self.engines if path not in self.staying]:
            self.engines.pop(other).close()

    def sampler(self, checkpoint: Path) -> Engine:
        """The engine of `run.engine` for a checkpoint, with its initial weights: nothing is published yet.

        Raises:
            ConfigError: if the engine does not return token ids and log-probabilities.
        """
        name = sampler_name(self.settings.run.engine)
        engine = self.engines[checkpoint] = make_engine(name, lora_rank=self.settings.train.lora_rank)
        if Gives.TOKEN_IDS | Gives.LOGPS not in engine.gives:
            raise ConfigError(f"run.engine must tell token ids and log-probabilities; got text alone from {name}")
        return engine

    def close(self) -> None:
        """Close the engines."""
        for engine in self.engines.values():
            engine.close()

    def policy(self, checkpoint: Path | str) -> ModelPolicy:
        """The policy of a checkpoint."""
        return ModelPolicy(self.engine(checkpoint), constrained=self.settings.run.constrained)

    @property
    def start(self) -> Path:
        """The base, with which training begins. Raises ConfigError if it is not a checkpoint loaded here."""
        return checkpoint_to_train(self.base)

    def critic(self, name: str, method: CriticMethod) -> Critic | None:
        """The critic named by `search.critic`: a prompted model. In the paper, the frozen base."""
        if name == "none":
            return None
        model = self.base if name == "base" else read_name(name)
        self.staying.add(model)
        return LLMRanker(self.engine(model), method=method)

    def make_env(self) -> SiteEnv:
        """A session of the run's environment."""
        return envs.make(self.settings.run.env)

    @cached_property
    def in_flight(self) -> int:
        """Number of sessions used at once: that of the settings, or fewer if the environment has fewer."""
        wanted = self.settings.search.num_trees_in_flight
        return min(wanted, envs.max_sessions(self.settings.run.env) or wanted)

    def check_base(self) -> None:
        """Note the base of a new run. A resumed run must have the same one, because the store holds its tokens.

        Raises:
            ConfigError: if a resumed run has another base.
        """
        found, note = fingerprint(self.base), self.store.note("base")
        if note is None:
            self.store.set_note("base", {"fingerprint": found, "name": str(self.base)})
        elif note["fingerprint"] != found:
            raise ConfigError(
                f"{self.store.path} must go on with the base that it began with, {note.get('name', 'another one')}; "
                f"got {self.base}, whose files differ"
            )

    def tasks(self, split: Split, n: int, start: int = 0) -> list[Task]:
        """`n` tasks from a split of the run's environment."""
        return envs.tasks(self.settings.run.env, split, n, start)

    def collect(
        self, stage: str, items: Sequence[Item], begin: Callable[[], Work], *, unit: str, sessions: int = 1
    ) -> None:
        """Fill a stage. `begin` makes its work and loads engines; it is called only if items are missing.

        `sessions`: number of environment sessions per item.
        """
        if (self.store.note(stage) or {}).get("done") == len(items):
            return
        work = begin()
        with self._stage(stage, len(items), unit) as on_item:
            collect(self.store, stage, items, work, in_flight=self.in_flight, sessions=sessions, on_item=on_item)

    def evaluate(
        self,
        name: str,
        stage: str,
        checkpoint: Path | str,
        tasks: Sequence[Task],
        temperature: float,
        spent: Cost | None = None,
    ) -> RungResult:
        """Success of one episode per task. The row's costs include those `spent` before.

        A task with an environment fault counts as not solved. The row gives the number of such tasks.
        """
        sampling = RolloutSettings(temperature=temperature, seed=self.settings.run.seed)

        def begin() -> Work:
            return rollouts(self.make_env, self.policy(checkpoint), sampling)

        self.collect(stage, attempts(tasks), begin, unit="episodes")
        return self._row(name, stage, [of_episode(t) for t in self.store.trajectories(stage)], spent)

    def evaluate_search(
        self,
        name: str,
        stage: str,
        checkpoint: Path | str,
        tasks: Sequence[Task],
        search: Search,
        method: CriticMethod,
        num_iterations: int,
        *,
        by_steps: bool = False,
    ) -> RungResult:
        """Success of one search per task, with the base as critic. `by_steps`: of an episode with a search per step.

        `method`: how the critic ranks.
        A search stops at its first success, as reported by the site's checker (ours; the paper does not say).
        """
        settings = search_settings(search, num_iterations, self.settings.run.seed, stop_on_success=True)

        def begin() -> Work:
            critic = self.critic("base", method)  # first, so its engine stays loaded
            policy, kept_in = self.policy(checkpoint), (self.store, stage)
            return trees(self.make_env, policy, critic, settings, by_steps=by_steps, kept_in=kept_in)

        self.collect(stage, attempts(tasks), begin, unit="trees", sessions=search.leaves_in_flight)
        return self._row(name, stage, [of_tree(tree) for tree in self.store.trees(stage)])

    def _row(self, name: str, stage: str, outcomes: Sequence[TaskOutcome], spent: Cost | None = None) -> RungResult:
        cost = self.cost(stage) + (spent or Cost())
        return RungResult.from_outcomes(
            name,
            *zip(*outcomes, strict=True),
            env_steps=cost.env_steps,
            prompt_tokens=cost.prompt_tokens,
            generated_tokens=cost.generated_tokens,
            seconds=cost.seconds,
            money=cost.money,
        )

    def cost(self, *stages: str) -> Cost:
        """Cost of the stages, over all their interruptions."""
        price = Price(*self.settings.price.of_tokens())
        return sum((cost_of(self.store, stage, price) for stage in stages), Cost())

    @contextmanager
    def _stage(self, stage: str, total: int, unit: str) -> Iterator[OnItem]:
        """Show the progress of a stage, and add the engines' usage to its note."""
        show, before = self.status.stage(stage, total, unit), {e: deepcopy(e.usage) for e in self.engines.values()}
        wins = broken = 0

        def used() -> Usage:
            return sum((e.usage.since(before.get(e)) for e in self.engines.values()), Usage())

        def on_item(done: int, _: int, success: bool | None) -> None:
            nonlocal wins, broken
            wins, broken = wins + bool(success), broken + (success is None)
            faults = f"{broken} broken by the world" if broken else ""
            show(done, ", ".join(filter(None, [f"{wins} succeeded", faults, str(used())])))

        try:
            yield on_item
        finally:
            note = self.store.note(stage) or {}
            self.store.set_note(stage, {**note, **(Usage.from_note(note) + used()).to_note()})


def search_settings(s: Search, num_iterations: int, seed: int, *, stop_on_success: bool = False) -> SearchSettings:
    """Settings of a search with `num_iterations` rollouts, from the section `search`."""
    return SearchSettings(
        num_iterations=num_iterations,
        num_proposals=s.num_proposals,
        temperature=s.temperature,
        c_exp=s.c_exp,
        stop_on_success=stop_on_success,
        seed=seed,
        selection=s.selection,
        leaves_in_flight=s.leaves_in_flight,
    )


def adapter_of(checkpoint: Path) -> Path:
    """Path of the adapter of a checkpoint that is served as an adapter."""
    return checkpoint.with_name(f"{checkpoint.name}.adapter")
