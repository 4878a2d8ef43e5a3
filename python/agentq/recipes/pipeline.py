"""The stages every recipe is made of, each resumable: collect and evaluate (`learning` trains).

A stage that has finished is not done again; one that was interrupted goes on with what is missing.
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
from agentq.config import Config
from agentq.critics.ranker import LLMRanker
from agentq.envs.protocol import SiteEnv
from agentq.errors import ConfigError
from agentq.evaluation.outcomes import of_episode, of_tree
from agentq.evaluation.stats import RungResult
from agentq.policies.engine_names import checkpoint_to_train, make_engine, sampler_name
from agentq.policies.model_policy import ModelPolicy
from agentq.policies.protocol import Engine, Gives
from agentq.policies.usage import Price, Usage
from agentq.policies.weights import fingerprint
from agentq.recipes.accounts import Cost, cost_of
from agentq.searching.branching import Branching
from agentq.searching.collect import Collector, OnItem, StragglerCut
from agentq.searching.demonstrate import demonstrate
from agentq.searching.faults import Resets
from agentq.searching.rollout import RolloutSettings
from agentq.searching.selection import SearchSettings
from agentq.store.run import RunStore
from agentq.types import Split, Task, Trajectory


class StageDisplay(Protocol):
    """Where a person sees what is going on."""

    def stage(self, name: str, total: int, unit: str) -> Callable[[int, str], None]:
        """Start showing a stage; the returned function takes how much is done and a short note."""
        ...


@dataclass
class Pipeline:
    """One run: its store, settings, base model, and the stages over them.

    Where `run.engine` is set, that samples for every checkpoint but the base, whose weights are published there: a
    checkpoint's own, or the adapter's beside it, see `adapter_of`.
    """

    store: RunStore
    config: Config
    base: Path | str
    status: StageDisplay
    engines: dict[Path | str, Engine] = field(default_factory=dict)

    def engine(self, checkpoint: Path | str) -> Engine:
        """The engine of a checkpoint, or of a name; only the base's (the critic's too) and the latest stay loaded."""
        if checkpoint not in self.engines:
            if checkpoint != self.base:
                for other in [path for path in self.engines if path != self.base]:
                    self.engines.pop(other).close()
            if not self.config.run.engine or checkpoint == self.base or isinstance(checkpoint, str):
                self.engines[checkpoint] = make_engine(checkpoint)
            else:
                beside = adapter_of(checkpoint)
                self.sampler(checkpoint).publish(beside if beside.exists() else checkpoint)
        return self.engines[checkpoint]

    def sampler(self, checkpoint: Path) -> Engine:
        """The engine of `run.engine` in a checkpoint's place, with the weights that it began with.

        Raises:
            ConfigError: if it tells no token ids and log-probabilities.
        """
        name = sampler_name(self.config.run.engine)
        engine = self.engines[checkpoint] = make_engine(name, lora_rank=self.config.train.lora_rank)
        if Gives.TOKEN_IDS | Gives.LOGPS not in engine.gives:
            raise ConfigError(f"run.engine must tell token ids and log-probabilities; got text alone from {name}")
        return engine

    def close(self) -> None:
        """Let go of the engines."""
        for engine in self.engines.values():
            engine.close()

    def policy(self, checkpoint: Path | str) -> ModelPolicy:
        """The policy of a checkpoint."""
        return ModelPolicy(self.engine(checkpoint), constrained=self.config.run.constrained)

    @property
    def start(self) -> Path:
        """The base as the checkpoint that training begins with. Raises ConfigError if it is computed elsewhere."""
        return checkpoint_to_train(self.base)

    @cached_property
    def critic(self) -> LLMRanker:
        """The paper's critic: the frozen base model, prompted."""
        return LLMRanker(self.engine(self.base))

    def make_env(self) -> SiteEnv:
        """A session of the run's environment."""
        return envs.make(self.config.run.env)

    @cached_property
    def collector(self) -> Collector:
        """Collection into this run's store, as many items at once as the environment has sessions."""
        name, in_flight = self.config.run.env, self.config.search.num_trees_in_flight
        return Collector(self.store, self.make_env, min(in_flight, envs.max_sessions(name) or in_flight))

    def check_base(self) -> None:
        """Note which base the run starts from; one that goes on must have the same, whose tokens and log-probabilities
        its store holds.

        Raises:
            ConfigError: if it has another.
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
        """`n` tasks of a split of the run's environment."""
        return envs.tasks(self.config.run.env, split, n, start)

    def rollouts(
        self,
        stage: str,
        checkpoint: Path | str,
        tasks: Sequence[Task],
        *,
        attempts: int,
        temperature: float,
        cut: StragglerCut | None = None,
        seed: int | None = None,
    ) -> None:
        """Episodes of a checkpoint's policy; `seed` in place of the run's draws others."""
        if self._finished(stage, len(tasks) * attempts):
            return
        settings = RolloutSettings(temperature=temperature, seed=self.config.run.seed if seed is None else seed)
        policy = self.policy(checkpoint)
        with self._stage(stage, len(tasks) * attempts, "episodes") as on_item:
            self.collector.rollouts(stage, tasks, policy, settings, attempts=attempts, cut=cut, on_item=on_item)

    def demonstrations(self, stage: str, checkpoint: Path | str, tasks: Sequence[Task]) -> None:
        """The scripted expert's episodes, in the tokens of a checkpoint's policy."""
        if self._finished(stage, len(tasks)):
            return
        name = self.config.run.env
        env, expert, policy = self.make_env(), envs.expert(name), self.policy(checkpoint)
        with self._stage(stage, len(tasks), "episodes") as on_item:
            self.collector.demonstrations(stage, tasks, env, expert, policy, on_item=on_item)

    def inspections(
        self, stage: str, checkpoint: Path | str, tasks: Sequence[Task], *, temperature: float, seed: int
    ) -> None:
        """Inspection: what a checkpoint's policy does at each state of the scripted expert."""
        if self._finished(stage, len(tasks)):
            return
        name = self.config.run.env
        settings, policy = RolloutSettings(temperature=temperature, seed=seed), self.policy(checkpoint)

        def demonstration(task: Task, resets: Resets) -> Trajectory:
            return demonstrate(self.make_env(), envs.expert(name), task, policy.write, resets)

        with self._stage(stage, len(tasks), "tasks") as on_item:
            self.collector.inspections(stage, tasks, demonstration, policy, settings, on_item=on_item)

    def branched(
        self,
        stage: str,
        checkpoint: Path | str,
        tasks: Sequence[Task],
        *,
        initial: int,
        total: int,
        branching: Branching,
        temperature: float,
        seed: int,
    ) -> None:
        """`total` rollouts of each task, all but `initial` of which go on from the middle of others."""
        if self._finished(stage, len(tasks)):
            return
        settings = RolloutSettings(temperature=temperature, seed=seed)
        policy = self.policy(checkpoint)
        with self._stage(stage, len(tasks), "trees") as on_item:
            self.collector.branched(
                stage, tasks, policy, settings, initial=initial, total=total, branching=branching, on_item=on_item
            )

    def search(
        self,
        stage: str,
        checkpoint: Path | str,
        tasks: Sequence[Task],
        *,
        iterations: int,
        critic: bool,
        stop: bool = False,
        by_steps: bool = False,
    ) -> None:
        """Search trees with a checkpoint's policy; `by_steps`: episodes that search at each step."""
        if self._finished(stage, len(tasks)):
            return
        s = self.config.search
        settings = SearchSettings(
            num_iterations=iterations,
            num_proposals=s.num_proposals,
            temperature=s.temperature,
            c_exp=s.c_exp,
            stop_on_success=stop,
            seed=self.config.run.seed,
            selection=s.selection,
            leaves_in_flight=s.leaves_in_flight,
        )
        chosen, policy = self.critic if critic else None, self.policy(checkpoint)
        with self._stage(stage, len(tasks), "trees") as on_item:
            self.collector.trees(stage, tasks, policy, chosen, settings, by_steps=by_steps, on_item=on_item)

    def evaluate(
        self,
        name: str,
        stage: str,
        checkpoint: Path | str,
        tasks: Sequence[Task],
        *,
        iterations: int = 0,
        by_steps: bool = False,
        spent: Cost | None = None,
    ) -> RungResult:
        """Held-out success, plainly (`iterations` 0) or with search at test time; the row adds what was `spent` before.

        `by_steps`: with as many iterations before each step, and the path taken is what counts.

        A task that the world broke counts as not solved; the row says how many there are.

        Search at test time stops at its first success, which the site's checker tells it (ours: the paper is silent).
        """
        if iterations:
            self.search(stage, checkpoint, tasks, iterations=iterations, critic=True, stop=True, by_steps=by_steps)
            outcomes = [of_tree(tree) for tree in self.store.trees(stage)]
        else:
            self.rollouts(stage, checkpoint, tasks, attempts=1, temperature=self.config.eval.temperature)
            outcomes = [of_episode(t) for t in self.store.trajectories(stage)]
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
        """What stages used, over all their interruptions."""
        price = Price(*self.config.price.of_tokens())
        return sum((cost_of(self.store, stage, price) for stage in stages), Cost())

    @contextmanager
    def _stage(self, stage: str, total: int, unit: str) -> Iterator[OnItem]:
        """Show how a stage goes on, and add to its note what the engines do meanwhile."""
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

    def _finished(self, stage: str, total: int) -> bool:
        note = self.store.note(stage)
        return note is not None and note.get("done") == total


def adapter_of(checkpoint: Path) -> Path:
    """Where the adapter of a trained checkpoint lies that is served as one."""
    return checkpoint.with_name(f"{checkpoint.name}.adapter")
