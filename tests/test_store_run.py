"""RunStore: resume, refusal of what does not fit, damage, and being killed."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from agentq.errors import StoreError
from agentq.report.runs import list_runs
from agentq.store import RunStore
from agentq.store.check import check_run
from agentq.store.files import cut_torn_line, read_metrics
from agentq.store.packed import Packed
from agentq.store.run import PARTIAL, TREE
from tests.records_factory import make_trajectory, make_tree
from tests.test_store_records import assert_same_tree

CONFIG = {"search": {"c_exp": 1.0, "num_proposals": 5}, "run": {"seed": 7}}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run directory with two trees, two episodes, a note and a metric line."""
    path = tmp_path / "run"
    with RunStore.open(path, CONFIG) as store:
        for seed in (11, 2):
            store.add_tree("round1/search", make_tree(seed, num_nodes=40))
        for rollout in range(2):
            store.add_trajectory("round1/rollouts", f"5/{rollout}", make_trajectory(5, rollout + 2))
        store.set_note("round1/search", {"trees": np.int64(2), "seconds": 1.5})
        store.log("round1/train", 0, loss=np.float32(0.5))
    return path


def test_run_store_reads_back_what_was_added_in_seed_order(run: Path) -> None:
    with RunStore.read(run) as store:
        assert store.config == CONFIG
        assert store.stages() == ["round1/search", "round1/rollouts"]
        trees = list(store.trees("round1/search"))
        assert [tree.task.seed for tree in trees] == [2, 11]
        for tree in trees:
            assert_same_tree(tree, make_tree(tree.task.seed, num_nodes=40))
        assert [len(t.steps) for t in store.trajectories("round1/rollouts")] == [2, 3]
        assert store.done("round1/search") == {2, 11}
        assert store.done("round1/rollouts") == {5}
        assert store.done("round1/rollouts", "tree") == store.done("round2/search") == set()
        assert store.keys("round1/rollouts") == {"5/0", "5/1"}
        assert (store.count("round1/search", "tree"), store.count("round1/search", "trajectory")) == (2, 0)
        assert store.note("round1/search") == {"trees": 2, "seconds": 1.5}
        assert store.note("round1/rollouts") is None
        assert store.metrics() == [{"stage": "round1/train", "step": 0, "loss": 0.5}]
    env = json.loads((run / "env.json").read_text())
    assert env["seeds"] == {"run.seed": 7}
    assert env["versions"]["numpy"] == np.__version__


def test_add_is_idempotent_and_note_is_replaced(run: Path) -> None:
    other = make_tree(2, num_nodes=3)
    with RunStore.open(run, CONFIG) as store:
        assert not store.add_tree("round1/search", other)
        assert not store.add_trajectory("round1/rollouts", "5/0", make_trajectory(5, 1))
        assert store.add_tree("round2/search", other)
        assert [len(tree) for tree in store.trees("round1/search")] == [40, 40]
        store.set_note("round1/search", {"trees": 3})
        assert store.note("round1/search") == {"trees": 3}


def test_equal_pages_and_prompts_are_stored_once(tmp_path: Path) -> None:
    with RunStore.open(tmp_path / "run", CONFIG) as store:
        store.add_tree("a", make_tree(1, num_nodes=40))
        count = "SELECT COUNT(*) FROM blobs"
        (before,) = store._execute(count)[0]
        store.add_tree("b", make_tree(1, num_nodes=40))
        assert store._execute(count)[0] == (before,)
        assert before <= 10 + 13  # pages of make_tree and prompts, one a parent


def test_transaction_keeps_all_or_nothing(run: Path) -> None:
    with RunStore.open(run, CONFIG) as store:
        with pytest.raises(KeyboardInterrupt), store.transaction():
            store.add_tree("round2/search", make_tree(3))
            store.add_trajectory("round2/search", "3/0", make_trajectory(3))
            raise KeyboardInterrupt
        assert store.stages() == ["round1/search", "round1/rollouts"]
        with store.transaction():
            store.add_tree("round2/search", make_tree(3))
            store.add_trajectory("round2/search", "3/0", make_trajectory(3))
        assert store.done("round2/search", "tree") == store.done("round2/search", "trajectory") == {3}


def test_a_refused_tree_leaves_no_trace(run: Path) -> None:
    tree = make_tree(9)
    tree.proposal[1].token_ids.dtype = np.uint32  # type: ignore[union-attr]
    with RunStore.open(run, CONFIG) as store:
        with pytest.raises(ValueError, match="token_ids of the proposal at 1 must be 1-D int32"):
            store.add_tree("round9", tree)
        assert "round9" not in store.stages()


def test_adds_from_many_threads_all_arrive(tmp_path: Path) -> None:
    with RunStore.open(tmp_path / "run", CONFIG) as store:
        work = [
            threading.Thread(target=lambda k=k: [store.add_tree("s", make_tree(s)) for s in range(k, 40, 4)])
            for k in range(4)
        ]
        for thread in work:
            thread.start()
        for thread in work:
            thread.join()
        assert store.done("s") == set(range(40))


def test_reader_sees_a_living_writers_items(run: Path) -> None:
    with RunStore.open(run, CONFIG) as writer, RunStore.read(run) as reader:
        writer.add_tree("round1/search", make_tree(12))
        assert reader.done("round1/search") == {2, 11, 12}
        with pytest.raises(StoreError, match="must be opened for writing"):
            reader.add_tree("round1/search", make_tree(13))
        with pytest.raises(StoreError, match="must be opened for writing"):
            reader.log("x", 0, loss=1.0)


# Refusals. Each message is one line and says what to do.


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"search": {"c_exp": 2.0, "num_proposals": 5}, "run": {"seed": 8}},
            r"run was made with run.seed = 7; got 8: pass the same settings, .* or start over with clean=True",
        ),
        ({"search": {"c_exp": 1.0}, "run": {"seed": 7}}, "made with search.num_proposals = 5; got None"),
        (CONFIG | {"x": 1}, "made with x = None; got 1"),
    ],
)
def test_open_refuses_other_settings_naming_the_first_key(run: Path, config: dict[str, object], message: str) -> None:
    with pytest.raises(StoreError, match=message):
        RunStore.open(run, config)


def test_open_clean_deletes_the_run_and_nothing_else(run: Path) -> None:
    (run / "thoughts.txt").write_text("mine")
    (run / "checkpoints" / "step1").mkdir()
    with RunStore.open(run, {"run": {"seed": 8}}, clean=True) as store:
        assert store.stages() == store.metrics() == []
    assert (run / "thoughts.txt").read_text() == "mine"
    assert list((run / "checkpoints").iterdir()) == []


def test_open_refuses_a_directory_of_something_else_even_with_clean(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    for clean in (False, True):
        with pytest.raises(StoreError, match=r"must be empty or a run directory; it holds thesis.tex"):
            RunStore.open(tmp_path, CONFIG, clean=clean)
    assert (tmp_path / "thesis.tex").exists()
    with pytest.raises(StoreError, match="must be a directory; got a file"):
        RunStore.open(tmp_path / "thesis.tex", CONFIG)


@pytest.mark.parametrize(("missing", "writer"), [("run.sqlite", True), ("config.json", True), ("run.sqlite", False)])
def test_a_missing_file_is_named(run: Path, missing: str, writer: bool) -> None:
    (run / missing).unlink()
    with pytest.raises(StoreError, match=missing):
        _ = RunStore.open(run, CONFIG) if writer else RunStore.read(run)


def test_read_refuses_what_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"must be a run directory; it does not exist"):
        RunStore.read(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("version", "said"),
    [
        (
            1,
            r"an older agentq \(schema 1; this one reads 3\): read it with that version, or start over with clean=True",
        ),
        (4, r"a newer agentq \(schema 4; this one reads 3\): upgrade agentq"),
    ],
)
def test_another_schema_is_refused(run: Path, version: int, said: str) -> None:
    database = sqlite3.connect(run / "run.sqlite")
    database.execute(f"PRAGMA user_version = {version}")
    database.close()
    with pytest.raises(StoreError, match=f"run was written by {said}"):
        RunStore.open(run, CONFIG)
    with pytest.raises(StoreError, match=f"run was written by {said}"):
        RunStore.read(run)
    with pytest.raises(StoreError, match=f"run was written by {said}"):
        list(check_run(run))
    assert [row.state for row in list_runs(run)] == ["older version" if version == 1 else "newer version"]
    RunStore.open(run, CONFIG, clean=True).close()


def test_another_programs_database_is_refused(run: Path) -> None:
    (run / "run.sqlite").unlink()
    database = sqlite3.connect(run / "run.sqlite")
    database.execute("CREATE TABLE stages(x)")
    database.close()
    with pytest.raises(StoreError, match="must be the database of an agentq run"):
        RunStore.open(run, CONFIG)


def test_a_second_writing_process_is_refused(run: Path) -> None:
    code = "import sys; from agentq.store import RunStore; RunStore.open(sys.argv[1], {'run': {'seed': 7}}, clean=True)"
    with RunStore.open(run, CONFIG) as store:
        done = subprocess.run([sys.executable, "-c", code, str(run)], capture_output=True, text=True)
        assert "must have one writer; it is open in another process" in done.stderr
        assert store.done("round1/search") == {2, 11}


# Damage.


def use_all(run: Path) -> None:
    with RunStore.read(run) as store:
        for stage in store.stages():
            _ = list(store.trees(stage)), list(store.trajectories(stage)), store.note(stage)


def test_every_corrupt_page_gives_a_store_error_or_no_difference(run: Path, tmp_path: Path) -> None:
    database = run / "run.sqlite"
    whole, refused = database.read_bytes(), 0
    pages = len(whole) // 4096
    for page in range(pages):
        copy = tmp_path / f"copy{page}"
        shutil.copytree(run, copy)
        (copy / "run.sqlite").write_bytes(
            whole[: page * 4096] + random.Random(page).randbytes(4096) + whole[(page + 1) * 4096 :]
        )
        try:
            use_all(copy)
        except StoreError as error:
            assert "\n" not in str(error)
            refused += 1
    assert pages > 8
    assert refused == pages


def test_a_writer_does_not_go_on_with_a_corrupt_index(run: Path) -> None:
    database = sqlite3.connect(run / "run.sqlite")
    (root,) = database.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'sqlite_autoindex_blobs_1'").fetchone()
    database.close()
    whole = (run / "run.sqlite").read_bytes()
    middle = (root - 1) * 4096 + 3  # the number of cells of the page: no later add need touch them all
    (run / "run.sqlite").write_bytes(whole[:middle] + b"\x00\x01" + whole[middle + 2 :])
    with pytest.raises(StoreError, match=r"run\.sqlite is damaged"):
        RunStore.open(run, CONFIG)


@pytest.mark.parametrize("size", [0, 10, 100, 4096, 10_000, 30_000])
def test_a_truncated_database_gives_a_store_error(run: Path, size: int) -> None:
    assert (run / "run.sqlite").stat().st_size > size
    os.truncate(run / "run.sqlite", size)
    with pytest.raises(StoreError, match=r"run\.sqlite"):
        use_all(run)
    with pytest.raises(StoreError, match=r"run\.sqlite"):
        RunStore.open(run, CONFIG)


def test_a_flipped_bit_in_a_record_or_blob_gives_a_store_error(run: Path) -> None:
    for table, column in (("items", "record"), ("blobs", "data")):
        copy = run.with_name(table)
        shutil.copytree(run, copy)
        database = sqlite3.connect(copy / "run.sqlite")
        for row, data in database.execute(f"SELECT rowid, {column} FROM {table}").fetchall():
            broken = bytearray(data)
            broken[len(broken) // 2] ^= 1
            database.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (bytes(broken), row))
        database.commit()
        database.close()
        with pytest.raises(StoreError, match="is damaged"):
            use_all(copy)


@pytest.mark.parametrize("text", ["", "{", "[]", "\xff"])
def test_a_damaged_config_gives_a_store_error(run: Path, text: str) -> None:
    (run / "config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(StoreError, match=r"config\.json is damaged: it must be .*JSON"):
        RunStore.open(run, CONFIG)
    with pytest.raises(StoreError, match=r"config\.json is damaged: it must be .*JSON"):
        RunStore.read(run)


def test_a_note_that_is_no_object_gives_a_store_error(run: Path) -> None:
    for text in ("[]", "{"):
        with closing(sqlite3.connect(run / "run.sqlite", isolation_level=None)) as database:
            database.execute("UPDATE stages SET note = ?", (text,))
        with RunStore.read(run) as store, pytest.raises(StoreError, match=r"run\.sqlite is damaged"):
            store.note(store.stages()[0])


def test_a_reader_meets_no_row_that_the_writer_replaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer keeps a growing tree anew, and ends another, between two statements of a reader."""
    with RunStore.open(tmp_path / "run", CONFIG) as writer, RunStore.read(tmp_path / "run") as reader:
        for seed in (1, 2):
            writer.add("s", PARTIAL, str(seed), Packed(seed, b"first", {}))
        execute, statements = RunStore._execute, list[str]()

        def disturbed(self: RunStore, sql: str, values: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
            found = execute(self, sql, values)
            if self is reader:
                statements.append(sql)
                writer.add("s", PARTIAL, "1", Packed(1, b"then", {}))
                writer.add("s", TREE, "2", Packed(2, b"ended", {}))  # gets the row of what it replaces
            return found

        monkeypatch.setattr(RunStore, "_execute", disturbed)
        assert list(reader._records("s", PARTIAL, lambda record, _: record)) == [b"then"]
        assert list(reader._records("s", PARTIAL, lambda record, _: record, "1")) == [b"then"]
        assert list(reader._records("s", PARTIAL, lambda record, _: record, "2")) == []
        assert statements


# Metrics.


def test_metrics_drop_a_torn_line_and_count_a_repeated_step_once(tmp_path: Path) -> None:
    with RunStore.open(tmp_path / "run", CONFIG) as store:
        store.log("train", 1, loss=2.0)
        store.log("train", 2, loss=float("nan"))
    path = tmp_path / "run" / "metrics.jsonl"
    with path.open("a") as file:
        file.write('{"stage": "train", "st')
    with RunStore.open(tmp_path / "run", CONFIG) as store:
        assert [row["loss"] for row in store.metrics()] == [2.0, None]
        store.log("train", 2, loss=1.0)
        assert [row["loss"] for row in store.metrics()] == [2.0, 1.0]
    path.write_text("not json\n" + path.read_text())
    with RunStore.read(tmp_path / "run") as store, pytest.raises(StoreError, match="line 1 must be a JSON object"):
        store.metrics()


def test_cut_torn_line_keeps_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "m"
    line = '{"stage": "train", "step": 1}\n'
    for torn in ("", "b", "\0\0", '{"stage": "train"}\n', "\0" * 9 + '"step": 2}\n'):
        path.write_text(line + torn)
        assert len(read_metrics(path)) == 1
    for text, kept in ((f"{line}b", line), (line, line), ("a", ""), ("", ""), ("\0\0\n", ""), (f"{line}\0\n", line)):
        path.write_text(text)
        cut_torn_line(path)
        assert path.read_text() == kept


# Killed at any moment.

WORKER = """
import sys
from agentq.store import RunStore
from tests.records_factory import make_tree, make_trajectory
with RunStore.open(sys.argv[1], {"run": {"seed": 7}}) as store:
    print("open", flush=True)
    for seed in range(60):
        if seed in store.done("search", "tree"):
            continue
        with store.transaction():
            store.add_trajectory("search", f"{seed}/0", make_trajectory(seed))
            store.add_tree("search", make_tree(seed, num_nodes=60))
        print(seed, flush=True)
    store.set_note("search", {"trees": 60})
"""


def start_worker(path: Path) -> subprocess.Popen[str]:
    root = Path(__file__).parents[1]
    return subprocess.Popen([sys.executable, "-c", WORKER, str(path)], stdout=subprocess.PIPE, text=True, cwd=root)


def contents(path: Path) -> list[list[tuple[object, ...]]]:
    """Every row of the database, without row numbers."""
    database = sqlite3.connect(f"file:{path / 'run.sqlite'}?mode=ro", uri=True)
    tables = ("stages ORDER BY id", "items ORDER BY stage, kind, key", "blobs ORDER BY hash")
    rows = [database.execute(f"SELECT * FROM {table}").fetchall() for table in tables]
    database.close()
    return rows


def test_a_killed_writer_loses_nothing_acknowledged_and_goes_on_to_the_same_contents(tmp_path: Path) -> None:
    whole = start_worker(tmp_path / "whole")
    whole.communicate()
    assert whole.returncode == 0
    rng, path, acknowledged = random.Random(0), tmp_path / "killed", set[int]()
    for _ in range(6):
        worker = start_worker(path)
        assert worker.stdout is not None
        for _ in range(rng.randint(1, 9)):
            line = worker.stdout.readline().strip()
            acknowledged |= {int(line)} if line.isdigit() else set()
        time.sleep(rng.uniform(0, 0.004))  # into the middle of the next item
        worker.send_signal(signal.SIGKILL)
        acknowledged |= {int(line) for line in worker.communicate()[0].split() if line.isdigit()}
        assert worker.returncode == -signal.SIGKILL
        with RunStore.read(path) as store:
            done = store.done("search", "tree")
            assert acknowledged <= done == store.done("search", "trajectory")
            assert len(done - acknowledged) <= 1  # an item whose acknowledgement was still to be printed
            acknowledged = done
    assert 0 < len(acknowledged) < 60
    last = start_worker(path)
    last.communicate()
    assert last.returncode == 0
    assert contents(path) == contents(tmp_path / "whole")


def test_a_writer_killed_while_it_makes_the_directory_can_start_again(tmp_path: Path) -> None:
    for number, delay in enumerate(np.linspace(0.0, 0.02, 5)):
        path = tmp_path / str(number)
        worker = start_worker(path)
        while not path.exists():
            time.sleep(0.0005)
        time.sleep(delay)
        worker.send_signal(signal.SIGKILL)
        worker.communicate()
        with RunStore.open(path, {"run": {"seed": 7}}) as store:
            store.add_tree("late", make_tree(1))
            assert store.done("late") == {1}
