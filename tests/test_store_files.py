"""The plain files of a run, directories that are replaced whole, seals, and stages that are renamed or forgotten."""

from __future__ import annotations

import errno
import json
import math
import os
from dataclasses import replace
from pathlib import Path

import pytest

from agentq.errors import StoreError
from agentq.store import RunStore
from agentq.store.blobs import Blobs, compress
from agentq.store.codec import blob_hash
from agentq.store.database import read_only_uri
from agentq.store.directory import is_held
from agentq.store.durable import clean_up, disk_named, flaw, remove, replaced, seal, write_page
from agentq.store.files import Lines, environment_info, first_difference, metric_line, note_model, read_metrics
from agentq.store.partial import PartialTree
from agentq.store.run import PARTIAL
from agentq.store.stages import drop_stage, known_tasks, rename_stage, whole_trees
from agentq.types import Observation
from tests.records_factory import make_task, make_tree


def rounds(n: int, seed: int = 0) -> dict[str, dict[str, int]]:
    return {"run": {"num_rounds": n, "seed": seed}}


def test_the_first_difference_of_settings_is_one_that_is_absent_or_has_not_grown() -> None:
    assert first_difference({"a": {"x": 1}}, {"a": {"x": 1, "y": 2}}) == ("a.y", None, 2)
    assert first_difference({"b": 1, "a": 1}, {"b": 2}) == ("a", 1, None)
    assert first_difference(rounds(2), rounds(3), ["run.num_rounds"]) is None
    assert first_difference(rounds(3), rounds(2), ["run.num_rounds"]) == ("run.num_rounds", 3, 2)
    assert first_difference(rounds(2), rounds(2, 1), ["run.num_rounds"]) == ("run.seed", 0, 1)


def test_facts_about_the_environment_have_every_seed_and_the_last_of_each_model(tmp_path: Path) -> None:
    assert environment_info({"run": {"seed": 7}, "train": {"seed": 3, "rank": 2}})["seeds"] == {
        "run.seed": 7,
        "train.seed": 3,
    }
    for name, told in (("a", {"device": "cpu"}), ("b", {"device": "cpu"}), ("a", {"device": "cuda"}), ("b", {})):
        note_model(tmp_path, name, told)
    assert json.loads((tmp_path / "env.json").read_text()) == {
        "models": {"a": {"device": "cuda"}, "b": {"device": "cpu"}}
    }


def test_a_metric_that_is_not_finite_is_null() -> None:
    line = metric_line("train", 3, {"a": math.inf, "b": -math.inf, "c": math.nan, "d": 0.5, "e": 2})
    assert json.loads(line) == {"stage": "train", "step": 3, "a": None, "b": None, "c": None, "d": 0.5, "e": 2}


def test_a_line_that_could_not_be_written_whole_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, lines = os.write, Lines(tmp_path / "metrics.jsonl")
    lines.append('{"stage": "a", "step": 1}\n')

    def half(handle: int, data: bytes) -> int:
        if len(data) < 10:
            raise OSError(errno.EDQUOT, "full")
        return write(handle, data[:-5])

    with monkeypatch.context() as patch, pytest.raises(StoreError, match="make room and run it again"):
        patch.setattr(os, "write", half)
        lines.append('{"stage": "a", "step": 2}\n')
    lines.append('{"stage": "a", "step": 3}\n')
    lines.close()
    assert [row["step"] for row in read_metrics(tmp_path / "metrics.jsonl")] == [1, 3]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_disk_without_room_is_told_from_one_that_cannot_be_written(code: int, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="make room and run it again"), disk_named(tmp_path):
        raise OSError(code, "none")
    with pytest.raises(StoreError, match="choose another directory"), disk_named(tmp_path):
        raise OSError(errno.EROFS, "none")


def test_lines_of_metrics_must_have_a_stage_and_a_step_and_only_the_last_may_be_torn(tmp_path: Path) -> None:
    file, whole = tmp_path / "metrics.jsonl", '{"stage": "a", "step": 1, "x": 1}\n{"stage": "a", "step": 1, "x": 2}\n'
    for torn in ("", '{"stage": "a", "st', '{"stage": "a"}\n', "5}\n"):
        file.write_text(whole + torn)
        assert read_metrics(file) == [{"stage": "a", "step": 1, "x": 2}]
    for wrong in ('{"stage": "a"}\n', '{"stage": "a", "step": "1"}\n', "[]\n"):
        file.write_text(wrong + whole)
        with pytest.raises(StoreError, match="line 1 must be a JSON object"):
            read_metrics(file)


def test_a_store_can_be_closed_twice_and_one_that_reads_logs_nothing(tmp_path: Path) -> None:
    store = RunStore.open(tmp_path / "run", {})
    store.log("a", 1, x=1.0)
    store.close()
    store.close()
    with RunStore.read(tmp_path / "run") as reader, pytest.raises(StoreError, match="must be opened for writing"):
        reader.log("a", 2, x=1.0)
    assert not is_held(tmp_path / "run") and len(read_metrics(tmp_path / "run" / "metrics.jsonl")) == 1


def test_a_half_grown_tree_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    with RunStore.open(tmp_path / "run", {}) as store:
        for rollouts in (1, 2):
            page = Observation(f"page {rollouts}")
            store.set_partial("a", PartialTree(make_task(3), b"", [None], [page], [None], {"rollouts": rollouts}))
        found = store.partial("a", 3)
        assert found is not None and found.state == {"rollouts": 2} and store.count("a", PARTIAL) == 1


def test_a_record_that_was_dropped_meanwhile_hides_none_after_it(tmp_path: Path) -> None:
    with RunStore.open(tmp_path / "run", {}) as store:
        for seed in (1, 2, 3):
            store.add_tree("a", make_tree(seed, num_nodes=3))
        trees = store.trees("a")
        assert next(trees).task.seed == 1
        store._execute("DELETE FROM items WHERE key = '2'")
        assert [tree.task.seed for tree in trees] == [3]


def test_a_damaged_record_is_left_out_and_told_and_hides_none_after_it(tmp_path: Path) -> None:
    lost: list[str] = []
    with RunStore.open(tmp_path / "run", {}) as store:
        for seed in (1, 2, 3):
            store.add_tree("a", make_tree(seed, num_nodes=3))
        store._execute("UPDATE items SET record = x'00' WHERE key = '2'")
        assert [tree.task.seed for tree in whole_trees(store, "a", lost)] == [1, 3]
    assert len(lost) == 1 and "tree 2 of a" in lost[0]


def test_a_foreign_directory_is_no_run_and_a_lock_that_cannot_be_tried_is_free(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "env.json").touch()
    with pytest.raises(StoreError, match=r"must be empty or a run directory; it holds env.json"):
        RunStore.open(tmp_path / "mine", {})
    (tmp_path / "target").touch()
    (tmp_path / "mine" / ".lock").symlink_to(tmp_path / "target")
    assert not is_held(tmp_path / "mine")
    with RunStore.open(tmp_path / "run", {}):
        assert is_held(tmp_path / "run")


def test_starting_over_deletes_all_of_a_run_and_nothing_else(tmp_path: Path) -> None:
    run = tmp_path / "run"
    RunStore.open(run, {}).close()
    before = {path.name for path in run.iterdir()}
    for name in ("summary.json", "report.html", "view.html", "metrics.jsonl", "mine.txt"):
        (run / name).touch()
    filled(run / "trackers", "mine")
    filled(run / "checkpoints" / "rft", "weights")
    RunStore.open(run, {}, clean=True).close()
    assert {path.name for path in run.rglob("*")} == before | {"mine.txt"}


def test_a_run_that_has_grown_keeps_its_new_settings_and_no_link_is_its_database(tmp_path: Path) -> None:
    for n in (2, 3):
        RunStore.open(tmp_path / "run", rounds(n), grows=["run.num_rounds"]).close()
        assert json.loads((tmp_path / "run" / "config.json").read_text()) == rounds(n)
    with pytest.raises(StoreError, match=r"was made with run.num_rounds = 3; got 2"):
        RunStore.open(tmp_path / "run", rounds(2), grows=["run.num_rounds"])
    (tmp_path / "run" / "run.sqlite").rename(tmp_path / "other.sqlite")
    (tmp_path / "run" / "run.sqlite").symlink_to(tmp_path / "other.sqlite")
    with pytest.raises(StoreError, match=r"must be a file; got a link to .*other"):
        RunStore.open(tmp_path / "run", rounds(3))


def test_a_line_after_one_that_was_torn_is_whole(tmp_path: Path) -> None:
    RunStore.open(tmp_path / "run", {}).close()
    (tmp_path / "run" / "metrics.jsonl").write_text('{"stage": "a", "step": 1}\n{"stage": "a", "st')
    with RunStore.open(tmp_path / "run", {}) as store:
        store.log("a", 2)
        assert [row["step"] for row in store.metrics()] == [1, 2]


def test_a_database_in_a_folder_without_rights_is_frozen_unless_a_writer_left_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "run.sqlite"
    assert read_only_uri(file).endswith("?mode=ro")
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert read_only_uri(file).endswith("?immutable=1")
    (tmp_path / "run.sqlite-wal").touch()
    assert read_only_uri(file).endswith("?mode=ro")


def filled(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "model").write_text(text)
    return folder


def test_a_directory_is_replaced_or_stays_whenever_a_process_ended(tmp_path: Path) -> None:
    model, old = tmp_path / "model", tmp_path / ".model.replaced"
    filled(old, "old")  # killed between the two renames
    with pytest.raises(ZeroDivisionError), replaced(model) as beside:
        (beside / "model").write_text("half")
        raise ZeroDivisionError
    assert (model / "model").read_text() == "old"
    with replaced(model) as beside:
        (beside / "model").write_text("new")
    filled(old, "old")  # killed after them
    clean_up(tmp_path)
    assert (model / "model").read_text() == "new" and [path.name for path in tmp_path.iterdir()] == ["model"]


def test_what_interrupted_replacements_left_is_cleaned_up_at_any_depth(tmp_path: Path) -> None:
    filled(tmp_path / "served" / ".round1.partial", "half")
    filled(tmp_path / "served" / ".round2.replaced", "old")
    clean_up(tmp_path)
    assert [path.name for path in (tmp_path / "served").iterdir()] == ["round2"]


def test_a_seal_covers_every_file_of_a_directory(tmp_path: Path) -> None:
    filled(tmp_path / "model" / "deep", "12345")
    known = seal(tmp_path / "model")
    assert known.keys() == {"deep/model"} and flaw(tmp_path / "model", known) is None
    (tmp_path / "model" / "deep" / "model").write_text("12346")
    assert flaw(tmp_path / "model", known) == "model was altered"
    (tmp_path / "model" / "deep" / "model").write_text("1234")
    assert flaw(tmp_path / "model", known) == "model has 4 bytes instead of 5"


def test_a_page_takes_the_place_of_no_pipe_and_of_a_link_only_if_it_is_not_followed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StoreError, match="a file that can be written; got a device or a pipe"):
        write_page(tmp_path / "pipe", b"x")
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    write_page(link, b"new")
    assert link.is_symlink() and target.read_text() == "new"
    write_page(link, b"newer", follow=False)
    assert not link.is_symlink() and link.read_text() == "newer" and target.read_text() == "new"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "pipe", "target"]


def test_removing_a_link_to_a_directory_leaves_the_directory(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(filled(tmp_path / "mine", "mine"))
    remove(tmp_path / "link")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"] and (tmp_path / "mine" / "model").exists()


def test_a_stage_is_renamed_or_forgotten_with_its_items(tmp_path: Path) -> None:
    with RunStore.open(tmp_path / "run", {}) as store:
        store.add_tree("other", make_tree(1, num_nodes=3))
        store.add_tree("eval", make_tree(2, num_nodes=3))
        store.set_note("eval", {"done": 1})
        rename_stage(store, "eval", "eval/round1")
        assert store.done("eval/round1") == {2} and store.note("eval/round1") == {"done": 1}
        drop_stage(store, "eval/round1")
        assert store.stages() == ["other"] and store.done("other") == {1}
        assert store.add_tree("eval/round1", make_tree(2, num_nodes=3))  # nothing of it came back


def test_tasks_are_known_by_their_records_that_have_an_instruction(tmp_path: Path) -> None:
    silent = make_tree(5, num_nodes=3)
    silent.task = replace(silent.task, instruction="")
    with RunStore.open(tmp_path / "run", {}) as store:
        for tree in (make_tree(2, num_nodes=3), silent, make_tree(11, num_nodes=3)):
            store.add_tree("eval", tree)
        assert known_tasks(store, range(2, 11)) == {2: make_tree(2).task}


def test_a_blob_that_the_store_has_is_not_kept_again_and_one_that_it_lacks_is_told(tmp_path: Path) -> None:
    with RunStore.open(tmp_path / "run", {}) as store, store.transaction():
        blobs: Blobs = store._blobs
        for _ in range(2):
            blobs.add({blob_hash(b"page"): compress(b"page", {})})
        assert blobs.fetch([blob_hash(b"page")]) == {blob_hash(b"page"): b"page"}
        with pytest.raises(StoreError, match=r"blob .* is missing"):
            store.blob(blob_hash(b"none"))
