"""One run: its store, settings and engines, and its stages: collecting and evaluating. `recipes.rounds` trains.

A finished stage is not repeated. An interrupted stage continues with the missing items.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import cached_property, partial
from pathlib import Path

from agentq import envs
from agentq.config import Search, Settings
from agentq.critics.judge import JUDGE_TOKENS
from agentq.errors import ConfigError
from agentq.eval_settings import ChosenBy, Eval, EvalSearch
from agentq.evaluation.endings import Ending, end_of_episode, end_of_tree
from agentq.evaluation.outcomes import TaskOutcome, of_episode, of_tree
from agentq.evaluation.scenarios import scenario_completion
from agentq.evaluation.stats import RungResult, paired_difference
from agentq.model_settings import CriticSettings
from agentq.policies.engine_names import checkpoint_to_train
from agentq.policies.protocol import Engine
from agentq.policies.usage import Price
from agentq.policies.weights import fingerprint
from agentq.recipes.accounts import Cost, cost_of, first_prompt, say_unread
from agentq.recipes.asking import ask_for_tasks
from agentq.recipes.resources import Name, Resources, episodes, searches, votes
from agentq.recipes.stage_line import StageLine
from agentq.run_settings import read_shard
from agentq.searching.collect import Execute, Item, attempts, collect, inline
from agentq.searching.rollout import RolloutSettings
from agentq.searching.selection import SearchSettings
from agentq.searching.worker import Job
from agentq.searching.workers import Workers, can_be_sent
from agentq.status import Planned, StageDisplay
from agentq.store.durable import sealed
from agentq.store.files import note_model
from agentq.store.run import TRAJECTORY, TREE, RunStore
from agentq.store.stages import rename_stage
from agentq.types import Split, Task

BASE_STAGE = "base/eval"  # where a run measures its base


class Pipeline(Resources):
    """What the stages of one run share. With `workers`, these collect, and this process writes."""

    def __init__(
        self,
        store: RunStore,
        settings: Settings,
        base: Name,
        status: StageDisplay,
        engines: dict[Name, Engine] | None = None,
        workers: Workers | None = None,
    ) -> None:
        super().__init__(settings, base, engines)
        self.store, self.status, self.workers = store, status, workers
        self.planned: Sequence[tuple[str, int]] = ()
        self.left_out: set[str] = set()
        for name, engine in self.engines.items():
            note_model(self.store.path, str(name), getattr(engine, "told", {}))

    def _make(self, name: Name, lora_rank: int = 0, *, trained: bool = False) -> Engine:
        engine = super()._make(name, lora_rank, trained=trained)
        note_model(self.store.path, str(name), getattr(engine, "told", {}))
        return engine

    @property
    def start(self) -> Path:
        """The base, with which training begins. Raises ConfigError if it is not a checkpoint loaded here."""
        return checkpoint_to_train(self.base)

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
        return ask_for_tasks(self.settings.run.env, split, n, start, self.status, self.store)

    def collect(
        self, stage: str, items: Sequence[Item], job: Job, *, kind: str = TRAJECTORY, sessions: int = 1
    ) -> None:
        """Fill a stage with records of a kind (`store.run.TREE`, `TRAJECTORY`). A job begins only if items are missing.

        `sessions`: number of environment sessions per item.
        """
        items = self._own(items)
        if (self.store.note(stage) or {}).get("done") == len(items):
            return
        with self._stage(stage, len(items), {TRAJECTORY: "episodes", TREE: "trees"}[kind]) as line:
            collect(
                self.store,
                stage,
                items,
                self._execute(job, kind),
                in_flight=self.in_flight,
                sessions=sessions,
                on_item=line.on_item,
                on_growth=line.on_growth,
            )

    def _own(self, items: Sequence[Item]) -> Sequence[Item]:
        """The items of the run's shard, by the seeds of their tasks; all items of a run without one.

        Raises:
            ConfigError: if a shard has none.
        """
        if not self.settings.run.shard:
            return items
        number, n = read_shard(self.settings.run.shard)
        if len({item.task.seed % n for item in items}) < n:
            raise ConfigError(f"each shard must have a task of each stage; got {n} shards for {len(items)} items")
        return [item for item in items if item.task.seed % n == number - 1]

    def _execute(self, job: Job, kind: str) -> Execute:
        """By workers, if there are some and the job can be sent to them."""
        if self.workers is not None and can_be_sent(job):
            if isinstance(job, partial):
                self.publish(job.keywords["policy"])
            envs.release()
            return self.workers.stage(job, kind)
        return inline(job(self, self.store))

    def evaluate(
        self,
        name: str,
        stage: str,
        checkpoint: Name,
        tasks: Sequence[Task],
        how: Eval,
        spent: Cost | None = None,
    ) -> RungResult:
        """Success of one episode per task. The row's costs include those `spent` before.

        A task with an environment fault counts as not solved. The row gives the number of such tasks.
        """
        run = self.settings.run
        sampling = RolloutSettings(how.temperature, run.seed, 0, run.max_unreadable, how.repeat_temperature)
        self._set_apart(stage, checkpoint)
        self.collect(stage, attempts(tasks), partial(episodes, policy=checkpoint, sampling=sampling))
        ended = [(of_episode(t), end_of_episode(t)) for t in self.store.trajectories(stage)]
        return self._row(name, stage, ended, spent)

    def evaluate_search(
        self,
        name: str,
        stage: str,
        checkpoint: Name,
        tasks: Sequence[Task],
        search: Search,
        critic: CriticSettings,
        measured: EvalSearch,
        chosen_by: ChosenBy,
        *,
        by_steps: bool = False,
    ) -> RungResult:
        """Success of one search per task. `by_steps`: of an episode with a search per step.

        A search told by the site's checker stops at its first success (ours; the paper does not say). All other ways to
        choose an episode do not know of the checker, which then decides about that episode alone.
        """
        oracle = chosen_by == "oracle"
        run = self.settings.run
        settings = search_settings(search, measured.num_iterations, run.seed, stop_on_success=oracle)
        settings = replace(settings, max_calls=measured.max_calls, max_unreadable=run.max_unreadable)
        self._set_apart(stage, checkpoint)
        if chosen_by in ("majority", "best_of_n"):
            scored = judge_tokens(critic) if chosen_by == "best_of_n" else 0
            job: Job = partial(votes, policy=checkpoint, settings=settings, judge_tokens=scored)
            self.collect(stage, attempts(tasks), job, kind=TREE)
        else:
            job = partial(searches, policy=checkpoint, critic=critic, settings=settings, stage=stage)
            job = partial(job, by_steps=by_steps, judge_tokens=0 if oracle else judge_tokens(critic))
            self.collect(stage, attempts(tasks), job, kind=TREE, sessions=search.leaves_in_flight)
        say_unread(self.status, name, self.store.note(stage) or {})
        found = [(of_tree(t), end_of_tree(t), t.info.get("iterations", 0)) for t in self.store.trees(stage)]
        row = self._row(name, stage, [each[:2] for each in found])
        return replace(row, oracle=max(each[2] for each in found) if oracle else 0)

    def _set_apart(self, stage: str, checkpoint: Name) -> None:
        """Keep what a stage has measured of an earlier checkpoint, before training went on, as `STAGE/roundN`."""
        if not isinstance(checkpoint, Path) or self.store.path not in checkpoint.parents:
            return
        note, found = self.store.note(stage) or {}, sealed(checkpoint)
        if note.get("measured", found) != found:
            rename_stage(self.store, stage, f"{stage}/round{note['rounds']}")
            note = {}
        rounds = getattr(self.settings.run, "num_rounds", 0)
        self.store.set_note(stage, {**note, "measured": found, "rounds": rounds})

    def _row(
        self, name: str, stage: str, ended: Sequence[tuple[TaskOutcome, Ending]], spent: Cost | None = None
    ) -> RungResult:
        cost = self.cost(stage) + (spent or Cost())
        outcomes, endings = zip(*ended, strict=True)
        row = RungResult.from_outcomes(
            name,
            *zip(*(outcome[:5] for outcome in outcomes), strict=True),
            env_steps=cost.env_steps,
            prompt_tokens=cost.prompt_tokens,
            generated_tokens=cost.generated_tokens,
            seconds=cost.seconds,
            money=cost.money,
        )
        success = {"success": row.rate, "success/low": row.low, "success/high": row.high}
        self.store.track(stage, getattr(self.settings.run, "num_rounds", 0), success)
        return replace(
            row,
            stops=dict(Counter(ending.stop for ending in endings if ending.stop)),
            errors=dict(Counter(kind for ending in endings for kind in ending.errors)),
            against_base=self._against_base(stage, outcomes),
            prompt=first_prompt(self.store, stage),
            sgc=scenario_completion([each.scenario for each in outcomes], [each.success for each in outcomes]),
        )

    def _against_base(self, stage: str, outcomes: Sequence[TaskOutcome]) -> dict[str, float] | None:
        """The paired difference against the base's episodes, if the run has them, on tasks that neither lost."""
        if stage == BASE_STAGE:
            return None
        base = [of_episode(t) for t in self.store.trajectories(BASE_STAGE)]
        if len(base) != len(outcomes):
            return None
        broken = [a.broken or b.broken for a, b in zip(outcomes, base, strict=True)]
        if all(broken):
            return None
        return asdict(paired_difference([a.success for a in outcomes], [b.success for b in base], broken=broken))

    def plan(self, stages: Sequence[tuple[str, int]], left_out: Iterable[str] = ()) -> None:
        """Tell the display of the stages that the run will have, with their numbers of items (0: unknown)."""
        self.planned, self.left_out, planned = stages, {*left_out}, []
        for name, items in (stage for stage in stages if stage[0] not in self.left_out):
            note = self.store.note(name) or {}
            done = note.get("finished") or note.get("done") == items
            planned.append(Planned(name, items, note.get("seconds") if done else None))
        self.status.plan(planned, self.in_flight)

    def leave_out(self, stages: Iterable[str], needed: Iterable[str] = ()) -> None:
        """Tell the display of planned stages that will not be needed, and of those that are `needed` after all."""
        left_out = (self.left_out | {*stages}) - {*needed}
        if left_out != self.left_out:
            self.plan(self.planned, left_out)

    def cost(self, *stages: str) -> Cost:
        """Cost of the stages, over all their interruptions."""
        price = Price(*self.settings.price.of_tokens())
        return sum((cost_of(self.store, stage, price) for stage in stages), Cost())

    @contextmanager
    def _stage(self, stage: str, total: int, unit: str) -> Iterator[StageLine]:
        """Show the progress of a stage, and note its time and the engines' usage. Others can have its sessions then."""
        price = Price(*self.settings.price.of_tokens())
        line = StageLine(self.store, stage, self.status.stage(stage, total, unit), self, self.workers, price)
        try:
            yield line
        finally:
            envs.release()
            line.note()


def judge_tokens(critic: CriticSettings) -> int:
    """Limit of an answer of the base as a judge, in tokens: at least that of the base as a critic."""
    return max(JUDGE_TOKENS, critic.max_new_tokens)


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
        alpha=s.alpha,
    )
