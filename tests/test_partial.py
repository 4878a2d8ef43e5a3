"""A search that was killed goes on from what it kept, and becomes the tree that it would have become."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import pytest

from agentq.config import Selection
from agentq.policies.scripted import ScriptedPolicy
from agentq.searching import partial
from agentq.searching.collect import attempts, collect, inline, trees
from agentq.searching.faults import Broken
from agentq.searching.selection import SearchSettings
from agentq.searching.tree import TreeSearch
from agentq.store.partial import PartialTree
from agentq.store.records import TreeRecord
from agentq.store.run import PARTIAL, TREE, RunStore
from agentq.types import History, Observation, Split, Task
from tests.test_search import Lock, _click, _same

RULES: tuple[Selection, ...] = get_args(Selection)
TASKS = [Task("lock", seed, Split.TRAIN, "open") for seed in (1, 2)]


class Killed(BaseException):
    """Stands for the end of the process."""


class Weights(ScriptedPolicy):
    """A policy of some version."""

    version = 0


def collected(
    folder: Path,
    settings: SearchSettings,
    *,
    dies_after: int = 10**9,
    restores: bool = True,
    by_steps: bool = False,
    env: type[Lock] = Lock,
    version: int = 0,
) -> list[TreeRecord]:
    """The stage's trees; the process dies at the policy's call number `dies_after`."""
    calls = iter(range(10**9))

    def act(history: History, rng: np.random.Generator) -> tuple[str, float]:
        if next(calls) >= dies_after:
            raise Killed
        return _click(history, rng)

    policy = Weights(act)
    policy.version = version
    with RunStore.open(folder, {}) as store:
        work = trees(lambda: env(restores), policy, None, settings, by_steps=by_steps, kept_in=(store, "s"))
        leaves = settings.leaves_in_flight
        collect(store, "s", attempts(TASKS), inline(work), in_flight=leaves, sessions=leaves, on_item=lambda *_: None)
        assert store.count("s", PARTIAL) == 0
        return list(store.trees("s"))


@pytest.fixture(autouse=True)
def _kept_after_every_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partial, "EVERY_S", 0.0)
    monkeypatch.setattr(partial, "SHARE", 0)


def until_done(run: Callable[[], list[TreeRecord]]) -> tuple[int, list[TreeRecord]]:
    """How often it died, and what it returned at last."""
    for deaths in range(60):
        try:
            return deaths, run()
        except Killed:
            continue
    raise AssertionError("a killed search must get on")


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("restores", [True, False])
@pytest.mark.parametrize("by_steps", [False, True])
def test_a_killed_search_becomes_the_tree_of_one_that_was_not(
    tmp_path: Path, rule: Selection, restores: bool, by_steps: bool
) -> None:
    settings = SearchSettings(3 if by_steps else 9, 4, selection=rule, seed=2)  # few: later steps need samples too
    how: dict[str, Any] = {"restores": restores, "by_steps": by_steps}
    whole = collected(tmp_path / "whole", settings, **how)
    deaths, killed = until_done(lambda: collected(tmp_path / "killed", settings, dies_after=14, **how))
    assert deaths >= 3
    assert all(_same(a, b) for a, b in zip(killed, whole, strict=True))
    assert [tree.info["iterations"] for tree in killed] == [tree.info["iterations"] for tree in whole]


def test_several_leaves_in_flight_go_on_too(tmp_path: Path) -> None:
    settings = SearchSettings(12, 4, seed=3, leaves_in_flight=3)
    whole = collected(tmp_path / "whole", settings)
    deaths, killed = until_done(lambda: collected(tmp_path / "killed", settings, dies_after=40))
    assert deaths >= 1 and all(_same(a, b) for a, b in zip(killed, whole, strict=True))


def test_all_that_is_known_of_the_nodes_comes_back(tmp_path: Path) -> None:
    def fresh() -> TreeSearch:
        return TreeSearch(Lock(), TASKS[0], ScriptedPolicy(_click), SearchSettings(27, 30, seed=2))

    def known(search: TreeSearch) -> list[Any]:
        rows = search.forest.table(search.tree)["id"].tolist()
        nodes = [search.nodes[i] for i in rows]
        return [
            (
                [rows.index(child.id) for child in node.children if child.id is not None],
                (node.proposal and node.proposal.action, node.value, node.history, node.result, node.total),
                (node.restored, node.broke, node.fault and (node.fault.kind, node.fault.message)),
            )
            for node in nodes
        ]

    search, again = fresh(), fresh()
    asyncio.run(search.run())
    search.root.children[1].broke, search.root.children[1].fault = 1, Broken("network", "no answer")
    search.begun -= 1000
    with RunStore.open(tmp_path, {}) as store:
        partial.PartialTrees(store, "s").keep(search)
        again.partials = partial.PartialTrees(store, "s")
        asyncio.run(again.open())
    assert known(again) == known(search)
    assert again.root.snapshot == () and again.sessions[0].position is again.root  # it shows the first page
    assert search.info() == again.info() | {"seconds": pytest.approx(again.info()["seconds"], abs=10)}


KILL = """
import os, signal, sys
from agentq.policies.scripted import ScriptedPolicy
from agentq.searching import partial
from agentq.searching.collect import attempts, collect, inline, trees
from agentq.searching.selection import SearchSettings
from agentq.store.run import RunStore
from tests.test_partial import TASKS
from tests.test_search import Lock, _click
partial.EVERY_S = partial.SHARE = 0
calls = iter(range(int(sys.argv[2])))
def act(history, rng):
    if next(calls, None) is None:
        os.kill(os.getpid(), signal.SIGKILL)
    return _click(history, rng)
with RunStore.open(sys.argv[1], {}) as store:
    settings = SearchSettings(9, 4, seed=2)
    work = trees(Lock, ScriptedPolicy(act), None, settings, kept_in=(store, "s"))
    collect(store, "s", attempts(TASKS), inline(work), in_flight=1, on_item=lambda *_: None)
"""


@pytest.mark.parametrize("moment", [25, 30, 47])
def test_a_search_survives_sigkill(tmp_path: Path, moment: int) -> None:
    whole = collected(tmp_path / "whole", SearchSettings(9, 4, seed=2))
    for kills in range(30):  # noqa: B007
        words = [sys.executable, "-c", KILL, str(tmp_path / "killed"), str(moment)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode != -signal.SIGKILL:
            break
    assert (done.returncode, done.stderr) == (0, "") and kills >= 1
    with RunStore.open(tmp_path / "killed", {}) as store:
        assert store.count("s", PARTIAL) == 0
        assert all(_same(a, b) for a, b in zip(store.trees("s"), whole, strict=True))


class Renamed(Lock):
    """The site has changed: its first page is another."""

    def reset(self, task: Task) -> Observation:
        page = super().reset(task)
        return replace(page, text=f"{page.text} today")


def edited(change: Callable[[PartialTree], None]) -> Callable[[RunStore], None]:
    """Rewrites what was kept of every tree, as a program with a bug would."""

    def edit(store: RunStore) -> None:
        tree = store.partial("s", TASKS[0].seed)
        assert tree is not None
        change(tree)
        store.set_partial("s", tree)

    return edit


def cut_short(tree: PartialTree) -> None:
    tree.forest = tree.forest[:-8]


def without_a_page(tree: PartialTree) -> None:
    tree.observation[0] = None


def with_a_node_too_many(tree: PartialTree) -> None:
    for rows in (tree.proposal, tree.observation, tree.result):
        rows.append(rows[-1])  # type: ignore[attr-defined]


def of_another_task(tree: PartialTree) -> None:
    tree.task = replace(tree.task, instruction="close")


def torn(store: RunStore) -> None:
    with sqlite3.connect(store.path / "run.sqlite") as database:
        database.execute("UPDATE items SET record = substr(record, 1, 99) WHERE kind = 'partial'")


@pytest.mark.parametrize(
    ("damage", "then", "said"),
    [
        (torn, {}, "is damaged"),
        (edited(cut_short), {}, "a forest snapshot must be whole"),
        (edited(without_a_page), {}, "node 1 must come after its parent"),
        (edited(with_a_node_too_many), {}, "must have one entry per node"),
        (edited(of_another_task), {}, "its task must be the same; got 'close'"),
        (None, {"env": Renamed}, "its first page must be the one that the task has now"),
        (None, {"version": 7}, "its policy_version must be 7; got 0"),
        (None, {"settings": SearchSettings(9, 4, seed=5)}, "its seed must be 5; got 2"),
    ],
    ids=["torn", "cut short", "no page", "a node more", "another task", "another page", "other weights", "other seed"],
)
def test_a_damaged_or_foreign_tree_is_dropped_with_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: Any, then: dict[str, Any], said: str
) -> None:
    first: dict[str, Any] = {"settings": SearchSettings(9, 4, seed=2)}
    with pytest.raises(Killed):
        collected(tmp_path / "killed", **first, dies_after=30)
    with RunStore.open(tmp_path / "killed", {}) as store:
        assert store.count("s", PARTIAL) == 1
        if damage is not None:
            damage(store)
    found = collected(tmp_path / "killed", **(first | then))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and "task 1 of s is searched anew; its half-grown tree: " in lines[0] and said in lines[0]
    whole = collected(tmp_path / "whole", **(first | then))
    assert all(_same(a, b) for a, b in zip(found, whole, strict=True))


def test_a_tree_is_kept_at_a_bounded_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[str] = []
    monkeypatch.setattr(RunStore, "set_partial", lambda store, stage, tree: writes.append(stage))
    collected(tmp_path / "often", SearchSettings(9, 4, seed=2))
    assert len(writes) == 2 * 9
    monkeypatch.setattr(partial, "EVERY_S", 60.0)
    collected(tmp_path / "never", SearchSettings(9, 4, seed=2))
    assert len(writes) == 2 * 9


def test_a_write_that_takes_long_is_followed_by_a_wait_in_proportion(monkeypatch: pytest.MonkeyPatch) -> None:
    now, writes = [100.0], list[float]()

    class Slow:
        def set_partial(self, stage: str, tree: PartialTree) -> None:
            now[0] += 0.5
            writes.append(now[0])

    search = TreeSearch(Lock(), TASKS[0], ScriptedPolicy(_click), SearchSettings(2, 3))
    asyncio.run(search.run())
    clock = SimpleNamespace(monotonic=lambda: now[0], perf_counter=time.perf_counter)
    for name, value in (("time", clock), ("EVERY_S", 2.0), ("SHARE", 20)):
        monkeypatch.setattr(partial, name, value)
    kept = partial.PartialTrees(Slow(), "s")  # type: ignore[arg-type]
    for moment in (101.9, 102.0, 112.4, 112.5):  # 20 times half a second after the first write
        now[0] = moment
        kept.keep(search)
    assert writes == [102.5, 113.0]


def test_a_finished_tree_takes_the_place_of_what_was_kept(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        collected(tmp_path, SearchSettings(9, 4, seed=2), dies_after=30)
    with RunStore.open(tmp_path, {}) as store:
        assert store.count("s", PARTIAL) == 1 and store.done("s") == set() and store.count("s", TREE) == 0
    (tree, _) = collected(tmp_path, SearchSettings(9, 4, seed=2))
    with RunStore.open(tmp_path, {}) as store:
        assert store.partial("s", tree.task.seed) is None
