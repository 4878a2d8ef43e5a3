"""`RunStore`: all data of a run, in one directory that survives kills and power cuts at any moment.

    config.json    the settings; a run continues only with the same ones
    env.json       versions, commit, platform, seeds
    run.sqlite     search trees, episodes, stage notes (one writer, many readers)
    metrics.jsonl  one line per logged step
    checkpoints/   models; written by the learner
    summary.json   the results, and report.html, the page about them; both written by others

Work is in stages ("round1/search") and items (a task's tree or episodes). To resume, do the tasks not in `done(stage)`.

What is on the disk, and when:

    add_tree, add_trajectory    the whole item when the call returns
    set_partial                 the whole tree when the call returns; until then the earlier one
    transaction                 everything added in it when the block ends; before that, nothing
    set_note                    the note when the call returns
    log                         the line when the call returns
    config.json, summary.json   the new file when their writer returns; until then the old one
    checkpoints/                as `learn.checkpoint` and `Learner.save` say

A write that fails raises `StoreError` and leaves existing data unchanged. After a power cut the next `open` drops
unfinished work. All this requires a file system and a disk that keep what they have synced.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from agentq.errors import StoreError
from agentq.store.blobs import Blobs
from agentq.store.codec import UNREADABLE, Fetch, jsonable
from agentq.store.database import connect, damage_named, damaged
from agentq.store.directory import Lock, check_directory, delete_run, open_database, settle
from agentq.store.durable import disk_named, make_directory
from agentq.store.files import Lines, as_object, metric_line, read_metrics, read_object
from agentq.store.packed import Packed, pack
from agentq.store.partial import PartialTree, decode_partial
from agentq.store.records import TreeRecord, decode_trajectory, decode_tree
from agentq.types import Trajectory

T = TypeVar("T")
TREE, TRAJECTORY, PARTIAL = "tree", "trajectory", "partial"
ITEMS = "FROM items JOIN stages ON stages.id = items.stage WHERE name = ? AND kind = ?"


class RunStore:
    """A run directory. Calls are safe from several threads of one process; only one process may write."""

    def __init__(self, path: Path, database: sqlite3.Connection, *, config: dict[str, Any], lock: Lock | None) -> None:
        """Use `open` or `read`."""
        self.path, self.config = path, config
        self._database, self._lock = database, lock
        self.also: Callable[[str, int, Mapping[str, Any]], None] | None = None  # also gets what is logged
        self._metrics: Lines | None = None
        self._guard, self._in_transaction = threading.RLock(), False
        self._blobs = Blobs(lambda *statement: self._execute(*statement))

    @classmethod
    def open(
        cls, path: Path | str, config: Mapping[str, Any], *, clean: bool = False, grows: Collection[str] = ()
    ) -> RunStore:
        """Create a run directory, or continue one.

        Args:
            path: a new or empty directory, or one that `open` made.
            config: the run's settings, plain JSON values.
            clean: first delete an earlier run in `path`.
            grows: settings, such as "run.num_rounds", that may be higher than those with which the run was made.

        Raises:
            StoreError: if the directory holds something else, was made with other settings, is damaged, was written by
                a newer agentq, is open for writing here or in another process, or cannot be written.
        """
        path = Path(path)
        given = json.loads(json.dumps(config, default=jsonable))
        with disk_named(path):
            check_directory(path)
            make_directory(path)
            held = Lock(path)
            try:
                if clean:
                    delete_run(path)
                database = open_database(path, given, grows)
            except BaseException:
                held.close()
                raise
        store = cls(path, database, config=given, lock=held)
        try:
            with disk_named(path):
                settle(path)
        except BaseException:
            store.close()
            raise
        return store

    @classmethod
    def read(cls, path: Path | str) -> RunStore:
        """Open an existing run for reading, also while another process writes it.

        Raises:
            StoreError: if it is no run directory, is damaged, or was written by a newer agentq.
        """
        path = Path(path)
        if missing := [name for name in ("config.json", "run.sqlite") if not (path / name).is_file()]:
            lacks = f"has no {missing[0]}" if path.exists() else "does not exist"
            raise StoreError(f"{path} must be a run directory; it {lacks}")
        config = read_object(path / "config.json")
        return cls(path, connect(path / "run.sqlite", writable=False), config=config, lock=None)

    def __enter__(self) -> RunStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the files; closing twice is fine."""
        with self._guard:
            self._database.close()
            for held in (self._metrics, self._lock):
                if held is not None:
                    held.close()
            self._metrics = self._lock = None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Within the block, all adds are kept together or not at all. Any other add is a separate transaction."""
        with self._guard:
            if self._in_transaction:
                yield
                return
            self._check_writable()
            self._in_transaction = True
            try:
                self._execute("BEGIN IMMEDIATE")
                yield
                self._execute("COMMIT")
            except BaseException:
                self._blobs.forget()  # a dictionary may have been made in it
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise
            finally:
                self._in_transaction = False

    def add_tree(self, stage: str, tree: TreeRecord) -> bool:
        """Keep the tree of one task. Returns False and writes nothing if the stage already has this task seed."""
        return self.add(stage, TREE, str(tree.task.seed), pack(tree, self.dictionaries))

    def set_partial(self, stage: str, tree: PartialTree) -> None:
        """Keep the tree of a task that is still being searched, in place of an earlier one; `add_tree` drops it."""
        self.add(stage, PARTIAL, str(tree.task.seed), pack(tree, self.dictionaries))

    def partial(self, stage: str, seed: int) -> PartialTree | None:
        """The tree that `set_partial` kept last. Raises StoreError if it is damaged."""
        return next(self._records(stage, PARTIAL, decode_partial, str(seed)), None)

    def tree(self, stage: str, seed: int, nodes: Sequence[int] | None = None) -> TreeRecord | None:
        """The tree of one task; None if the stage has none. Raises StoreError if it is damaged.

        `nodes`: read pages and proposals of these nodes only; the numbers of all nodes are read.
        """
        return next(self._records(stage, TREE, partial(decode_tree, nodes=nodes), str(seed)), None)

    def trajectory(self, stage: str, item_key: str) -> Trajectory | None:
        """One episode; None if the stage has none. Raises StoreError if it is damaged."""
        return next(self._records(stage, TRAJECTORY, decode_trajectory, item_key), None)

    def drop_partial(self, stage: str, seed: int) -> None:
        """Forget what `set_partial` kept, if anything."""
        with self.transaction():
            place = (self._stage_id(stage), PARTIAL, str(seed))
            self._execute("DELETE FROM items WHERE stage = ? AND kind = ? AND key = ?", place)

    def add_trajectory(self, stage: str, item_key: str, trajectory: Trajectory) -> bool:
        """Keep an episode under its key (`"17/0"`: task 17, rollout 0). Returns False if the stage has this key."""
        return self.add(stage, TRAJECTORY, item_key, pack(trajectory, self.dictionaries))

    def add(self, stage: str, kind: str, key: str, packed: Packed) -> bool:
        """Keep an item that was packed here or in another process; see `add_tree`, `add_trajectory`, `set_partial`."""
        with self.transaction():
            if kind != TRAJECTORY:
                self.drop_partial(stage, packed.seed)
            place = (self._stage_id(stage), kind, key)
            if self._execute("SELECT 1 FROM items WHERE stage = ? AND kind = ? AND key = ?", place):
                return False
            self._blobs.add(packed.blobs)
            self._execute("INSERT INTO items VALUES (?, ?, ?, ?, ?)", (*place, packed.seed, packed.record))
            return True

    def done(self, stage: str, kind: str | None = None) -> set[int]:
        """Task seeds that have an item in the stage; `kind` "tree" or "trajectory" counts only those."""
        sql = "SELECT DISTINCT seed FROM items JOIN stages ON stages.id = items.stage WHERE name = ? AND kind IN (?, ?)"
        return {seed for (seed,) in self._execute(sql, (stage, kind or TREE, kind or TRAJECTORY))}

    def keys(self, stage: str, kind: str = TRAJECTORY) -> set[str]:
        """Item keys in the stage: needed, unlike `done`, for several episodes per task."""
        return set(self._keys(stage, kind))

    def trees(self, stage: str, nodes: Sequence[int] | None = None) -> Iterator[TreeRecord]:
        """The stage's trees by task seed, decoded one at a time. `nodes`: as in `tree`."""
        return self._records(stage, TREE, partial(decode_tree, nodes=nodes))

    def trajectories(self, stage: str) -> Iterator[Trajectory]:
        """The stage's episodes by task seed, then key, decoded one at a time."""
        return self._records(stage, TRAJECTORY, decode_trajectory)

    def blob(self, address: bytes) -> bytes:
        """The data with this `blob_hash`. Raises StoreError if there is none."""
        with damage_named(self.path / "run.sqlite"):
            return self._blobs.fetch([address])[address]

    @property
    def dictionaries(self) -> Mapping[str, bytes]:
        """The dictionary with which `pack` compresses, by kind of data; a kind has one once there are enough data."""
        return self._blobs.by_kind()

    def set_note(self, stage: str, note: Mapping[str, Any]) -> None:
        """Keep a finished stage's summary, plain JSON values; an earlier summary is replaced."""
        text = json.dumps(note, default=jsonable)
        with self.transaction():
            self._execute("UPDATE stages SET note = ? WHERE id = ?", (text, self._stage_id(stage)))

    def note(self, stage: str) -> dict[str, Any] | None:
        """The stage's summary; None if it has not finished. Raises StoreError if it is damaged."""
        rows = self._execute("SELECT note FROM stages WHERE name = ?", (stage,))
        with damage_named(self.path / "run.sqlite"):
            found = json.loads(rows[0][0]) if rows and rows[0][0] is not None else None
        return None if found is None else as_object(found, f"the note of {stage} in {self.path / 'run.sqlite'}")

    def stages(self) -> list[str]:
        """Stages in the order in which they were first written to."""
        return [name for (name,) in self._execute("SELECT name FROM stages ORDER BY id")]

    def count(self, stage: str, kind: str) -> int:
        """Items of a kind ("tree" or "trajectory") in the stage."""
        return int(self._execute(f"SELECT COUNT(*) {ITEMS}", (stage, kind))[0][0])

    def log(self, stage: str, step: int, **metrics: Any) -> None:
        """Append one line to metrics.jsonl. Numbers that are not finite become null."""
        with self._guard:
            self._check_writable()
            if self._metrics is None:
                self._metrics = Lines(self.path / "metrics.jsonl")
            self._metrics.append(metric_line(stage, step, metrics))
            self.track(stage, step, metrics)

    def track(self, stage: str, step: int, metrics: Mapping[str, Any]) -> None:
        """Send metrics to the trackers only."""
        (self.also or (lambda *_: None))(stage, step, metrics)

    def metrics(self) -> list[dict[str, Any]]:
        """Every logged step, `{"stage", "step", **metrics}`; a step logged again appears once, with its last values."""
        return read_metrics(self.path / "metrics.jsonl")

    def to_arrow(self, table: str = "nodes", stage: str | None = None) -> Any:
        """Nodes of trees, "steps" of episodes or the "pairs" that training takes, in a `pyarrow.Table`."""
        return import_module("agentq.store.tables").to_arrow(self, table, stage)  # which reads runs itself

    def to_pandas(self, table: str = "nodes", stage: str | None = None) -> Any:
        """The same as a `pandas.DataFrame`."""
        return import_module("agentq.store.tables").to_pandas(self, table, stage)

    def _check_writable(self) -> None:
        if self._lock is None:
            raise StoreError(f"{self.path} must be opened for writing, with RunStore.open; it is read-only or closed")

    def _execute(self, sql: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        with self._guard, damage_named(self.path / "run.sqlite"):
            return self._database.execute(sql, values).fetchall()

    def _stage_id(self, stage: str) -> int:
        self._execute("INSERT OR IGNORE INTO stages(name) VALUES (?)", (stage,))
        return int(self._execute("SELECT id FROM stages WHERE name = ?", (stage,))[0][0])

    def _keys(self, stage: str, kind: str) -> list[str]:
        return [key for (key,) in self._execute(f"SELECT key {ITEMS} ORDER BY seed, key", (stage, kind))]

    def _records(
        self, stage: str, kind: str, decode: Callable[[bytes, Fetch], T], only: str | None = None
    ) -> Iterator[T]:
        for key in self._keys(stage, kind) if only is None else [only]:
            if not (found := self._execute(f"SELECT record {ITEMS} AND key = ?", (stage, kind, key))):
                continue  # the writer has dropped it meanwhile
            try:
                item = decode(found[0][0], self._blobs.fetch)
            except UNREADABLE as error:
                if isinstance(error, StoreError):
                    raise
                raise StoreError(damaged(self.path / "run.sqlite", f"{kind} {key} of {stage}: {error}")) from error
            yield item
