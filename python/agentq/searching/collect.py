"""Resumable collection: a stage of episodes or of search trees into the run store, item by item as they finish.

An item that the world broke is kept with its kind and counts as done: a resumed run does not do it again. Where no task
has a first page any more the run ends, and what broke since then is not kept.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

from agentq.credit.episodes import Turns
from agentq.critics.protocol import Critic
from agentq.envs.protocol import BROKEN_IN_A_ROW, Env, SiteEnv
from agentq.envs.web_env import Expert
from agentq.errors import ConfigError
from agentq.policies.protocol import Policy
from agentq.searching.branching import Branching, branched
from agentq.searching.demonstrate import Writer, demonstrate, inspect
from agentq.searching.faults import Resets
from agentq.searching.partial import PartialTrees
from agentq.searching.rollout import RolloutSettings, rollout
from agentq.searching.run import run_all
from agentq.searching.selection import SearchSettings
from agentq.searching.steps import search_steps
from agentq.searching.tree import TreeSearch
from agentq.store.records import TreeRecord
from agentq.store.run import TRAJECTORY, TREE, RunStore
from agentq.types import Task, Trajectory

OnItem = Callable[[int, int, bool | None], None]
"""Hears of items done, items in all, and whether this one succeeded; None if the world broke it."""


@dataclass(frozen=True, slots=True)
class StragglerCut:
    """Share of all rollouts, and of each task's, that are waited for; see `credit.episodes.Turns`."""

    of_all: float
    of_task: float


@dataclass(frozen=True, slots=True)
class Collector:
    """What every collection of a run shares. `in_flight`: sessions of the environment at once."""

    store: RunStore
    make_env: Callable[[], Env]
    in_flight: int = 32

    def rollouts(
        self,
        stage: str,
        tasks: Sequence[Task],
        policy: Policy,
        settings: RolloutSettings,
        *,
        attempts: int,
        cut: StragglerCut | None = None,
        on_item: OnItem,
    ) -> None:
        """`attempts` episodes of each task under the policy, less the stragglers that `cut` does not wait for."""
        keys = self.store.keys(stage, TRAJECTORY)
        todo = [(task, i) for i in range(attempts) for task in tasks if _key(task, i) not in keys]
        progress = _Progress(self.store, stage, len(tasks) * attempts, len(tasks) * attempts - len(todo), on_item)
        known = self.store.trajectories(stage) if cut and keys else ()
        turns = Turns((task.seed for task in tasks), known)

        def give_up(taken: int) -> bool:
            return cut is not None and taken >= turns.waited_for(attempts=attempts, **asdict(cut))

        async def work(item: tuple[Task, int]) -> Trajectory | None:
            own = replace(settings, attempt=item[1])
            return await rollout(self.make_env(), item[0], policy, own, give_up, resets=progress.resets)

        def keep(t: Trajectory | None) -> None:
            if t is None:
                progress.add(False)
                return
            turns.add(t)
            key = _key(t.task, t.info["attempt"])
            add = partial(self.store.add_trajectory, stage, key, t)
            progress.keep(None if t.broken else t.success, t.broken, add)

        with progress:
            run_all(todo, work, in_flight=self.in_flight, on_done=keep)

    def demonstrations(
        self, stage: str, tasks: Sequence[Task], env: SiteEnv, expert: Expert, policy: Writer, *, on_item: OnItem
    ) -> None:
        """The expert's episode of each task, in the policy's tokens."""
        keys = self.store.keys(stage, TRAJECTORY)
        todo = [task for task in tasks if _key(task, 0) not in keys]
        with _Progress(self.store, stage, len(tasks), len(tasks) - len(todo), on_item) as progress:
            for task in todo:
                t = demonstrate(env, expert, task, policy.write, progress.resets)
                add = partial(self.store.add_trajectory, stage, _key(task, 0), t)
                progress.keep(None if t.broken else t.success, t.broken, add)

    def inspections(
        self,
        stage: str,
        tasks: Sequence[Task],
        demonstration: Callable[[Task, Resets], Trajectory],
        policy: Policy,
        settings: RolloutSettings,
        *,
        on_item: OnItem,
    ) -> None:
        """One inspection of each task's demonstration: a tree, as `demonstrate.inspect` makes it."""

        def search(task: Task, resets: Resets) -> Awaitable[TreeRecord]:
            return inspect(demonstration(task, resets), policy, settings)

        self._trees(stage, tasks, search, on_item)

    def branched(
        self,
        stage: str,
        tasks: Sequence[Task],
        policy: Policy,
        settings: RolloutSettings,
        *,
        initial: int,
        total: int,
        branching: Branching,
        on_item: OnItem,
    ) -> None:
        """Rollouts of each task that share beginnings: a tree, as `branching.branched` makes it."""

        def search(task: Task, resets: Resets) -> Awaitable[TreeRecord]:
            return branched(
                *(self.make_env(), task, policy, settings),
                initial=initial,
                total=total,
                branching=branching,
                resets=resets,
            )

        self._trees(stage, tasks, search, on_item)

    def trees(
        self,
        stage: str,
        tasks: Sequence[Task],
        policy: Policy,
        critic: Critic | None,
        settings: SearchSettings,
        *,
        by_steps: bool = False,
        on_item: OnItem,
    ) -> None:
        """One search tree of each task; `by_steps`: one episode of each that searches at each step."""

        def search(task: Task, resets: Resets) -> Awaitable[TreeRecord]:
            env = self.make_env()
            partials = PartialTrees(self.store, stage)
            found = TreeSearch(
                env, task, policy, settings, critic=critic, resets=resets, make_env=self.make_env, partials=partials
            )
            return search_steps(found) if by_steps else found.run()

        self._trees(stage, tasks, search, on_item, sessions=settings.leaves_in_flight)

    def _trees(
        self,
        stage: str,
        tasks: Sequence[Task],
        search: Callable[[Task, Resets], Awaitable[TreeRecord]],
        on_item: OnItem,
        sessions: int = 1,
    ) -> None:
        """One tree of each task that the stage has none of yet, each by so many sessions.

        Raises:
            ConfigError: if the environment has fewer.
        """
        if sessions > self.in_flight:
            raise ConfigError(
                f"search.leaves_in_flight must be at most the sessions of the run, {self.in_flight}; got {sessions}: "
                "raise search.num_trees_in_flight or what the environment's server offers"
            )
        done = self.store.done(stage, TREE)
        todo = [task for task in tasks if task.seed not in done]
        progress = _Progress(self.store, stage, len(tasks), len(tasks) - len(todo), on_item)

        async def work(task: Task) -> TreeRecord:
            return await search(task, progress.resets)

        def keep(tree: TreeRecord) -> None:
            won, add = bool(tree.info["succeeded"]), partial(self.store.add_tree, stage, tree)
            progress.keep(None if tree.fault else won, bool(tree.info.get("faults")), add)

        with progress:
            run_all(todo, work, in_flight=self.in_flight // sessions, calls=sessions, on_done=keep)


def _key(task: Task, attempt: int) -> str:
    return f"{task.seed}/{attempt}"


class _Progress:
    """Counts items and keeps the stage's wall time over interruptions, in its note.

    What the world broke waits in `held` until a first page shows that the world is still there.
    """

    def __init__(self, store: RunStore, stage: str, total: int, done: int, on_item: OnItem) -> None:
        self.store, self.stage, self.total, self.done, self.on_item = store, stage, total, done, on_item
        self.note = store.note(stage) or {}
        self.resets = Resets(BROKEN_IN_A_ROW)
        self.held: list[Callable[[], None]] = []

    def __enter__(self) -> _Progress:
        self.start = time.monotonic()
        return self

    def add(self, success: bool | None) -> None:
        self.done += 1
        self.on_item(self.done, self.total, success)

    def keep(self, success: bool | None, touched: bool, store: Callable[[], object]) -> None:
        """Keep an item by `store`; `touched`: the world failed somewhere in it."""

        def keep() -> None:
            store()
            self.add(success)

        if touched and self.resets.in_a_row:
            self.held.append(keep)
            return
        keep()
        if not self.resets.in_a_row:
            self.let_go()

    def let_go(self) -> None:
        """Keep what is held."""
        while self.held:
            self.held.pop(0)()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        gone = kind is None and bool(self.held) and not self.done
        if kind is None and not gone:
            self.let_go()
        seconds = float(self.note.get("seconds", 0.0)) + time.monotonic() - self.start
        self.store.set_note(self.stage, {**self.note, "done": self.done, "total": self.total, "seconds": seconds})
        if gone:
            raise self.resets.gone()
