"""RunStore: one holder at a time, links that are not followed, disks that are full or refuse."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentq.errors import StoreError
from agentq.report.page import write_report
from agentq.store import RunStore
from agentq.store.files import write_json
from tests.records_factory import make_tree

CONFIG = {"run": {"seed": 7}}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run directory with two trees."""
    path = tmp_path / "run"
    with RunStore.open(path, CONFIG) as store:
        for seed in (11, 2):
            store.add_tree("round1/search", make_tree(seed, num_nodes=4))
        store.log("round1/train", 0, loss=0.5)
    return path


def test_a_second_open_in_the_same_process_is_refused_and_drops_no_lock(run: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(run)
    code = "import sys; from agentq.store import RunStore; RunStore.open(sys.argv[1], {'run': {'seed': 7}})"
    with RunStore.open(run, CONFIG) as store:
        for path, clean in ((run, False), (run, True), (tmp_path / "alias", True)):
            with pytest.raises(StoreError, match="must have one writer; it is open in this process already"):
                RunStore.open(path, CONFIG, clean=clean)
        done = subprocess.run([sys.executable, "-c", code, str(run)], capture_output=True, text=True)
        assert "it is open in another process" in done.stderr
        assert store.done("round1/search") == {2, 11} and store.add_tree("round1/search", make_tree(12))
    with RunStore.open(run, CONFIG) as store:
        assert store.done("round1/search") == {2, 11, 12}


def test_a_refused_open_lets_go_of_the_directory(run: Path) -> None:
    with pytest.raises(StoreError, match="was made with"):
        RunStore.open(run, {"other": 1})
    RunStore.open(run, CONFIG).close()


def test_a_forked_child_holds_nothing(run: Path, tmp_path: Path) -> None:
    with RunStore.open(tmp_path / "other", CONFIG):
        child = os.fork()
        if child == 0:
            try:
                RunStore.open(run, CONFIG).close()  # another directory is free
                RunStore.open(tmp_path / "other", CONFIG)
            except StoreError as error:
                os._exit(0 if "in another process" in str(error) else 1)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_file_system_without_write_ahead_logs_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = sqlite3.connect

    def without_shared_memory(path: Path, **settings: object) -> sqlite3.Connection:
        return connect(f"{Path(path).as_uri()}?vfs=unix-dotfile", uri=True, **settings)  # type: ignore[call-overload]

    monkeypatch.setattr(sqlite3, "connect", without_shared_memory)
    with pytest.raises(StoreError, match=r"write-ahead log; got journal mode 'delete'.*: choose a local directory"):
        RunStore.open(tmp_path / "run", CONFIG)


@pytest.mark.parametrize("name", ["metrics.jsonl", ".lock", "run.sqlite", "summary.json"])
def test_no_link_is_followed(run: Path, tmp_path: Path, name: str) -> None:
    victim = tmp_path / "precious.txt"
    victim.write_text("years of work")
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(victim)
    with contextlib.suppress(StoreError), RunStore.open(run, CONFIG) as store:
        store.log("x", 1, loss=1.0)
        write_json(run / "summary.json", [])
        store.add_tree("x", make_tree(1))
    assert victim.read_text() == "years of work"
    if name == ".lock":
        with pytest.raises(StoreError, match=r"\.lock must be a file; got a link: delete it"):
            RunStore.open(run, CONFIG, clean=True)
        return
    RunStore.open(run, CONFIG, clean=True).close()
    assert victim.read_text() == "years of work" and not (run / name).is_symlink()


def test_no_link_is_followed_that_appears_later(run: Path, tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("years of work")
    with RunStore.open(run, CONFIG) as store:
        (run / "metrics.jsonl").unlink()
        (run / "metrics.jsonl").symlink_to(tmp_path / "precious.txt")
        with pytest.raises(StoreError, match="must be a file; got a link: delete it"):
            store.log("x", 1, loss=1.0)
    assert (tmp_path / "precious.txt").read_text() == "years of work"


def test_what_a_killed_writer_left_half_written_is_deleted_on_the_next_open(run: Path) -> None:
    (run / ".summary.json.0a1b2c3d.partial").write_text("[")
    (run / ".mine.partial").write_text("mine")
    (run / "checkpoints" / "x.states" / ".step-00000001.partial").mkdir(parents=True)
    (run / "checkpoints" / ".model.replaced").mkdir()
    RunStore.open(run, CONFIG).close()
    left = sorted(str(p.relative_to(run)) for p in run.rglob("*") if "partial" in p.name or "model" in p.name)
    assert left == [".mine.partial", "checkpoints/model"]  # of a replacement that was cut off, the old one


@contextlib.contextmanager
def full_disk(limit: int = 10) -> Iterator[None]:
    """No file grows beyond so many bytes: what a disk without room says, by another number."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)


def test_a_full_disk_is_told_with_what_to_do(run: Path) -> None:
    with RunStore.open(run, CONFIG) as store:
        (pages,) = store._execute("PRAGMA page_count")[0]
        store._execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(
            StoreError, match=r"run.sqlite must be writable; got no space left: make room and run it again"
        ):
            for seed in range(100, 200):
                store.add_tree("more", make_tree(seed, num_nodes=30))


def test_a_quota_that_is_reached_is_told_with_what_to_do(run: Path) -> None:
    """SQLite calls it a disk I/O error, as it does a limit of file sizes."""
    with RunStore.open(run, CONFIG) as store:
        with full_disk(), pytest.raises(StoreError, match=r"must be writable; got disk I/O error.*quota.*: make room"):
            store.add_tree("x", make_tree(1))
        assert store.add_tree("x", make_tree(1))


def test_a_full_disk_is_one_line_and_changes_nothing(run: Path) -> None:
    write_json(run / "summary.json", [1])
    with RunStore.open(run, CONFIG) as store:
        store.log("x", 1, loss=1.0)
        with full_disk():
            for write in (
                lambda: store.log("x", 2, loss=1.0),
                lambda: store.add_tree("x", make_tree(1)),
                lambda: store.set_note("x", {"a": 1}),
                lambda: write_json(run / "summary.json", [2] * 100),
                lambda: write_report(run),
            ):
                with pytest.raises(StoreError) as raised:
                    write()
                assert "\n" not in str(raised.value)
        with full_disk((run / "metrics.jsonl").stat().st_size + 5), pytest.raises(StoreError, match="make room"):
            store.log("x", 2, loss=1.0)  # begins the line and cannot end it
        assert [line["step"] for line in store.metrics() if line["stage"] == "x"] == [1]
        store.log("x", 3, loss=1.0)  # there is room again
        assert store.add_tree("x", make_tree(1))
    with RunStore.open(run, CONFIG) as store:
        assert [line["step"] for line in store.metrics() if line["stage"] == "x"] == [1, 3]
        assert store.done("x") == {1} and store.note("x") is None
    assert (run / "summary.json").read_text() == "[\n  1\n]\n" and not list(run.glob(".*.partial"))


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="file/run must be writable; got not a directory: choose another directory"):
        RunStore.open(tmp_path / "file" / "run", CONFIG)
