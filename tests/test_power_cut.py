"""The power is cut at each write: what was acknowledged is there, what is there is whole, and the run goes on.

A traced child process writes; its log is replayed up to each cut, and the disk made as it may be then. See
`power_factory`.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from agentq.errors import StoreError
from agentq.learn.position import state_seal
from agentq.recipes import here
from agentq.store import RunStore
from agentq.store.durable import flaw
from agentq.store.records import encode_trajectory
from tests.power_factory import Disk, Luck, Op, compiled, traced
from tests.power_workload import CONFIG, TRAIN
from tests.records_factory import make_trajectory, make_tree
from tests.test_store_records import assert_same_tree
from tests.train_factory import run, same, weights

LUCKS = ("none", "all", "first", "some")
Trace = Callable[..., tuple[Path, list[Op]]]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """Runs a workload of `power_workload` and returns its root and its log."""
    library = compiled(tmp_path_factory.mktemp("native"))
    if library is None:
        pytest.skip("cutting the power needs Linux and a C compiler")

    @cache
    def make(kind: str, *words: str) -> tuple[Path, list[Op]]:
        folder = tmp_path_factory.mktemp(kind)
        (folder / "root").mkdir()
        words = ("tests.power_workload", kind, str(folder / "root" / "run"), *words)
        return folder / "root", traced(library, folder / "root", words, folder / "log")

    return make


@pytest.fixture
def images(tmp_path: Path) -> Iterator[Path]:
    """Where the disks go: in memory if possible, for there are thousands."""
    memory = Path("/dev/shm")
    folder = memory / f"agentq-{tmp_path.parent.name}-{tmp_path.name}" if memory.is_dir() else tmp_path / "images"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


def cuts(root: Path, ops: list[Op], images: Path, *, every: int, seed: int = 0) -> Iterator[tuple[int, str, Path]]:
    """Each moment, each luck, or one in `every`: (number of changes made, luck, the run directory as it is found)."""
    disk, number = Disk(root), seed
    for made, op in enumerate(ops, start=1):
        disk.apply(op)
        for luck in LUCKS if op.kind != "A" else ():
            number += 1
            if number % every == 0:
                image = images / luck
                disk.write(image, Luck(luck, seed + made))
                yield made, luck, image / "run"
                shutil.rmtree(image)


def marks(ops: list[Op]) -> list[tuple[int, str, str, Any]]:
    """(changes made before it, kind, key, value) of each acknowledgement."""
    return [(i, *op.mark) for i, op in enumerate(ops) if op.kind == "A"]


def promised(told: list[tuple[int, str, str, Any]], made: int, kind: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """By key: the value that was acknowledged last, and the one that was to be next."""
    known = {key: value for at, k, key, value in told if k == kind and at <= made}
    coming = {key: value for at, k, key, value in reversed(told) if k == kind and at > made}
    return known, coming


@pytest.mark.rest
def test_a_replayed_log_is_what_the_disk_holds(trace: Trace, images: Path) -> None:
    for kind in ("store", "clean"):
        root, ops = trace(kind)
        disk = Disk(root)
        for op in ops:
            disk.apply(op)
        disk.write(images / kind, Luck("all"))
        found, wanted = (
            {p.relative_to(folder): p.is_file() and p.read_bytes() for p in folder.rglob("*")}
            for folder in (images / kind, root)
        )
        assert len(wanted) > 5 and found == wanted


@pytest.mark.parametrize(("every", "seed"), [(31, 0), pytest.param(5, 1, marks=pytest.mark.rest)])
def test_nothing_acknowledged_is_lost_in_a_power_cut(every: int, seed: int, trace: Trace, images: Path) -> None:
    root, ops = trace("store")
    told, checked = marks(ops), 0
    for made, luck, path in cuts(root, ops, images, every=every, seed=seed):
        where = f"cut after {made} of {len(ops)} changes, {luck} of the others found"
        try:
            check_store(path, told, made)
        except Exception as error:
            error.add_note(where)
            raise
        checked += 1
    assert checked > 1500 // every


def check_store(path: Path, told: list[tuple[int, str, str, Any]], made: int) -> None:
    with RunStore.open(path, CONFIG) as store:
        trees = {str(tree.task.seed): tree for tree in store.trees("search")}
        for seed, tree in trees.items():
            assert_same_tree(tree, make_tree(int(seed), num_nodes=30))
        assert promised(told, made, "tree")[0].keys() <= trees.keys()
        episodes = list(store.trajectories("rollouts"))
        for episode in episodes:
            assert encode_trajectory(episode) == encode_trajectory(make_trajectory(episode.task.seed))
        seeds = [str(episode.task.seed) for episode in episodes]
        assert promised(told, made, "episodes")[0].keys() <= set(seeds)
        assert all(seeds.count(seed) == 2 for seed in seeds)  # a transaction is all or nothing
        lines = store.metrics()
        assert promised(told, made, "line")[0].keys() <= {str(line["step"]) for line in lines}
        assert all(line["loss"] == line["step"] for line in lines)
        found = {
            "note": store.note("search"),
            "summary": (path / "summary.json").read_text() if (path / "summary.json").exists() else None,
            "state": state_seal(path / "checkpoints" / "x.states" / "round1"),
        }
        store.add_tree("after", make_tree(1))
        store.log("after", 1, loss=1.0)
    for kind, now in found.items():
        known, coming = promised(told, made, kind)
        allowed = [known.get(""), *([coming[""]] if coming else [])]
        if kind == "summary":
            allowed = [value and f"[\n  {value[0]}\n]\n" for value in allowed]
        assert now in allowed, f"{kind}: {now} is none of {allowed}"
    check_model(path / "checkpoints" / "model", *promised(told, made, "model"))
    assert not list(path.rglob("*.partial")) and not list(path.rglob("*.replaced"))
    with RunStore.read(path) as store:
        assert store.done("after") == {1} and store.metrics()[-1]["stage"] == "after"


def check_model(model: Path, known: dict[str, Any], coming: dict[str, Any]) -> None:
    if known or model.exists():
        flaws = [flaw(model, seals[""]) for seals in (known, coming) if seals]
        assert None in flaws, f"model: {flaws}"


def test_a_run_cut_while_it_is_deleted_is_refused_in_one_line_or_deleted_again(trace: Trace, images: Path) -> None:
    root, ops = trace("clean")
    told = marks(ops)
    begun = next(at for at, _, _, session in told if session == 1)
    for made, luck, path in cuts(root, ops, images, every=5):
        if made <= begun:
            continue
        for session in (1, 2):
            try:
                with RunStore.open(path, {"session": session}) as store:
                    found = store.done("search"), [line["step"] for line in store.metrics()]
                    whole, new = found == ({0, 1, 2}, [1]), found == (set(), [])
                    assert session == 2 or whole or new, f"half deleted: cut after {made}, {luck}"
            except StoreError as error:
                assert "\n" not in str(error)
        with RunStore.open(path, {"session": 3}, clean=True) as store:
            assert store.stages() == store.metrics() == [] and not (path / "summary.json").exists()


@pytest.mark.rest
def test_a_training_cut_anywhere_ends_with_the_weights_of_an_undisturbed_one(
    trace: Trace, base: Path, images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(here, "CHECKPOINT_EVERY", 2)
    root, ops = trace("train", str(base))
    wanted = weights(root / "run", "grpo"), logged(root / "run")
    for made, luck, path in cuts(root, ops, images, every=53):
        run("grpo", base, path, TRAIN)
        assert same(weights(path, "grpo"), wanted[0]), f"cut after {made}, {luck}: other weights"
        assert logged(path) == wanted[1], f"cut after {made}, {luck}: other lines"


def logged(path: Path) -> list[dict[str, Any]]:
    with RunStore.read(path) as store:
        return [line for line in store.metrics() if line["stage"] == "grpo/learn"]
