"""Resumable collection: writes a stage's items to the run store as they finish.

A `Work` does one item. An `Execute` does all of them, in this process (`inline`) or in others (`searching.processes`),
and hands each finished record to the `Collection`, the only writer. A record counts once it is in the store, so what
is stored does not depend on the number of workers, on their order or on their deaths.

An item that the world broke is kept with its error kind and counts as done, so a resumed run does not repeat it. If no
task gets a first page any more, the run ends, and items broken since the last first page are not kept.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import NamedTuple, Protocol

from agentq.credit.episodes import Turns
from agentq.critics.protocol import Critic, Judge
from agentq.envs.calls import session
from agentq.envs.protocol import BROKEN_IN_A_ROW, Env
from agentq.errors import ConfigError
from agentq.policies.fleet import at_home
from agentq.policies.protocol import Policy
from agentq.searching.checked import checked
from agentq.searching.episodes import Choice, Score, chosen_of
from agentq.searching.faults import Resets, fault_message
from agentq.searching.partial import KeepsPartials, PartialTrees
from agentq.searching.rollout import RolloutSettings, rollout
from agentq.searching.run import run_all
from agentq.searching.selection import SearchSettings
from agentq.searching.steps import search_steps
from agentq.searching.tree import TreeSearch
from agentq.store.packed import Packed, pack
from agentq.store.records import TreeRecord
from agentq.store.run import TRAJECTORY, TREE, RunStore
from agentq.types import Task, Trajectory

LONGEST_S = 0.1  # that a finished item waits for others to be written with, if a turn of the event loop takes longer

OnItem = Callable[[int, int, bool | None, str], None]
"""Receives the items done, their total, and this one's success: None, with the world's message, if it broke it."""

OnGrowth = Callable[[Mapping[int, tuple[float, int]]], None]
"""Receives the unfinished searches by seed when one has grown: the share of each that is done, and its rollouts.
Receives nothing when the work begins, after models were loaded."""


class Item(NamedTuple):
    """One unit of work of a stage: a task and an attempt number."""

    task: Task
    attempt: int = 0

    @property
    def key(self) -> str:
        """Name in the store."""
        return f"{self.task.seed}/{self.attempt}"


Record = Trajectory | TreeRecord
Work = Callable[[Item, Resets], Awaitable[Record | None]]
"""Does one item and returns the episode or tree to keep, or None if the item is given up."""


class Finished(NamedTuple):
    """A record as a collection keeps it, made by the process that did the item.

    `success`: None if the world broke the item, with `message`. `faulty`: whether the world broke any of it.
    """

    kind: str
    packed: Packed
    success: bool | None
    faulty: bool
    message: str = ""


def finished(record: Record | None, dictionaries: Mapping[str, bytes] | None = None) -> Finished | None:
    """The record of an item that is done, packed with `dictionaries` of the store; None if it is given up."""
    if record is None:
        return None
    if isinstance(record, TreeRecord):
        kind, success, faulty = TREE, bool(record.info["succeeded"]), bool(record.info.get("faults"))
    else:
        kind, success, faulty = TRAJECTORY, record.success, record.broken
    packed, said = pack(record, dictionaries), fault_message(record)
    return Finished(kind, packed, None if record.fault else success, faulty, said)


class Execute(Protocol):
    """Does items, `in_flight` at a time with `sessions` environment sessions each, and hands over their records."""

    def __call__(self, items: Sequence[Item], to: Collection, /, *, in_flight: int, sessions: int) -> None: ...


def inline(work: Work) -> Execute:
    """Does the items in this process, all in one event loop."""

    def execute(items: Sequence[Item], to: Collection, *, in_flight: int, sessions: int) -> None:
        async def one(item: Item) -> tuple[Item, Finished | None]:
            with at_home():
                return item, finished(await work(item, to.resets), to.store.dictionaries)

        to.on_growth({})
        run_all(items, one, in_flight=in_flight, on_done=lambda done: to.keep(*done, soon=True), settle=to.settle)

    return execute


def attempts(tasks: Sequence[Task], n: int = 1) -> list[Item]:
    """`n` items per task; all first attempts come before the second ones."""
    return [Item(task, i) for i in range(n) for task in tasks]


def collect(
    store: RunStore,
    stage: str,
    items: Sequence[Item],
    execute: Execute,
    *,
    in_flight: int,
    sessions: int = 1,
    on_item: OnItem,
    on_growth: OnGrowth = lambda growing: None,
) -> None:
    """Do the items that the stage does not have yet, and keep their results.

    Args:
        in_flight: number of concurrent environment sessions, of which each item has `sessions`.

    Raises:
        ConfigError: if an item needs more sessions than there are.
        EnvError: if no task gets a first page any more.
    """
    if sessions > in_flight:
        raise ConfigError(
            f"search.leaves_in_flight must be at most the sessions of the run, {in_flight}; got {sessions}: "
            "raise search.num_trees_in_flight or what the environment's server offers"
        )
    kept = store.keys(stage, TRAJECTORY) | {f"{key}/0" for key in store.keys(stage, TREE)}
    todo = [item for item in items if item.key not in kept]
    with Collection(store, stage, len(items), len(items) - len(todo), on_item, on_growth) as collection:
        execute(todo, collection, in_flight=in_flight // sessions, sessions=sessions)


@dataclass(frozen=True, slots=True)
class StragglerCut:
    """Share of all rollouts, and of each task's rollouts, to wait for; see `credit.episodes.Turns`."""

    of_all: float
    of_task: float


def rollouts(
    make_env: Callable[[], Env],
    policy: Policy,
    settings: RolloutSettings,
    *,
    cut: StragglerCut | None = None,
    items: Sequence[Item] = (),
    known: Iterable[Trajectory] = (),
) -> Work:
    """Episodes under the policy. A `cut` gives up the stragglers among `items`.

    `known`: episodes that the stage already has.
    """
    turns = Turns((item.task.seed for item in items), known)
    n = 1 + max((item.attempt for item in items), default=0)

    def give_up(taken: int) -> bool:
        return cut is not None and taken >= turns.waited_for(attempts=n, **asdict(cut))

    async def work(item: Item, resets: Resets) -> Trajectory | None:
        own = replace(settings, attempt=item.attempt)
        async with session(make_env) as env:
            t = await rollout(env, item.task, policy, own, give_up, resets=resets)
        if cut is not None and t is not None:
            turns.add(t)
        return t

    return work


def trees(
    make_env: Callable[[], Env],
    policy: Policy,
    critic: Critic | None,
    settings: SearchSettings,
    *,
    by_steps: bool = False,
    kept_in: tuple[KeepsPartials, str] | None = None,
    judge: Judge | None = None,
) -> Work:
    """One search tree per task.

    Args:
        by_steps: search at each step of an episode.
        judge: decides about episodes in place of the checker, which then sees only the best path by value.
        kept_in: the store and stage that keep a growing tree, from which a killed search resumes.
    """

    async def work(item: Item, resets: Resets) -> TreeRecord:
        kept = PartialTrees(*kept_in) if kept_in else None
        search_of = partial(TreeSearch, critic=critic, judge=judge, make_env=make_env, resets=resets, partials=kept)
        async with session(make_env) as env:
            search = search_of(env, item.task, policy, settings)
            tree = await (search_steps(search) if by_steps else search.run())
        if judge is None:
            return tree
        async with session(make_env) as again:
            return await checked(tree, again, resets)

    return work


def choices(
    make_env: Callable[[], Env], policy: Policy, settings: SearchSettings, choice: Choice, score: Score | None = None
) -> Work:
    """Independent episodes of each task, of which one is chosen; see `episodes.chosen_of`."""

    async def work(item: Item, resets: Resets) -> TreeRecord:
        async with session(make_env) as env:
            return await chosen_of(env, item.task, policy, settings, choice, score, resets)

    return work


class Collection(AbstractContextManager["Collection"]):
    """The results of a stage under way, which only this object writes.

    Counts items, and notes how many are done when it ends.
    Broken items wait in `held` until a first page shows that the world still works.
    """

    def __init__(self, store: RunStore, stage: str, total: int, done: int, on_item: OnItem, on_growth: OnGrowth):
        self.store, self.stage, self.total, self.done = store, stage, total, done
        self.on_item, self.on_growth = on_item, on_growth
        self.resets = Resets(BROKEN_IN_A_ROW, self.grew)
        self.growing: dict[int, tuple[float, int]] = {}  # see `OnGrowth`
        self.held, self.unsettled = list[tuple[Item, Finished]](), list[tuple[Item, Finished]]()
        self.settled = time.monotonic()

    def grew(self, seed: int, rollouts: int, share: float) -> None:
        """See `Resets`."""
        self.growing[seed] = share, rollouts
        self.on_growth(self.growing)

    def keep(self, item: Item, found: Finished | None, *, soon: bool = False) -> None:
        """Keep an item, or hold it if the world broke it and has not shown a first page since.

        `soon`: it is in the store, and counts as done, by the next `settle`, which the caller promises.
        """
        if found is None:
            self._count(item, False)
        elif self.resets.in_a_row and found.faulty:
            self.held.append((item, found))
        else:
            self.unsettled.append((item, found))
            if not self.resets.in_a_row:
                self._let_go()
            if not soon or time.monotonic() - self.settled > LONGEST_S:
                self.settle()

    def settle(self) -> None:
        """Write the items that ended since the last call in one transaction, then count them."""
        written, self.unsettled, self.settled = self.unsettled, [], time.monotonic()
        if written:
            with self.store.transaction():
                for item, found in written:
                    key = item.key if found.kind == TRAJECTORY else str(item.task.seed)
                    self.store.add(self.stage, found.kind, key, found.packed)
        for item, found in written:
            self._count(item, found.success, found.message)

    def _count(self, item: Item, success: bool | None, message: str = "") -> None:
        self.growing.pop(item.task.seed, None)
        self.done += 1
        self.on_item(self.done, self.total, success, message)

    def _let_go(self) -> None:
        """Keep the held items."""
        self.unsettled += self.held
        self.held.clear()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.settle()
        gone = kind is None and bool(self.held) and not self.done
        if kind is None and not gone:
            self._let_go()
            self.settle()
        note = self.store.note(self.stage) or {}
        self.store.set_note(self.stage, {**note, "done": self.done, "total": self.total})
        if gone:
            raise self.resets.gone()
