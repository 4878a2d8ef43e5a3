"""Items that the world broke while it showed no first page, and those that killed their workers."""

from __future__ import annotations

import asyncio
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agentq.error_kinds import WORKER_LOST
from agentq.errors import ModelError, StoreError
from agentq.policies.usage import Usage
from agentq.searching import collect as searching_collect
from agentq.searching import worker
from agentq.searching.collect import Collection, Item, collect, finished, inline
from agentq.searching.faults import Broken
from agentq.searching.rollout import broken_episode
from agentq.searching.run import wait_for
from agentq.searching.workers import ALONE, Link, _Stage
from agentq.store.packed import pack
from agentq.store.records import decode_trajectory
from agentq.store.run import TRAJECTORY, TREE, RunStore
from agentq.types import Trajectory
from tests.credit_factory import episode


def test_broken_items_are_held_until_a_first_page_is_shown(tmp_path: Path) -> None:
    told: list[tuple[int, bool | None]] = []
    whole = episode(1, "p", True, 7)
    broken, good = Item(whole.task, 0), Item(whole.task, 1)
    with RunStore.open(tmp_path, {}) as store:
        with Collection(store, "x", 2, 0, lambda done, _, won, *more: told.append((done, won)), print) as collection:
            collection.resets.failed("booking", whole.task.seed, "no route")
            collection.keep(
                broken, finished(broken_episode(whole.task, Broken("reset_failed", "no route"), {"attempt": 0}))
            )
            assert store.count("x", TRAJECTORY) == 0 and told == []
            collection.resets.shown()
            collection.keep(good, finished(whole))
            assert store.keys("x", TRAJECTORY) == {broken.key, good.key}
        assert told == [(1, True), (2, None)] and (store.note("x") or {})["done"] == 2


def test_items_that_end_together_are_written_together_and_count_once_they_are_in_the_store(tmp_path: Path) -> None:
    told: list[tuple[int, int, int]] = []  # items done, in the store, transactions
    begun: list[str] = []
    tasks = [episode(seed, "p", True, 7).task for seed in range(3)]

    async def work(item: Item, resets: object) -> Trajectory:
        await asyncio.sleep(0.01 if item.task.seed == 2 else 0)
        return episode(item.task.seed, "p", True, 7)

    with RunStore.open(tmp_path, {}) as store, RunStore.read(tmp_path) as reader:
        store._database.set_trace_callback(lambda sql: begun.extend([sql] * sql.startswith("BEGIN")))
        collect(
            store,
            "x",
            [Item(task) for task in tasks],
            inline(work),
            in_flight=3,
            on_item=lambda done, *_: told.append((done, reader.count("x", TRAJECTORY), len(begun))),
        )
    assert told == [(1, 2, 1), (2, 2, 1), (3, 3, 2)]


def test_items_that_ended_are_kept_if_another_one_fails_in_the_same_turn(tmp_path: Path) -> None:
    async def work(item: Item, resets: object) -> Trajectory:
        await asyncio.sleep(0)
        if not item.attempt:
            raise ModelError("the engine stopped")
        return episode(1, "p", True, 7)

    told: list[int] = []
    with RunStore.open(tmp_path, {}) as store:
        with pytest.raises(ModelError, match="stopped"):
            collect(store, "x", [FIRST, SECOND], inline(work), in_flight=2, on_item=lambda done, *_: told.append(done))
        assert store.keys("x", TRAJECTORY) == {SECOND.key} and told == [1]


def test_items_that_could_not_be_written_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(item: Item, resets: object) -> Trajectory:
        return episode(1, "p", True, 7)

    def full(*_: object) -> bool:
        raise StoreError("the disk is full")

    told: list[int] = []
    with RunStore.open(tmp_path, {}) as store:
        monkeypatch.setattr(store, "add", full)
        with pytest.raises(StoreError, match="full"):
            collect(store, "x", [FIRST], inline(work), in_flight=1, on_item=lambda done, *_: told.append(done))
        assert store.keys("x", TRAJECTORY) == set() and told == [] and (store.note("x") or {})["done"] == 0


def test_an_item_is_written_before_the_turn_ends_if_that_takes_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching_collect, "LONGEST_S", 0.0)
    seen: list[int] = []

    with RunStore.open(tmp_path, {}) as store:

        async def work(item: Item, resets: object) -> Trajectory:
            await asyncio.sleep(0)
            seen.append(store.count("x", TRAJECTORY))
            return episode(1, "p", True, 7)

        collect(store, "x", [FIRST, SECOND], inline(work), in_flight=2, on_item=lambda *_: None)
    assert seen == [0, 1]


class Sent(Link):
    """A worker that is told nothing."""

    def send(self, *message: object) -> None: ...

    def close(self) -> None: ...


class Kept:
    """A run whose workers die; `records` are kept. It holds the same half-grown tree for every task."""

    num_workers, stage = 1, "x"

    def __init__(self) -> None:
        self.store, self.records = self, list[Any]()

    def partial(self, stage: str, seed: int) -> str:
        return f"{stage} {seed}"

    def lose(self, worker: Link) -> None: ...

    def keep(self, item: Item, record: Any) -> None:
        self.records.append(record)


def stage_of(run: Any, kind: str) -> _Stage:
    return _Stage(run, cast(Any, None), kind, deque(), run, 4)


TASK = episode(1, "p", True, 7).task
FIRST, SECOND = Item(TASK, 0), Item(TASK, 1)


def worker_with(*items: Item, begun: bool = True) -> Link:
    link = Sent(placed=True)
    link.begun, link.doing = begun, {item.key: item for item in items}
    return link


def test_an_item_whose_workers_died_twice_is_done_alone() -> None:
    stage = stage_of(Kept(), TRAJECTORY)
    for deaths, together in ((ALONE - 1, True), (ALONE, False)):
        stage.deaths[FIRST.key] = deaths
        assert stage._has_room(worker_with(FIRST), SECOND) is stage._has_room(worker_with(SECOND), FIRST) is together
        assert stage._has_room(worker_with(), FIRST)


def test_an_item_whose_workers_died_three_times_is_kept_as_broken() -> None:
    run = Kept()
    stage = stage_of(run, TRAJECTORY)
    for left in (2, 1, 0):
        assert not run.records
        stage.queue.clear()
        stage._mourn(worker_with(SECOND))
        assert list(stage.queue) == [SECOND] * (left > 0)
    ((kind, packed, success, faulty, message),) = run.records
    assert (kind, success, faulty) == (TRAJECTORY, None, True) and "worker" in message
    record = decode_trajectory(packed.record, lambda keys: {})
    assert record.fault == WORKER_LOST and record.info["attempt"] == 1


def test_workers_that_die_before_they_begin_end_the_run() -> None:
    stage = stage_of(Kept(), TRAJECTORY)
    for _ in range(2):
        stage._mourn(worker_with(begun=False))
    with pytest.raises(ModelError, match="3 died while loading"):
        stage._mourn(worker_with(begun=False))


def test_a_worker_gets_the_half_grown_tree_of_its_task() -> None:
    assert stage_of(Kept(), TREE)._partial(FIRST) == f"x {TASK.seed}"
    assert stage_of(Kept(), TRAJECTORY)._partial(FIRST) is None


class Wire:
    """A connection that keeps what is sent, and whose other side is closed."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def send(self, message: Any) -> None:
        self.sent.append(message)

    def recv(self) -> Any:
        raise EOFError


def test_a_worker_goes_on_with_the_tree_that_came_with_its_item() -> None:
    wire: Any = Wire()
    serving = worker._Serving(wire)
    serving.resources = cast(Any, SimpleNamespace(usage=Usage()))

    given: list[Any] = []

    async def work(item: Item, resets: object) -> Any:
        given.extend(serving.kept.partial("x", item.task.seed) for _ in range(2))
        return episode(1, "p", True, 7)

    serving.work = work
    wait_for(serving._do(FIRST, cast(Any, "tree")))
    assert given == ["tree", None]  # given once
    ((what, key, (kind, packed, success, faulty, _), _),) = wire.sent
    assert (what, key, kind, success, faulty) == ("done", FIRST.key, TRAJECTORY, True, False)
    assert packed == pack(episode(1, "p", True, 7))  # what the store keeps


def test_a_worker_ends_when_its_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ended(Exception): ...

    def end(code: int) -> None:
        raise Ended

    monkeypatch.setattr(worker.os, "_exit", end)
    serving = worker._Serving(cast(Any, Wire()))
    with pytest.raises(Ended):
        serving._receive(cast(Any, None), cast(Any, None))
