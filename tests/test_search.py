"""The search driver on a toy environment: a lock that opens after the right clicks, with and without restore."""

from __future__ import annotations

import gc
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentq.agent.actions import format_action
from agentq.critics.ranker import rank_values
from agentq.errors import EnvError
from agentq.policies.scripted import ScriptedPolicy
from agentq.searching.collect import attempts, collect, inline, trees
from agentq.searching.nodes import Node
from agentq.searching.run import run_all, wait_for
from agentq.searching.selection import SearchSettings
from agentq.searching.tree import TreeSearch
from agentq.store.records import TreeRecord
from agentq.store.run import RunStore
from agentq.types import Command, EnvAction, History, Observation, Split, StepResult, Task

CODE = (2, 0, 1)
TASK = Task("lock", 7, Split.TRAIN, "open the lock")


class Lock:
    """Three clicks out of {0, 1, 2}; success only for CODE. The page shows what was clicked."""

    name, max_steps, restored = "lock", 3, "exact"

    def __init__(self, restores: bool = True, *, blocking: bool = False, forgets: bool = False) -> None:
        self.blocking = blocking
        if not restores:
            self.snapshot = None
        self.forgets = forgets  # a page that differs on every visit, as a live site's might
        self.clicked: tuple[int, ...] = ()
        self.resets = 0

    def _page(self) -> Observation:
        noise = f" visit {self.resets}" if self.forgets else ""
        return Observation(f"heading {' '.join(map(str, self.clicked))}{noise}")

    def reset(self, task: Task) -> Observation:
        self.clicked, self.resets = (), self.resets + 1
        return self._page()

    def step(self, env_action: EnvAction | None) -> StepResult:
        assert env_action is not None and env_action.element is not None and len(self.clicked) < 3
        self.clicked += (env_action.element,)
        opened = self.clicked == CODE
        return StepResult(self._page(), float(opened), terminated=len(self.clicked) == 3, success=opened)

    def snapshot(self) -> tuple[int, ...]:
        return self.clicked

    def restore(self, token: tuple[int, ...]) -> Observation:
        self.clicked = token
        return self._page()

    def fork(self) -> Lock:
        raise AssertionError("the driver needs no fork")

    def close(self) -> None:
        pass


class Passing(Lock):
    """A lock that says success at the second click, and never at the third, which ends the episode."""

    def step(self, env_action: EnvAction | None) -> StepResult:
        result = super().step(env_action)
        return replace(result, reward=0.0, success=len(self.clicked) == 2)

    def fork(self) -> Passing:
        return Passing()


def _click(history: History, rng: np.random.Generator) -> tuple[str, float]:
    return format_action(EnvAction(Command.CLICK, int(rng.integers(3)))), float(np.log(1 / 3))


class _Knows:
    """A critic that ranks the code's next click first."""

    async def rank(self, history: History, proposals: Sequence[EnvAction | None], *, seed: int) -> list[float]:
        wanted = CODE[len(history.actions)]
        order = sorted(range(len(proposals)), key=lambda i: getattr(proposals[i], "element", None) != wanted)
        return rank_values(order)


def _search(
    settings: SearchSettings,
    *,
    tasks: int = 1,
    in_flight: int = 1,
    critic: bool = False,
    env: type[Lock] = Lock,
    **kwargs: object,
) -> list[TreeRecord]:
    found: dict[int, TreeRecord] = {}

    async def work(seed: int) -> TreeRecord:
        lock, task = env(**kwargs), Task("lock", seed, Split.TRAIN, "open")  # type: ignore[arg-type]
        policy = ScriptedPolicy(_click)
        return await TreeSearch(lock, task, policy, settings, critic=_Knows() if critic else None).run()

    run_all(range(tasks), work, in_flight=in_flight, on_done=lambda tree: found.update({tree.task.seed: tree}))
    return [found[seed] for seed in range(tasks)]


def _same(a: TreeRecord, b: TreeRecord) -> bool:
    columns = ("parent", "visit_count", "value_sum", "critic_value", "flags", "reward")
    texts = [[p and p.action.text for p in tree.proposal] for tree in (a, b)]
    return texts[0] == texts[1] and all(np.array_equal(getattr(a, c), getattr(b, c)) for c in columns)


def test_search_without_critic_finds_the_code_and_counts_every_rollout() -> None:
    (tree,) = _search(SearchSettings(num_iterations=60, num_proposals=12))
    assert tree.info["succeeded"] and tree.success.sum() == 1
    won = int(np.flatnonzero(tree.success)[0])
    assert [tree.proposal[i].action.env_action.element for i in tree.path(won)[1:]] == list(CODE)  # type: ignore[union-attr]
    assert tree.visit_count[0] == tree.info["iterations"]
    assert tree.value_sum[0] == 1.0  # every end is visited once: the tree is exhausted leaf by leaf
    for node in range(len(tree)):
        children = tree.children(node)
        if len(children):
            assert tree.visit_count[children].sum() == tree.visit_count[node]


def test_search_ends_when_the_tree_is_exhausted() -> None:
    (tree,) = _search(SearchSettings(num_iterations=500, num_proposals=30))
    assert tree.info["iterations"] == 27  # 3 ** 3 ends
    assert len(tree) == 1 + 3 + 9 + 27


def test_search_with_a_perfect_critic_succeeds_sooner_and_can_stop_there() -> None:
    iterations = {True: 0, False: 0}
    for seed, critic in product(range(6), iterations):
        settings = SearchSettings(num_iterations=50, num_proposals=20, stop_on_success=True, seed=seed)
        (tree,) = _search(settings, critic=critic)
        assert tree.info["succeeded"] and tree.success.sum() == 1
        iterations[critic] += tree.info["iterations"]
        assert [float(v) for v in tree.critic_value[tree.children(0)]] == ([1.0, 0.5, 0.0] if critic else [0.5] * 3)
    assert iterations[True] < iterations[False]


def test_alpha_weighs_a_critic_and_nothing_where_there_is_none() -> None:
    trees = {}
    for alpha, critic in product((1.0, 0.25), (False, True)):
        settings = SearchSettings(num_iterations=12, num_proposals=20, alpha=alpha, c_exp=0.1)
        (trees[alpha, critic],) = _search(settings, critic=critic)
    assert _same(trees[1.0, False], trees[0.25, False])
    assert not _same(trees[1.0, True], trees[0.25, True])


def test_a_rollout_follows_the_policys_first_sample_whatever_the_critic_thinks() -> None:
    with_critic, without = (_search(SearchSettings(num_iterations=1), critic=c)[0] for c in (True, False))

    def walked(tree: TreeRecord) -> list[object]:
        return [tree.proposal[i].action.env_action for i in tree.path(int(np.argmax(tree.flags)))[1:]]  # type: ignore[union-attr]

    assert len(walked(without)) == 3
    assert walked(with_critic) == walked(without)


def test_search_drops_duplicates_and_keeps_the_first_samples_own_logp() -> None:
    (tree,) = _search(SearchSettings(num_iterations=1, num_proposals=20))
    clicks = [tree.proposal[i].action.env_action for i in tree.children(0)]  # type: ignore[union-attr]
    assert len(clicks) == len(set(clicks)) == 3
    assert tree.proposal[1].action_logp == pytest.approx(np.log(1 / 3), abs=1e-6)  # type: ignore[union-attr]


@pytest.mark.parametrize("critic", [False, True])
def test_search_gives_the_same_trees_whatever_runs_beside_it(critic: bool) -> None:
    settings = SearchSettings(num_iterations=8, num_proposals=4, seed=3)
    alone = _search(settings, tasks=6, in_flight=1, critic=critic)
    together = _search(settings, tasks=6, in_flight=6, critic=critic)
    assert all(_same(a, b) for a, b in zip(alone, together, strict=True))
    other = _search(SearchSettings(num_iterations=8, num_proposals=4, seed=4), tasks=6, critic=critic)
    assert not all(_same(a, b) for a, b in zip(alone, other, strict=True))


def test_search_without_restore_replays_and_builds_the_same_tree() -> None:
    settings = SearchSettings(num_iterations=12, num_proposals=4)
    (restored,), (replayed,) = _search(settings), _search(settings, restores=False)
    assert _same(restored, replayed)
    assert replayed.info["env_steps"] > restored.info["env_steps"]
    assert replayed.info["replay_mismatches"] == 0
    assert set(restored.restored) == {None, "exact"} and set(replayed.restored) == {None, "approximate"}


def test_search_records_a_replay_that_reaches_another_page() -> None:
    settings = SearchSettings(num_iterations=6, num_proposals=12)
    (tree,) = _search(settings, restores=False, forgets=True)
    assert tree.info["replay_mismatches"] > 0
    assert "replay_mismatch" in tree.error_kind and "failed" in tree.restored


def test_environments_that_wait_for_a_process_wait_at_once() -> None:
    settings = SearchSettings(num_iterations=4, num_proposals=4)
    meeting = threading.Barrier(4, timeout=60)  # opens when all four searches are in it

    class Waiting(Lock):
        def reset(self, task: Task) -> Observation:
            meeting.wait()
            return super().reset(task)

    waited = _search(settings, tasks=4, in_flight=4, env=Waiting, blocking=True)
    assert all(_same(a, b) for a, b in zip(waited, _search(settings, tasks=4), strict=True))


def test_a_step_and_its_snapshot_wait_once(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[str] = []

    def in_a_thread(method: Any) -> Future[Any]:
        waits.append(method.func.__name__)
        done = Future[Any]()
        done.set_result(method())
        return done

    monkeypatch.setattr("agentq.envs.calls._submit", in_a_thread)
    (tree,) = _search(SearchSettings(num_iterations=3, num_proposals=3), blocking=True)
    assert waits.count("_take") == tree.info["env_steps"]
    assert set(waits) == {"begin", "snapshot", "_take", "restore"} and waits.count("snapshot") == 1  # the root's


def test_a_page_whose_state_cannot_be_kept_breaks_its_step() -> None:
    class Shy(Lock):
        def snapshot(self) -> tuple[int, ...]:
            if self.clicked == (1,):
                raise EnvError("no state")
            return super().snapshot()

    (tree,) = _search(SearchSettings(num_iterations=40, num_proposals=3), env=Shy)
    assert tree.info["faults"] == {"session_lost": 2} and tree.error_kind.count("session_lost") == 1
    shown = sum(page is not None for page in tree.observation[1:])
    assert tree.info["env_steps"] == shown + 2  # both tries took the step


def test_a_finished_search_leaves_nothing_to_the_garbage_collector() -> None:
    gc.collect()
    gc.disable()
    try:
        _search(SearchSettings(num_iterations=6, num_proposals=3))
        assert not [each for each in gc.get_objects() if type(each) is Node]  # isinstance runs code of others' objects
    finally:
        gc.enable()


def test_many_trees_are_collected_rarely_and_as_before_afterwards() -> None:
    before, during = gc.get_threshold(), []

    async def work(seed: int) -> None:
        during.append(gc.get_threshold())
        raise RuntimeError

    with pytest.raises(RuntimeError):
        run_all([0], work, in_flight=1, on_done=lambda _: None)
    assert during == [(*before[:2], 10 * before[2])] and gc.get_threshold() == before
    with pytest.raises(RuntimeError):
        run_all([0], work, in_flight=1024, on_done=lambda _: None)
    assert during[1:] == [(*before[:2], 64 * before[2])] and gc.get_threshold() == before


def test_wait_for_does_not_print_the_result() -> None:
    printed: list[object] = []

    class Large:
        def __repr__(self) -> str:
            printed.append(self)
            return ""

    async def work() -> Large:
        return Large()

    assert isinstance(wait_for(work()), Large) and not printed


def test_a_failing_model_fails_the_run_with_its_own_error() -> None:
    def fail(history: History, rng: np.random.Generator) -> tuple[str, float]:
        raise RuntimeError("the model died")

    searches: list[TreeSearch] = []

    async def work(seed: int) -> TreeRecord:
        task = Task("lock", seed, Split.TRAIN, "open")
        searches.append(TreeSearch(Lock(), task, ScriptedPolicy(fail), SearchSettings()))
        return await searches[-1].run()

    with pytest.raises(RuntimeError, match="the model died"):
        run_all(range(4), work, in_flight=4, on_done=lambda _: None)
    assert [search.forest.num_in_flight for search in searches] == [0] * 4


def test_collection_goes_on_where_an_interrupted_one_stopped(tmp_path: Path) -> None:
    tasks = [Task("lock", seed, Split.TRAIN, "open") for seed in range(8)]
    work = trees(Lock, ScriptedPolicy(_click), None, SearchSettings(num_iterations=5, num_proposals=4))

    def interrupt(done: int, total: int, success: bool, message: str) -> None:
        if done == 3:
            raise OSError("the disk is full")

    def ignore(done: int, total: int, success: bool, message: str) -> None:
        pass

    with RunStore.open(tmp_path / "a", {}) as store, pytest.raises(OSError, match="disk is full"):
        collect(store, "search", attempts(tasks), inline(work), in_flight=2, on_item=interrupt)
    with RunStore.open(tmp_path / "a", {}) as store:
        kept = len(store.done("search"))
        assert 3 <= kept < 8
        counted: list[int] = []
        collect(
            store, "search", attempts(tasks), inline(work), in_flight=2, on_item=lambda done, *_: counted.append(done)
        )
        assert counted == list(range(kept + 1, 9))
        resumed = list(store.trees("search"))
    with RunStore.open(tmp_path / "b", {}) as store:
        collect(store, "search", attempts(tasks), inline(work), in_flight=2, on_item=ignore)
        whole = list(store.trees("search"))
    assert all(_same(a, b) for a, b in zip(resumed, whole, strict=True))
