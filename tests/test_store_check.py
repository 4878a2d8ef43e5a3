"""Blobs with dictionaries, trees read node by node, older databases, and what is saved of a damaged run."""

from __future__ import annotations

import json
import os
import random
import shlex
import sqlite3
import zlib
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from agentq.cli import main
from agentq.errors import StoreError
from agentq.store.blobs import ENOUGH, Blobs, kind_of
from agentq.store.blobs import compress as compressed
from agentq.store.check import CheckedPart, check_run, save
from agentq.store.codec import blob_hash, compress
from agentq.store.durable import seal
from agentq.store.packed import Packed
from agentq.store.partial import PartialTree
from agentq.store.run import PARTIAL, RunStore
from agentq.types import Observation
from tests.records_factory import make_task, make_trajectory, make_tree
from tests.test_store_records import assert_same_tree

CONFIG = {"command": "demo", "run": {"seed": 7}}
LINES = [f"row {i} of the results: a table for {i % 7} at the Blue Moon Diner" for i in range(400)]


def page(number: int) -> bytes:
    return "\n".join(random.Random(number).sample(LINES, 30)).encode()


def prompt(number: int) -> bytes:
    return np.array(random.Random(number).choices(range(2000), k=20) + list(range(400)), "<i4").tobytes()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = tmp_path / "run"
    with RunStore.open(path, CONFIG) as store:
        for seed in range(3):
            store.add_tree("search", make_tree(seed, num_nodes=20))
            store.add_trajectory("eval", f"{seed}/0", make_trajectory(seed))
        store.set_note("search", {"done": 3, "seconds": 1.0})
        store.log("train", 1, loss=0.5)
    return path


def database(run: Path) -> sqlite3.Connection:
    return sqlite3.connect(run / "run.sqlite", isolation_level=None)


def test_a_run_in_a_folder_that_cannot_be_written_is_whole(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect, write = sqlite3.connect, os.access

    def as_without_rights(path: str, **settings: bool) -> sqlite3.Connection:
        if str(run) in path and "immutable=1" not in path:  # SQLite would make the side files of a log
            raise sqlite3.OperationalError("attempt to write a readonly database")
        return connect(path, **settings)

    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and write(path, mode))
    monkeypatch.setattr(sqlite3, "connect", as_without_rights)
    assert all(finding.whole for finding in check_run(run))


def test_blobs_come_back_with_and_without_a_dictionary(tmp_path: Path) -> None:
    blobs = {blob_hash(data): data for i in range(3 * ENOUGH) for data in (page(i), prompt(i))}
    picture = b"RIFF" + random.Random(0).randbytes(500)
    with RunStore.open(tmp_path / "run", CONFIG) as store, store.transaction():
        for address, data in [*blobs.items(), (blob_hash(picture), picture)]:
            store._blobs.add({address: compress(data)})
    with RunStore.read(tmp_path / "run") as store:
        assert store._blobs.fetch(blobs) == blobs and store.blob(blob_hash(picture)) == picture
    kinds = dict(database(tmp_path / "run").execute("SELECT kind, length(data) FROM dictionaries"))
    assert kinds.keys() == {"ids", "text"} and max(kinds.values()) <= 1 << 15
    stored = database(tmp_path / "run").execute("SELECT sum(length(data)) FROM blobs").fetchone()[0]
    assert stored < 0.6 * sum(len(zlib.compress(data)) for data in blobs.values())


def test_what_was_packed_with_a_stores_dictionaries_is_kept_as_it_is(tmp_path: Path) -> None:
    def stored(name: str, address: bytes) -> bytes:
        (row,) = database(tmp_path / name).execute("SELECT data FROM blobs WHERE hash = ?", (address,)).fetchall()
        return bytes(row[0])

    with RunStore.open(tmp_path / "run", CONFIG) as store, RunStore.open(tmp_path / "other", CONFIG) as other:
        assert store.dictionaries == {}
        for each, first in ((store, 0), (other, 1000)):
            with each.transaction():
                each._blobs.add({blob_hash(page(i)): compress(page(i)) for i in range(first, first + ENOUGH + 1)})
        assert store.dictionaries.keys() == other.dictionaries.keys() == {"text"} != store.dictionaries
        new, packed = blob_hash(page(500)), compressed(page(500), store.dictionaries)
        for each in (store, other):
            with each.transaction():
                each._blobs.dictionaries |= {packed[2:6]: store.dictionaries["text"]}  # another one
                each._blobs.add({new: packed})
            assert each.blob(new) == page(500)
    assert stored("run", new) == packed != stored("other", new)


def test_a_dictionary_made_in_a_transaction_that_fails_is_made_again(tmp_path: Path) -> None:
    first, then = (
        {blob_hash(page(i)): compress(page(i)) for i in span} for span in (range(ENOUGH), range(ENOUGH, ENOUGH + 9))
    )
    with RunStore.open(tmp_path / "run", CONFIG) as store:
        with store.transaction():
            store._blobs.add(first)
        with pytest.raises(ZeroDivisionError), store.transaction():
            store._blobs.add(then)
            raise ZeroDivisionError
        with store.transaction():
            store._blobs.add(then)
    with RunStore.read(tmp_path / "run") as store:
        assert store._blobs.fetch(then) == {blob_hash(page(i)): page(i) for i in range(ENOUGH, ENOUGH + 9)}


def test_what_was_packed_with_a_dictionary_that_was_undone_can_be_read(tmp_path: Path) -> None:
    with RunStore.open(tmp_path / "run", CONFIG) as store:
        with pytest.raises(ZeroDivisionError), store.transaction():
            store._blobs.add({blob_hash(page(i)): compress(page(i)) for i in range(ENOUGH + 1)})
            packed = compressed(page(500), store.dictionaries)
            raise ZeroDivisionError
        with store.transaction():
            store._blobs.add({blob_hash(page(500)): packed})
    with RunStore.read(tmp_path / "run") as store:
        assert store.blob(blob_hash(page(500))) == page(500)


def test_a_blob_whose_end_is_missing_is_damaged(tmp_path: Path) -> None:
    with RunStore.open(tmp_path / "run", CONFIG) as store, store.transaction():
        store._blobs.add({blob_hash(page(i)): compress(page(i)) for i in range(ENOUGH + 1)})
        last = blob_hash(page(ENOUGH))
        store._execute("UPDATE blobs SET data = substr(data, 1, length(data) - 9) WHERE hash = ?", (last,))
        with pytest.raises(StoreError, match="incomplete stream"):
            store.blob(last)


def test_what_is_a_prompt_and_what_a_page() -> None:
    assert kind_of(prompt(0)) == "ids" and kind_of(page(0)) == kind_of(b"") == "text" and kind_of(b"RIFF1") == "picture"


def test_a_tree_is_read_node_by_node(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, fetched = make_tree(1, num_nodes=20), list[bytes]()
    fetch = Blobs.fetch

    def counted(self: Blobs, addresses: object) -> dict[bytes, bytes]:
        found = fetch(self, addresses)  # type: ignore[arg-type]
        fetched.extend(found)
        return found

    monkeypatch.setattr(Blobs, "fetch", counted)
    with RunStore.read(run) as store:
        found = store.tree("search", 1, nodes=[0, 7])
        assert found is not None and len(fetched) <= 4
        assert (found.visit_count == whole.visit_count).all() and len(found) == 20
        assert [i for i, p in enumerate(found.proposal) if p is not None] == [7]
        assert found.observation[0] == whole.observation[0] and found.observation[7] == whole.observation[7]
        mine, other = found.proposal[7], whole.proposal[7]
        assert mine is not None and other is not None and mine.action == other.action
        assert mine.token_ids.tolist() == other.token_ids.tolist() and mine.logps.tolist() == other.logps.tolist()
        assert mine.prompt_ids.tolist() == other.prompt_ids.tolist()
        assert {i for i, o in enumerate(found.observation) if o is not None} <= {0, 7}


def test_an_older_database_is_brought_up_to_date_when_it_is_written(run: Path) -> None:
    with database(run) as old:
        old.executescript("DROP TABLE dictionaries; PRAGMA user_version = 2;")
    old.close()
    with RunStore.read(run) as store:
        assert_same_tree(next(store.trees("search")), make_tree(0, num_nodes=20))
    with RunStore.open(run, CONFIG) as store:
        assert store.add_tree("search", make_tree(9, num_nodes=20))
    assert database(run).execute("PRAGMA user_version").fetchone() == (3,)
    with RunStore.read(run) as store:
        assert store.done("search") == {0, 1, 2, 9}


def test_a_whole_run_is_whole(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert all(finding.whole for finding in check_run(run))
    assert main(["check", str(run), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["whole"] and {"search", "eval", "metrics.jsonl"} <= {each["part"] for each in told["checks"]}
    assert main(["check", str(run / "nothing")]) == 2


@pytest.mark.parametrize("damage", ["record", "blob", "missing blob", "wrong blob", "json"])
def test_what_is_damaged_is_named_and_the_rest_saved(
    damage: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = database(run)
    with found:
        if damage == "record":
            found.execute("UPDATE items SET record = substr(record, 1, 50) WHERE kind = 'tree' AND key = '1'")
        elif damage == "blob":
            found.execute("UPDATE blobs SET data = zeroblob(20) WHERE rowid = 1")
        elif damage == "missing blob":
            found.execute("DELETE FROM blobs WHERE rowid = 1")
        elif damage == "wrong blob":
            found.execute("UPDATE blobs SET data = (SELECT data FROM blobs WHERE rowid = 2) WHERE rowid = 1")
    found.close()
    if damage == "json":
        (run / "summary.json").write_text("{")
    assert main(["check", str(run), "--out", str(tmp_path / "new")]) == 1
    said = capsys.readouterr().out
    part = "summary.json" if damage == "json" else "search"
    assert any(line.startswith("damaged ") and part in line for line in said.splitlines())
    assert f"go on with: agentq resume {tmp_path / 'new'}" in said or "agentq resume" in said
    with RunStore.read(tmp_path / "new") as store:
        kept = store.done("search")
        assert kept == {0, 1, 2} if damage == "json" else kept < {0, 1, 2}
        for tree in store.trees("search"):
            assert_same_tree(tree, make_tree(tree.task.seed, num_nodes=20))
        assert store.note("search") == {"seconds": 1.0}  # so that what is missing is made
        assert store.metrics() == [{"stage": "train", "step": 1, "loss": 0.5}] and store.config == CONFIG


def test_a_place_where_no_run_can_be_made_is_refused_before_the_run_is_read(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    for out, said in (
        (run, f"--out must be a new directory; got {run}, which exists"),
        (
            tmp_path / "file" / "x",
            f"--out must be a directory that can be written to; got {tmp_path / 'file' / 'x'}: Not a directory",
        ),
    ):
        assert main(["check", str(run), "--out", str(out)]) == 2
        told = capsys.readouterr()
        assert (told.out, told.err) == ("", f"agentq: {said}\n")


def test_the_command_that_a_message_names_can_be_pasted(run: Path) -> None:
    odd = run.rename(run.with_name("my run"))
    with closing(database(odd)) as found:
        found.execute("UPDATE items SET record = x'00'")
    with RunStore.read(odd) as store, pytest.raises(StoreError) as raised:
        store.tree("search", 1)
    words = shlex.split(str(raised.value).rpartition(": ")[2])
    assert words[:3] == ["agentq", "check", str(odd)]


def test_metrics_on_both_sides_of_a_damaged_line_are_saved(run: Path, tmp_path: Path) -> None:
    with RunStore.open(run, CONFIG) as store:
        store.log("train", 2, loss=0.4)
    first, second = (run / "metrics.jsonl").read_text().splitlines()
    (run / "metrics.jsonl").write_text(f"{first}\n{{\n{second}\n")
    save(run, tmp_path / "new")
    with RunStore.read(tmp_path / "new") as store:
        assert [line["step"] for line in store.metrics()] == [1, 2]


def test_what_is_half_grown_is_saved_and_not_counted_and_marks_of_work_are_not(run: Path, tmp_path: Path) -> None:
    half = PartialTree(make_task(9), b"forest", [None], [Observation("page")], [None], {"rollouts": 3})
    with RunStore.open(run, CONFIG) as store:
        store.set_partial("search", half)
        store.add("search", PARTIAL, "8", Packed(8, b"damaged", {}))
        store.set_note("search", {"done": 3, "finished": True, "checkpoints": {}, "seconds": 1.0})
    assert save(run, tmp_path / "new") == (6, 0)
    with RunStore.read(tmp_path / "new") as store:
        found = store.partial("search", 9)
        assert found is not None and found.state == half.state and store.partial("search", 8) is None
        assert store.note("search") == {"seconds": 1.0}


def test_a_checkpoint_that_was_altered_is_damaged(run: Path) -> None:
    weights = run / "checkpoints" / "rft" / "weights"
    weights.parent.mkdir()
    weights.write_text("12345")
    with RunStore.open(run, CONFIG) as store:
        store.set_note("rft", {"checkpoints": {"rft": seal(weights.parent)}})
    assert [*check_run(run)][-1] == CheckedPart("checkpoints/rft", True, "as the run left it")
    weights.write_text("12346")
    assert [*check_run(run)][-1] == CheckedPart("checkpoints/rft", False, "weights was altered")


def test_a_damaged_blob_stops_no_writer(run: Path) -> None:
    with closing(database(run)) as found:
        found.execute("UPDATE blobs SET data = zeroblob(20) WHERE rowid = 1")
    with RunStore.open(run, CONFIG) as store:
        assert store.add_tree("search", make_tree(9, num_nodes=20))  # reads the newest blobs for a dictionary
        assert store.done("search") == {0, 1, 2, 9}


def test_a_database_that_is_none_of_a_run_is_damaged_and_nothing_is_saved(run: Path, tmp_path: Path) -> None:
    def verdict() -> CheckedPart:
        return next(finding for finding in check_run(run) if finding.part == "run.sqlite")

    with closing(database(run)) as found:
        found.execute("PRAGMA application_id = 7")
    assert not verdict().whole and "its mark must be that of agentq" in verdict().said
    with closing(database(run)) as found:
        found.execute("ALTER TABLE items RENAME TO things")
    assert not verdict().whole and "has no table items" in verdict().said
    for left in run.glob("run.sqlite*"):
        left.unlink()
    (run / "run.sqlite").touch()
    assert not verdict().whole
    assert main(["check", str(run)]) == 1
    with pytest.raises(StoreError, match="must be the database of a run; it has no table blobs"):
        save(run, tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("note", ["cut", "list", "bytes", "number", "name"])
def test_a_stage_with_a_damaged_note_is_named_and_its_items_are_saved(note: str, run: Path, tmp_path: Path) -> None:
    damaged = {
        "cut": "note = substr(note, 1, 8)",
        "list": "note = '[]'",
        "bytes": "note = CAST(x'7b22fffe223a317d' AS TEXT)",
        "number": "note = x'37'",
        "name": "name = CAST(x'fffe' AS TEXT)",
    }
    with closing(database(run)) as found:
        found.execute(f"UPDATE stages SET {damaged[note]} WHERE name = 'search'")
    parts = {finding.part: finding for finding in check_run(run)}
    stage = parts["\ufffd\ufffd" if note == "name" else "search"]
    assert not stage.whole and stage.said.endswith("; the stage's name or note is damaged")
    assert parts["eval"] == CheckedPart("eval", True, "3 whole")
    with RunStore.read(run) as store, pytest.raises(StoreError, match=r"run\.sqlite"):
        assert store.stages() and store.note("search")
    kept, lost = save(run, tmp_path / "new")
    assert (kept, lost) == ((3, 3) if note == "name" else (6, 0)) and stage.said.startswith(f"{kept - 3} whole")
    with RunStore.read(tmp_path / "new") as store:
        assert store.done("search") == (set() if note == "name" else {0, 1, 2}) and store.note("search") is None
        assert store.done("eval") == {0, 1, 2}


def test_a_damaged_key_is_named_and_hides_no_other(run: Path, tmp_path: Path) -> None:
    with closing(database(run)) as found:
        found.execute("UPDATE items SET key = CAST(x'ff' AS TEXT) WHERE kind = 'tree' AND key = '1'")
    stage = next(finding for finding in check_run(run) if finding.part == "search")
    assert not stage.whole and stage.said.startswith("2 whole, 1 damaged: tree \ufffd (")
    assert save(run, tmp_path / "new") == (5, 1)


def test_settings_that_are_no_object_are_damaged(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "config.json").write_text("[]")
    for words in (["check", str(run)], ["view", str(run)], ["report", str(run)], ["resume", str(run)]):
        assert main(words) == (1 if words[0] == "check" else 2)
        told = capsys.readouterr()
        said = next(line for line in (told.out + told.err).splitlines() if "damaged" in line)
        assert said.endswith("config.json is damaged: it must be a JSON object; got list")


def test_rows_on_both_sides_of_a_damaged_page_are_saved(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with RunStore.open(path, CONFIG) as store:
        for seed in range(40):
            store.add_trajectory("eval", f"{seed}/0", make_trajectory(seed, num_steps=12))
    file = path / "run.sqlite"
    found = database(path)
    (page_of,) = found.execute(
        "SELECT pageno FROM dbstat WHERE name = 'items' AND pagetype = 'leaf' ORDER BY path LIMIT 1 OFFSET 5"
    ).fetchone() if _has_dbstat(found) else (None,)  # fmt: skip
    found.close()
    if page_of is None:
        pytest.skip("SQLite is built without dbstat")
    data = bytearray(file.read_bytes())
    data[(page_of - 1) * 4096 : page_of * 4096] = b"\xff" * 4096
    file.write_bytes(data)
    with pytest.raises(StoreError, match=r"is damaged .*: agentq check .* says what can be saved"):
        RunStore.read(path)
    assert not all(finding.whole for finding in check_run(path))
    kept, _ = save(path, tmp_path / "new")
    assert 20 <= kept < 40
    with RunStore.read(tmp_path / "new") as store:
        seeds = store.done("eval")
        assert 0 in seeds and 39 in seeds and len(seeds) == kept


def _has_dbstat(found: sqlite3.Connection) -> bool:
    try:
        found.execute("SELECT 1 FROM dbstat LIMIT 1")
    except sqlite3.OperationalError:
        return False
    return True


def test_a_run_that_is_read_after_it_was_closed_is_whole_and_told_so(run: Path) -> None:
    with RunStore.read(run) as store:
        trees = store.trees("search")
    with pytest.raises(StoreError, match=r"must be open for reading; it is closed"):
        list(trees)
