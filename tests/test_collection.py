"""Items that the world broke while it showed no first page, and those that killed their workers."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from agentq.searching.collect import Collection, Item
from agentq.searching.faults import Broken
from agentq.searching.processes import ALONE, _Link, _Stage
from agentq.searching.rollout import broken_episode
from agentq.store.run import TRAJECTORY, RunStore
from tests.credit_factory import episode


def test_broken_items_are_held_until_a_first_page_is_shown(tmp_path: Path) -> None:
    told: list[tuple[int, bool | None]] = []
    whole = episode(1, "p", True, 7)
    broken, good = Item(whole.task, 0), Item(whole.task, 1)
    with RunStore.open(tmp_path, {}) as store:
        with Collection(store, "x", 2, 0, lambda done, total, won: told.append((done, won))) as collection:
            collection.resets.failed("booking", "no route")
            collection.keep(broken, broken_episode(whole.task, Broken("reset_failed", "no route"), {"attempt": 0}))
            assert store.count("x", TRAJECTORY) == 0 and told == []
            collection.resets.shown()
            collection.keep(good, whole)
            assert store.keys("x", TRAJECTORY) == {broken.key, good.key}
        assert told == [(1, True), (2, None)] and (store.note("x") or {})["done"] == 2


def test_an_item_whose_workers_died_twice_is_done_alone() -> None:
    none: Any = None
    first, second = (Item(episode(1, "p", True, 7).task, attempt) for attempt in range(2))
    stage, worker = _Stage(SimpleNamespace(num_workers=1), none, TRAJECTORY, deque(), None, 4), _Link(none)  # type: ignore[arg-type]
    for deaths, together in ((ALONE - 1, True), (ALONE, False)):
        stage.deaths[first.key] = deaths
        for doing, item in ((first, second), (second, first)):
            worker.doing = {doing.key: doing}
            assert stage._has_room(worker, item) is together
        worker.doing = {}
        assert stage._has_room(worker, first)
