"""Whether a run is whole, what of it is damaged, and a new run of what is not."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from agentq.errors import ConfigError, StoreError
from agentq.store.blobs import Blobs
from agentq.store.claim import check_writable
from agentq.store.codec import UNREADABLE, blob_hash
from agentq.store.database import APPLICATION_ID, check_version, damage_named, read_only_uri
from agentq.store.durable import flaw
from agentq.store.files import read_json, read_metrics, read_object
from agentq.store.partial import decode_partial
from agentq.store.records import decode_trajectory, decode_tree
from agentq.store.run import PARTIAL, TRAJECTORY, TREE, RunStore

DECODE: dict[str, Callable[..., Any]] = {TREE: decode_tree, TRAJECTORY: decode_trajectory, PARTIAL: decode_partial}
BROKEN = "\ufffd"  # stands for bytes that are no text


class CheckedPart(NamedTuple):
    """A part of a run, whether it is whole, and what was found."""

    part: str
    whole: bool
    said: str


class _Row(NamedTuple):
    stage: str
    kind: str
    key: str
    record: bytes


def check_run(run: Path) -> Iterator[CheckedPart]:
    """Read everything in a run. Yields a finding per file, per stage and per finished training.

    Raises:
        StoreError: if `run` is no run directory, or was written by an agentq whose runs this one does not read.
    """
    if not (run / "run.sqlite").is_file():
        raise StoreError(f"{run} must be a run directory; it has no run.sqlite")
    with closing(_connect(run)) as database, suppress(sqlite3.Error):  # which are found below
        marks = [database.execute(f"PRAGMA {mark}").fetchone()[0] for mark in ("application_id", "user_version")]
        if marks[0] == APPLICATION_ID:
            check_version(marks[1], run / "run.sqlite")
    for name in ("config.json", "env.json", "summary.json"):
        if name == "config.json" or (run / name).exists():
            yield _tried(name, partial(_json, run / name))
    yield _tried("metrics.jsonl", lambda: f"{len(read_metrics(run / 'metrics.jsonl'))} lines")
    with closing(_connect(run)) as database:
        yield _tried("run.sqlite", lambda: _intact(database, run))
        blobs = _blobs(database, run)
        for stage, name, note in _stages(database):
            kept, lost = 0, list[str]()
            for row in _rows(database, stage, name):
                try:
                    _decode(row, blobs)
                    kept += 1
                except UNREADABLE as error:
                    lost.append(f"{row.kind} {row.key} ({error})")
            if kept or lost or note is None:
                said = f"{kept} whole" + (f", {len(lost)} damaged: {lost[0]}" if lost else "")
                said += "" if note is not None else "; the stage's name or note is damaged"
                yield CheckedPart(name, not lost and note is not None, said)
        for _, _, note in _stages(database):
            for kept_as, files in (note or {}).get("checkpoints", {}).items():
                broken = flaw(run / "checkpoints" / kept_as, files)
                yield CheckedPart(f"checkpoints/{kept_as}", broken is None, broken or "as the run left it")


def save(run: Path, out: Path) -> tuple[int, int]:
    """Make the new run `out` of all that is whole in a damaged one. Its command then makes what is missing.

    Checkpoints are not copied: training learns again from the kept rollouts. A damaged note is left out.

    Returns:
        (trees and episodes kept, those lost as far as they could be counted).

    Raises:
        ConfigError: if `out` exists or cannot be made.
        StoreError: if config.json is damaged, run.sqlite has no stages or items, or `out` cannot be written.
    """
    check_out(out)
    config, kept, lost = read_object(run / "config.json"), 0, 0
    with closing(_connect(run)) as database:
        _check_tables(database, run)
    with closing(_connect(run)) as database, RunStore.open(out, config) as store:
        blobs = _blobs(database, run)
        for stage, name, note in _stages(database):
            for row in _rows(database, stage, name):
                try:
                    record = _decode(row, blobs)
                except UNREADABLE:
                    lost += row.kind != PARTIAL
                    continue
                kept += row.kind != PARTIAL
                if row.kind == TREE:
                    store.add_tree(name, record)
                elif row.kind == PARTIAL:
                    store.set_partial(name, record)
                else:
                    store.add_trajectory(name, row.key, record)
            made_of = {"done", "finished", "checkpoints", "state", "measured"}  # marks of work that may be lost
            if note is not None:
                store.set_note(name, {key: value for key, value in note.items() if key not in made_of})
        with suppress(StoreError):
            for line in read_metrics(run / "metrics.jsonl", lost=[]):
                store.log(**line)
    return kept, lost


def check_out(out: Path) -> None:
    """Raises ConfigError if `out` exists or cannot be made."""
    if out.exists():
        raise ConfigError(f"--out must be a new directory; got {out}, which exists")
    check_writable(out)


def _tried(part: str, read: Callable[[], str]) -> CheckedPart:
    try:
        return CheckedPart(part, True, read())
    except StoreError as error:
        return CheckedPart(part, False, str(error))


def _json(file: Path) -> str:
    (read_json if file.name == "summary.json" else read_object)(file)
    return "whole"


def _connect(run: Path) -> sqlite3.Connection:
    with damage_named(run / "run.sqlite"):
        database = sqlite3.connect(read_only_uri(run / "run.sqlite"), uri=True)
    database.text_factory = partial(str, encoding="utf-8", errors="replace")  # a damaged text hides no other row
    return database


def _check_tables(database: sqlite3.Connection, run: Path) -> None:
    with damage_named(run / "run.sqlite"):
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if missing := sorted({"stages", "items", "blobs"} - tables):
        raise StoreError(f"{run / 'run.sqlite'} must be the database of a run; it has no table {missing[0]}")


def _intact(database: sqlite3.Connection, run: Path) -> str:
    with damage_named(run / "run.sqlite"):
        (verdict,) = database.execute("PRAGMA integrity_check(1)").fetchone()
        (application,) = database.execute("PRAGMA application_id").fetchone()
    if verdict != "ok":
        raise StoreError(f"damaged: {verdict.splitlines()[-1]}")
    _check_tables(database, run)
    if application != APPLICATION_ID:
        raise StoreError(f"damaged: its mark must be that of agentq, {APPLICATION_ID:#x}; got {application:#x}")
    return "whole"


def _blobs(database: sqlite3.Connection, run: Path) -> Blobs:
    def execute(sql: str, values: Iterable[Any] = ()) -> list[tuple[Any, ...]]:
        with damage_named(run / "run.sqlite"):
            return database.execute(sql, tuple(values)).fetchall()

    return Blobs(execute)


def _stages(database: sqlite3.Connection) -> list[tuple[int, str, dict[str, Any] | None]]:
    """Number, name and note of each stage that can be read; None for a note that is damaged."""
    return [(stage, name, _note(name, text)) for stage, name, text in _readable(database, "stages", "id, name, note")]


def _note(name: str, text: str | None) -> dict[str, Any] | None:
    """A stage's note, {} if it has none; None if it or the stage's name is damaged."""
    if BROKEN in name:
        return None
    try:
        note = {} if text is None else json.loads(text.encode("ascii"))  # as `set_note` has written it
    except (ValueError, AttributeError):
        return None
    return note if isinstance(note, dict) else None


def _rows(database: sqlite3.Connection, stage: int, name: str) -> Iterator[_Row]:
    for row in _readable(database, "items", "kind, key, record", f"AND +stage = {stage:d}"):  # +: by rowid, no index
        yield _Row(name, *row)


def _readable(database: sqlite3.Connection, table: str, columns: str, which: str = "") -> Iterator[tuple[Any, ...]]:
    """The rows of a table that SQLite can read: from the first one up, and past damage from the last one down."""
    bounds = (0, 1 << 62)
    for order, beyond in (("ASC", ">"), ("DESC", "<")):
        at = bounds[order == "DESC"]
        while True:
            sql = f"SELECT rowid, {columns} FROM {table} WHERE rowid {beyond} ? {which} ORDER BY rowid {order} LIMIT 1"
            try:
                row = database.execute(sql, (at,)).fetchone()
            except sqlite3.DatabaseError:
                break
            if row is None or (order == "DESC" and row[0] <= bounds[0]):
                return
            at = row[0]
            if order == "ASC":
                bounds = (at, bounds[1])
            yield row[1:]


def _decode(row: _Row, blobs: Blobs) -> Any:
    """The record. Raises one of `UNREADABLE` if it, or one of its blobs, is damaged."""

    def fetch(addresses: Iterable[bytes]) -> dict[bytes, bytes]:
        found = blobs.fetch(addresses)
        for address, data in found.items():
            if blob_hash(data) != address:
                raise StoreError(f"blob {address.hex()} is damaged")
        return found

    if BROKEN in row.stage + row.key:
        raise StoreError("its stage or key is damaged")
    return DECODE[row.kind](row.record, fetch)
