"""Items that the world broke while it showed no first page."""

from __future__ import annotations

from pathlib import Path

from agentq.searching.collect import Collection, Item
from agentq.searching.faults import Broken
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
