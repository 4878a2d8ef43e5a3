"""Collection by worker processes: the same stores as in one process, however many there are and whichever die."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agentq import envs
from agentq.error_kinds import WORKER_LOST
from agentq.errors import EnvError, ModelError
from agentq.searching.collect import Execute, attempts, collect, inline
from agentq.searching.processes import Processes
from agentq.searching.worker import Job
from agentq.store.packed import Packed
from agentq.store.partial import decode_partial
from agentq.store.records import encode_trajectory, encode_tree
from agentq.store.run import PARTIAL, TRAJECTORY, TREE, RunStore
from agentq.types import Split
from tests import processes_lab
from tests.processes_lab import Lab

TASKS = envs.tasks("booking", Split.TRAIN, 9)
KINDS: dict[str, tuple[Job, int]] = {
    TREE: (partial(processes_lab.searches, stage="x"), 1),
    TRAJECTORY: (processes_lab.episodes, 3),
}


@pytest.fixture
def started() -> Iterator[Callable[[Lab, int], Processes]]:
    """Starts processes that are ended after the test."""
    made: list[Processes] = []

    def start(lab: Lab, n: int) -> Processes:
        made.append(Processes(lab, n))
        return made[-1]

    yield start
    for processes in made:
        processes.close()


def test_work_begins_when_a_worker_has_loaded(started: Callable[[Lab, int], Processes], tmp_path: Path) -> None:
    told: list[Any] = []
    job, n = KINDS[TREE]
    with RunStore.open(tmp_path / "run", {}) as store:
        execute = started(Lab(tmp_path / "log"), 2).stage(job, TREE)
        keep, grow = (lambda done, *_: told.append(done)), lambda growing: told.append(dict(growing))
        collect(store, "x", attempts(TASKS[:2], n), execute, in_flight=2, on_item=keep, on_growth=grow)
    assert told[0] == {} and told[-1] == 2


def filled(out: Path, execute: Execute, kind: str, in_flight: int = 4) -> list[Any]:
    """The stage's records without what took time."""
    counted: list[int] = []
    with RunStore.open(out, {}) as store:
        items = attempts(TASKS, KINDS[kind][1])
        collect(store, "x", items, execute, in_flight=in_flight, on_item=lambda done, *_: counted.append(done))
        assert counted == list(range(1, len(items) + 1))
        return contents(store, kind)


def contents(store: RunStore, kind: str) -> list[Any]:
    for tree in (trees := list(store.trees("x"))):
        tree.info.pop("seconds", None)
    return [encode_tree(tree) for tree in trees] if kind == TREE else [*map(encode_trajectory, store.trajectories("x"))]


def requests(processes: Processes) -> int:
    return processes.usage.total.requests


@pytest.mark.parametrize("kind", KINDS)
def test_any_number_of_workers_fills_the_same_store(
    kind: str, tmp_path: Path, started: Callable[[Lab, int], Processes]
) -> None:
    job, _ = KINDS[kind]
    alone = Lab(tmp_path / "log")
    with RunStore.open(tmp_path / "unused", {}) as unused:
        expected = filled(tmp_path / "inline", inline(job(alone, unused)), kind)
    for n in (1, 2, 3):
        processes = started(Lab(tmp_path / "log"), n)
        assert filled(tmp_path / str(n), processes.stage(job, kind), kind) == expected
        assert requests(processes) == alone.usage.total.requests > 0


def test_the_run_hears_of_every_rollout_of_trees_that_have_not_ended(
    tmp_path: Path, started: Callable[[Lab, int], Processes]
) -> None:
    job, _ = KINDS[TREE]
    with RunStore.open(tmp_path / "unused", {}) as unused:
        in_one = inline(job(Lab(tmp_path / "log"), unused))
        for where, execute in {"inline": in_one, "workers": started(Lab(tmp_path / "log"), 2).stage(job, TREE)}.items():
            told: dict[int, list[tuple[float, int]]] = {task.seed: [] for task in TASKS}
            unfinished: list[int] = []

            def on_growth(growing: Mapping[int, tuple[float, int]], told: Any = told, n: Any = unfinished) -> None:
                n.append(len(growing))
                for seed, grown in growing.items():
                    told[seed] += [grown] if [grown] != told[seed][-1:] else []

            with RunStore.open(tmp_path / where, {}) as store:
                collect(store, "x", attempts(TASKS), execute, in_flight=4, on_item=print, on_growth=on_growth)
            assert all(of == [(n / 4, n) for n in (1, 2, 3, 4)] for of in told.values()), (where, told)
            assert max(unfinished) <= 4  # those that ended are forgotten


def test_workers_that_rest_are_gone_and_work_again(tmp_path: Path, started: Callable[[Lab, int], Processes]) -> None:
    processes = started(Lab(tmp_path / "log"), 2)
    first = filled(tmp_path / "first", processes.stage(KINDS[TREE][0], TREE), TREE)
    processes.rest()
    assert processes._server.poll() is not None and not processes.links
    assert filled(tmp_path / "second", processes.stage(KINDS[TREE][0], TREE), TREE) == first


@pytest.mark.parametrize("kind", KINDS)
def test_items_of_a_dead_worker_are_done_again(
    kind: str, tmp_path: Path, started: Callable[[Lab, int], Processes]
) -> None:
    expected = filled(tmp_path / "whole", started(Lab(tmp_path / "log"), 2).stage(KINDS[kind][0], kind), kind)
    lab = Lab(tmp_path / "deaths", {TASKS[2].instruction: 2, TASKS[5].instruction: 1})
    assert filled(tmp_path / "died", started(lab, 2).stage(KINDS[kind][0], kind), kind) == expected
    assert len(lab.log.read_text().splitlines()) == 3


def test_items_of_a_worker_without_memory_are_done_again(
    tmp_path: Path, started: Callable[[Lab, int], Processes]
) -> None:
    expected = filled(tmp_path / "whole", started(Lab(tmp_path / "log"), 2).stage(KINDS[TREE][0], TREE), TREE)
    lab = Lab(tmp_path / "deaths", {TASKS[2].instruction: 1}, starves=True)
    assert filled(tmp_path / "starved", started(lab, 2).stage(KINDS[TREE][0], TREE), TREE) == expected
    assert lab.log.read_text().splitlines() == [TASKS[2].instruction]


@pytest.mark.parametrize("kind", KINDS)
def test_an_item_that_kills_three_workers_is_kept_as_broken_and_no_other(
    kind: str, tmp_path: Path, started: Callable[[Lab, int], Processes]
) -> None:
    whole = filled(tmp_path / "whole", started(Lab(tmp_path / "log"), 2).stage(KINDS[kind][0], kind), kind)
    lab = Lab(tmp_path / "deaths", {TASKS[2].instruction: 99})
    found = filled(tmp_path / "died", started(lab, 2).stage(KINDS[kind][0], kind), kind)
    n = KINDS[kind][1]
    assert [a == b for a, b in zip(found, whole, strict=True)] == [task != TASKS[2] for task in TASKS for _ in range(n)]
    with RunStore.read(tmp_path / "died") as store:
        faults = [tree.fault for tree in store.trees("x")] + [t.fault for t in store.trajectories("x")]
    assert [fault for fault in faults if fault] == [WORKER_LOST] * n
    assert len(lab.log.read_text().splitlines()) <= 3 * n


def test_a_half_grown_tree_goes_from_worker_to_worker(
    tmp_path: Path, started: Callable[[Lab, int], Processes], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[int] = []
    keep = RunStore.add

    def counted(self: RunStore, stage: str, kind: str, key: str, packed: Packed) -> bool:
        if kind == PARTIAL:
            found = decode_partial(
                packed.record, lambda keys: {key: zlib.decompress(packed.blobs[key]) for key in keys}
            )
            kept.append(found.state["left"])
        return keep(self, stage, kind, key, packed)

    monkeypatch.setattr(RunStore, "add", counted)
    lab = Lab(tmp_path / "deaths", {TASKS[0].instruction: 1})
    job = partial(processes_lab.searches, stage="x", every_s=0.0)
    trees = filled(tmp_path / "run", started(lab, 1).stage(job, TREE), TREE)
    assert len(trees) == len(TASKS) and 3 in kept
    with RunStore.read(tmp_path / "run") as store:
        assert store.count("x", "partial") == 0


def test_a_job_that_cannot_begin_and_a_worker_that_dies_of_it_end_the_stage(
    tmp_path: Path, started: Callable[[Lab, int], Processes]
) -> None:
    processes = started(Lab(tmp_path / "log"), 2)
    with pytest.raises(ValueError, match="this job cannot begin") as told:
        processes.load(processes_lab.fails)
    assert "processes_lab.py" in told.value.__notes__[0]
    with pytest.raises(ModelError, match="a worker process must load the models; 3 died while loading"):
        processes.load(processes_lab.dies)
    assert len(filled(tmp_path / "run", processes.stage(KINDS[TREE][0], TREE), TREE)) == len(TASKS), (
        "it can be used again"
    )


def test_first_pages_are_counted_over_all_workers(tmp_path: Path, started: Callable[[Lab, int], Processes]) -> None:
    job = partial(processes_lab.searches, stage="x", reachable=False)
    with pytest.raises(EnvError, match="booking must show a first page; 8 tasks in a row had none"):
        filled(tmp_path / "run", started(Lab(tmp_path / "log"), 2).stage(job, TREE), TREE)
    with RunStore.read(tmp_path / "run") as store:
        assert not store.keys("x", TREE)


DRIVER = """
import sys, time
from functools import partial
from pathlib import Path
from agentq.searching.collect import attempts, collect
from agentq.searching.processes import Processes
from agentq.store.run import RunStore
from tests import processes_lab, test_processes

out = Path(sys.argv[1])
with RunStore.open(out / "run", {}) as store:
    processes = Processes(processes_lab.Lab(out / "log"), 2)
    try:
        job = partial(processes_lab.sleeps, out=out)
        collect(store, "x", attempts(test_processes.TASKS), processes.stage(job, "tree"), in_flight=2,
                on_item=lambda *_: None)
    finally:
        processes.close()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_workers_end_with_the_run(number: signal.Signals, tmp_path: Path) -> None:
    run = subprocess.Popen([sys.executable, "-c", DRIVER, str(tmp_path)], stderr=subprocess.DEVNULL)
    wait_until(lambda: len(list(tmp_path.glob("*.pid"))) == 2)
    pids = [int(path.stem) for path in tmp_path.glob("*.pid")]
    pids += [int(Path(f"/proc/{pid}/stat").read_text().split()[3]) for pid in pids]  # their server
    run.send_signal(number)
    assert run.wait(60) != 0
    wait_until(lambda: not any(alive(pid) for pid in pids))


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # the second: it ended between open and read
        return False


def wait_until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    for _ in range(int(seconds / 0.05)):
        if holds():
            return
        time.sleep(0.05)
    raise AssertionError("it never came")
