"""Making, checking, locking and deleting a run directory. Owns the order in which its files appear."""

from __future__ import annotations

import fcntl
import shutil
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from agentq.errors import StoreError
from agentq.store.database import connect, damage_named
from agentq.store.files import environment_info, first_difference, read_json, write_json

OWN_FILES = (
    *("config.json", "env.json", "run.sqlite", "run.sqlite-wal", "run.sqlite-shm"),
    *("metrics.jsonl", "summary.json", "report.html", "checkpoints", ".lock"),
)


def check_directory(path: Path) -> None:
    """Raises StoreError unless `path` is new, empty, or holds only what a run may hold beside its own files."""
    if path.exists() and not path.is_dir():
        raise StoreError(f"{path} must be a directory; got a file")
    found = {entry.name for entry in path.iterdir()} if path.exists() else set()
    if found - {".lock"} and not found & {"config.json", "run.sqlite"}:
        raise StoreError(f"{path} must be empty or a run directory; it holds {sorted(found)[0]} and no config.json")


def lock(path: Path) -> IO[str]:
    """Hold the directory for this process until the file is closed; the death of the process frees it too.

    Raises:
        StoreError: if another process holds it.
    """
    file = (path / ".lock").open("a")
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # POSIX lock: not inherited by a forked child
    except OSError as error:
        file.close()
        raise StoreError(f"{path} must have one writer; it is open in another process") from error
    return file


def delete_run(path: Path) -> None:
    """Delete the files of a run, and nothing else that lies in its directory."""
    for name in OWN_FILES:
        entry = path / name
        if entry.is_dir():
            shutil.rmtree(entry)
        elif name != ".lock":
            entry.unlink(missing_ok=True)


def open_database(path: Path, config: Mapping[str, Any]) -> sqlite3.Connection:
    """The run's database, made if the directory is new. config.json comes last, so it marks a directory as complete.

    Raises:
        StoreError: if the settings are not the stored ones, a file is missing, or the database is damaged or newer.
    """
    settings, database_path = path / "config.json", path / "run.sqlite"
    known = settings.exists()
    if known:
        if not database_path.exists() or database_path.stat().st_size == 0:
            raise StoreError(f"{path} is damaged: run.sqlite is missing: restore a copy or start over with clean=True")
        _check_config(path, read_json(settings), config)
    database = connect(database_path, writable=True)
    try:
        if not known:
            with damage_named(database_path):
                (stages,) = database.execute("SELECT COUNT(*) FROM stages").fetchone()
            if stages:
                raise StoreError(f"{path} is damaged: config.json is missing: restore it or start over with clean=True")
            write_json(path / "env.json", environment_info(config))
            write_json(settings, config)
    except BaseException:
        database.close()
        raise
    return database


def _check_config(path: Path, stored: Any, given: Mapping[str, Any]) -> None:
    if not isinstance(stored, dict):
        raise StoreError(f"{path / 'config.json'} is damaged: it must be a JSON object; got {type(stored).__name__}")
    difference = first_difference(stored, given)
    if difference is not None:
        key, was, now = difference
        remedy = "pass the same settings, choose another directory, or start over with clean=True"
        raise StoreError(f"{path} was made with {key} = {was!r}; got {now!r}: {remedy}")
