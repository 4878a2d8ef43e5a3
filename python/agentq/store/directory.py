"""Making, checking, locking and deleting a run directory. Owns the order in which its files appear."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from agentq.errors import StoreError
from agentq.store.database import connect, damage_named
from agentq.store.durable import PARTIAL, clean_up, disk_named, make_directory, remove, sync, sync_tree
from agentq.store.files import cut_torn_line, environment_info, first_difference, read_object, write_json
from agentq.store.system import FLAGS, at_fork, lock

SIDE_FILES = ("run.sqlite-journal", "run.sqlite-wal", "run.sqlite-shm")
OWN_FILES = (
    *("config.json", "env.json", "run.sqlite", *SIDE_FILES),
    *("metrics.jsonl", "summary.json", "report.html", "view.html", "checkpoints", "trackers", ".lock"),
)
_held: set[tuple[int, int]] = set()  # device and inode of each directory that this process holds
_guard = threading.Lock()


def _free_in_child() -> None:
    _held.clear()  # a child inherits no POSIX lock
    _guard.release()


at_fork(before=_guard.acquire, parent=_guard.release, child=_free_in_child)


def check_directory(path: Path) -> None:
    """Raises StoreError unless `path` is new, empty, or has nothing but what a run may have beside its own files."""
    if path.exists() and not path.is_dir():
        raise StoreError(f"{path} must be a directory; got a file")
    found = {entry.name for entry in path.iterdir()} if path.exists() else set()
    if found - {".lock", *SIDE_FILES} and not found & {"config.json", "run.sqlite"}:
        raise StoreError(f"{path} must be empty or a run directory; it holds {sorted(found)[0]} and no config.json")


class Lock:
    """The exclusive right to write a directory, until `close` or the death of the process.

    A POSIX lock belongs to the whole process and ends when the process closes any handle of the file. So a registry
    refuses a second holder in the same process before it opens the file.
    """

    def __init__(self, path: Path) -> None:
        """Raises StoreError if the directory is held already, here or in another process."""
        with disk_named(path / ".lock"), _guard:
            found = path.stat()
            self._key = (found.st_dev, found.st_ino)
            if self._key in _held:
                raise StoreError(f"{path} must have one writer; it is open in this process already: close it first")
            self._handle = os.open(path / ".lock", os.O_RDWR | os.O_CREAT | FLAGS, 0o666)
            try:
                if not lock(self._handle):
                    raise StoreError(f"{path} must have one writer; it is open in another process")
            except BaseException:
                os.close(self._handle)
                raise
            _held.add(self._key)

    def close(self) -> None:
        """Release the directory; call it once."""
        with _guard:
            os.close(self._handle)
            _held.discard(self._key)


def is_held(path: Path) -> bool:
    """Whether a process writes the directory. A directory whose lock cannot be tried counts as free."""
    if not (path / ".lock").exists():
        return False
    try:
        Lock(path).close()
    except StoreError as error:
        return "one writer" in str(error)
    return False


def delete_run(path: Path) -> None:
    """Delete the files of a run, but no other file in its directory.

    config.json is deleted first and the database last. So the remains after a power cut count neither as a run nor as a
    foreign directory, and are refused until they are deleted.
    """
    last = ("run.sqlite", *SIDE_FILES, ".lock")
    for names in (("config.json",), set(OWN_FILES) - {"config.json", *last}, last[:-1]):
        for name in names:
            remove(path / name)
        sync(path)


def settle(path: Path) -> None:
    """Clean up after a killed process: remove partial files, and sync the rest to the disk."""
    for name in OWN_FILES:
        for left in path.glob(f".{name}.*{PARTIAL}"):
            with suppress(OSError):
                left.unlink()
    cut_torn_line(path / "metrics.jsonl")
    make_directory(path / "checkpoints")
    clean_up(path / "checkpoints")
    sync_tree(path / "checkpoints")
    sync(path)


def open_database(path: Path, config: Mapping[str, Any], grows: Collection[str] = ()) -> sqlite3.Connection:
    """The run's database, made if the directory is new. config.json is written last and marks a complete directory.

    `grows`: keys whose numbers may be higher in `config` than in the stored settings, which then are replaced.

    Raises:
        StoreError: if the settings are not the stored ones, a file is missing, or the database is damaged or newer.
    """
    settings, database_path = path / "config.json", path / "run.sqlite"
    if database_path.is_symlink():
        raise StoreError(f"{database_path} must be a file; got a link to {os.readlink(database_path)}")
    known, grown = settings.exists(), False
    if known:
        if not database_path.exists() or database_path.stat().st_size == 0:
            raise StoreError(f"{path} is damaged: run.sqlite is missing: restore a copy or start over with clean=True")
        stored = read_object(settings)
        _check_config(path, stored, config, grows)
        grown = stored != config
    database = connect(database_path, writable=True)
    try:
        if not known:
            with damage_named(database_path):
                (stages,) = database.execute("SELECT COUNT(*) FROM stages").fetchone()
            if stages:
                raise StoreError(f"{path} is damaged: config.json is missing: restore it or start over with clean=True")
            write_json(path / "env.json", environment_info(config))
        if grown or not known:
            write_json(settings, config)
    except BaseException:
        database.close()
        raise
    return database


def _check_config(path: Path, stored: Mapping[str, Any], given: Mapping[str, Any], grows: Collection[str]) -> None:
    difference = first_difference(stored, given, grows)
    if difference is not None:
        key, was, now = difference
        remedy = "pass the same settings, choose another directory, or start over with clean=True"
        raise StoreError(f"{path} was made with {key} = {was!r}; got {now!r}: {remedy}")
