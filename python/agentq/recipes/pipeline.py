"""The stages every recipe is made of, each resumable: collect and evaluate (`learning` trains). Owns what stages cost.

A stage that has finished is not done again; one that was interrupted goes on with what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Protocol

from agentq import envs
from agentq.config import Config
from agentq.critics.ranker import LLMRanker
from agentq.errors import ConfigError
from agentq.evaluate.stats import RungResult
from agentq.learn.checkpoint import fingerprint
from agentq.policies.model import ModelPolicy
from agentq.policies.names import make_engine
from agentq.policies.protocol import Engine
from agentq.policies.usage import Tally
from agentq.search.branching import Branching
from agentq.search.collect import Collector, StragglerCut
from agentq.search.demonstrate import demonstrate
from agentq.search.rollout import RolloutSettings
from agentq.search.tree import SearchSettings
from agentq.store.records import TreeRecord
from agentq.store.run import RunStore
from agentq.types import Split, Task, Trajectory


class Status(Protocol):
    """Where a person sees what is going on."""

    def stage(self, name: str, total: int, unit: str) -> Callable[[int, str], None]:
        """Start showing a stage; the returned function takes how much is done and a short note."""
        ...


@dataclass(slots=True)
class Cost:
    """What a stage used: executed actions, model tokens, wall seconds."""

    env_steps: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    seconds: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.env_steps + other.env_steps,
            self.prompt_tokens + other.prompt_tokens,
            self.generated_tokens + other.generated_tokens,
            self.seconds + other.seconds,
        )


@dataclass
class Pipeline:
    """One run: its store, settings, base model, and the stages over them."""

    store: RunStore
    config: Config
    base: Path | str
    status: Status
    engines: dict[Path | str, Engine] = field(default_factory=dict)

    def engine(self, checkpoint: Path | str) -> Engine:
        """The engine of a checkpoint, or of a name; only the base's (the critic's too) and the latest stay loaded."""
        if checkpoint not in self.engines:
            if checkpoint != self.base:
                for other in [path for path in self.engines if path != self.base]:
                    self.engines.pop(other).close()
            self.engines[checkpoint] = make_engine(checkpoint)
        return self.engines[checkpoint]

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
        if isinstance(self.base, str):
            raise ConfigError(f"training must begin with a checkpoint; got --base {self.base}, which is only asked")
        return self.base

    @cached_property
    def critic(self) -> LLMRanker:
        """The paper's critic: the frozen base model, prompted."""
        return LLMRanker(self.engine(self.base))

    @cached_property
    def collector(self) -> Collector:
        """Collection into this run's store, as many items at once as the environment has sessions."""
        name, in_flight = self.config.run.env, self.config.search.num_trees_in_flight
        return Collector(self.store, lambda: envs.make(name), min(in_flight, envs.max_sessions(name) or in_flight))

    def check_base(self) -> None:
        """Note which base the run starts from; one that goes on must have the same, whose tokens and log-probabilities
        its store holds.

        Raises:
            ConfigError: if it has another.
        """
        found, note = fingerprint(self.base), self.store.note("base")
        if note is None:
            self.store.set_note("base", {"fingerprint": found})
        elif note["fingerprint"] != found:
            raise ConfigError(
                f"{self.store.path} must go on with the base that it began with (fingerprint {note['fingerprint']}); "
                f"got {self.base} ({found})"
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
        on_item = self._on_item(stage, len(tasks) * attempts, "episodes")
        policy = self.policy(checkpoint)
        with self._accounted(stage):
            self.collector.rollouts(stage, tasks, policy, settings, attempts=attempts, cut=cut, on_item=on_item)

    def demonstrations(self, stage: str, checkpoint: Path | str, tasks: Sequence[Task]) -> None:
        """The scripted expert's episodes, in the tokens of a checkpoint's policy."""
        if self._finished(stage, len(tasks)):
            return
        name, on_item = self.config.run.env, self._on_item(stage, len(tasks), "episodes")
        env, expert, policy = envs.make(name), envs.expert(name), self.policy(checkpoint)
        self.collector.demonstrations(stage, tasks, env, expert, policy, on_item=on_item)

    def inspections(
        self, stage: str, checkpoint: Path | str, tasks: Sequence[Task], *, temperature: float, seed: int
    ) -> None:
        """Inspection: what a checkpoint's policy does at each state of the scripted expert."""
        if self._finished(stage, len(tasks)):
            return
        name, on_item = self.config.run.env, self._on_item(stage, len(tasks), "tasks")
        settings, policy = RolloutSettings(temperature=temperature, seed=seed), self.policy(checkpoint)

        def demonstration(task: Task) -> Trajectory:
            return demonstrate(envs.make(name), envs.expert(name), task, policy.write)

        with self._accounted(stage):
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
        on_item = self._on_item(stage, len(tasks), "trees")
        policy = self.policy(checkpoint)
        with self._accounted(stage):
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
    ) -> None:
        """Search trees with a checkpoint's policy."""
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
        )
        on_item = self._on_item(stage, len(tasks), "trees")
        chosen = self.critic if critic else None
        with self._accounted(stage):
            self.collector.trees(stage, tasks, self.policy(checkpoint), chosen, settings, on_item=on_item)

    def evaluate(
        self,
        name: str,
        stage: str,
        checkpoint: Path | str,
        tasks: Sequence[Task],
        *,
        iterations: int = 0,
        spent: Cost | None = None,
    ) -> RungResult:
        """Held-out success, plainly (`iterations` 0) or with search at test time; the row adds what was `spent` before.

        Search at test time stops at its first success, which the site's checker tells it (ours: the paper is silent).
        """
        if iterations:
            self.search(stage, checkpoint, tasks, iterations=iterations, critic=True, stop=True)
            outcomes = [(*self._searched(tree), tree.task.env) for tree in self.store.trees(stage)]
        else:
            self.rollouts(stage, checkpoint, tasks, attempts=1, temperature=self.config.eval.temperature)
            outcomes = [(t.success, t.return_, len(t.steps), t.task.env) for t in self.store.trajectories(stage)]
        cost = self.cost(stage) + (spent or Cost())
        successes, returns, steps, environments = zip(*outcomes, strict=True)
        return RungResult.from_outcomes(
            name,
            successes,
            returns,
            steps,
            environments,
            env_steps=cost.env_steps,
            prompt_tokens=cost.prompt_tokens,
            generated_tokens=cost.generated_tokens,
            seconds=cost.seconds,
        )

    def cost(self, *stages: str) -> Cost:
        """What stages used, over all their interruptions."""
        total = Cost()
        for stage in stages:
            note = self.store.note(stage) or {}
            total.seconds += float(note.get("seconds", 0.0))
            critic = Tally(**note.get("usage", {}).get("critic", {}))
            total.prompt_tokens += critic.prompt_tokens
            total.generated_tokens += critic.generated_tokens
            for tree in self.store.trees(stage):
                total.env_steps += int(tree.info["env_steps"])
                total.prompt_tokens += int(tree.info["prompt_tokens"])
                total.generated_tokens += int(tree.info["generated_tokens"])
            for t in self.store.trajectories(stage):
                total.env_steps += len(t.steps)
                total.prompt_tokens += sum(len(step.proposal.prompt_ids) for step in t.steps)
                total.generated_tokens += sum(len(step.proposal.token_ids) for step in t.steps)
        return total

    @contextmanager
    def _accounted(self, stage: str) -> Iterator[None]:
        """Add to the stage's note what the engines do meanwhile, by role."""
        before = {engine: deepcopy(engine.usage) for engine in self.engines.values()}
        try:
            yield
        finally:
            note = self.store.note(stage) or {}
            noted = note.setdefault("usage", {})
            for engine in self.engines.values():
                for role, tally in engine.usage.since(before.get(engine)).roles.items():
                    noted[role] = asdict(tally + Tally(**noted.get(role, {})))
            self.store.set_note(stage, note)

    @staticmethod
    def _searched(tree: TreeRecord) -> tuple[bool, float, int]:
        """(success, return, steps) of the best episode in a tree: highest return, then fewest steps."""
        ends = [i for i in range(len(tree)) if tree.observation[i] is not None and tree.flags[i] & 1]
        best = min(ends, key=lambda i: (-float(sum(tree.reward[j] for j in tree.path(i))), int(tree.depth[i])))
        return bool(tree.success[best]), float(sum(tree.reward[j] for j in tree.path(best))), int(tree.depth[best])

    def _finished(self, stage: str, total: int) -> bool:
        note = self.store.note(stage)
        return note is not None and note.get("done") == total

    def _on_item(self, stage: str, total: int, unit: str) -> Callable[[int, int, bool], None]:
        show = self.status.stage(stage, total, unit)
        wins = 0

        def on_item(done: int, _: int, success: bool) -> None:
            nonlocal wins
            wins += success
            show(done, f"{wins} succeeded")

        return on_item
