"""The SQLite file of a run: its schema, how it is opened and checked, and which errors mean damage.

Write-ahead log with synchronous=FULL: a transaction is on the disk when its commit returns, so it survives the death of
the process and a power cut. That costs one sync of the log per transaction.
"""

from __future__ import annotations

import json
import os
import shlex
import sqlite3
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentq.errors import StoreError

SCHEMA_VERSION = 3
APPLICATION_ID = 0x61677471  # "agtq"

SCHEMA = """
CREATE TABLE stages(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, note TEXT);
CREATE TABLE items(
    stage INTEGER NOT NULL REFERENCES stages(id),
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    seed INTEGER NOT NULL,
    record BLOB NOT NULL,
    PRIMARY KEY (stage, kind, key)
);
CREATE TABLE blobs(hash BLOB PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE dictionaries(checksum BLOB PRIMARY KEY, kind TEXT NOT NULL, data BLOB NOT NULL);
"""
MIGRATIONS = {  # what makes the next version of one; a database that is only read stays as it is
    2: "CREATE TABLE dictionaries(checksum BLOB PRIMARY KEY, kind TEXT NOT NULL, data BLOB NOT NULL);",
}


@contextmanager
def damage_named(path: Path) -> Iterator[None]:
    """Turn errors of SQLite and the decoder about `path` into a `StoreError` of one line."""
    try:
        yield
    except sqlite3.ProgrammingError as error:
        if "closed" not in str(error):
            raise
        raise StoreError(f"{path} must be open for reading; it is closed: read it inside the with block") from error
    except sqlite3.OperationalError as error:
        code = getattr(error, "sqlite_errorcode", None)  # Python's own have none: text that is not UTF-8
        if code == sqlite3.SQLITE_FULL:
            raise StoreError(f"{path} must be writable; got no space left: make room and run it again") from error
        if code == sqlite3.SQLITE_IOERR_WRITE:  # a quota too: SQLite takes ENOSPC alone for a full disk
            raise StoreError(
                f"{path} must be writable; got {error}, as where a quota or a limit of file sizes is reached: "
                "make room and run it again"
            ) from error
        if code is not None:
            raise StoreError(f"{path} could not be read or written: {error}") from error
        raise StoreError(damaged(path, error)) from error
    except (sqlite3.Error, zlib.error, struct.error, json.JSONDecodeError, UnicodeDecodeError, KeyError) as error:
        raise StoreError(damaged(path, error)) from error


def damaged(path: Path, found: object) -> str:
    """The message about a damaged database."""
    return f"{path} is damaged ({found}): agentq check {shlex.quote(str(path.parent))} says what can be saved"


def connect(path: Path, *, writable: bool) -> sqlite3.Connection:
    """Open `path` and check that it is intact and agentq's. A new or empty file gets the schema if `writable`.

    Raises:
        StoreError: if it is damaged, is no run's database, or has another schema.
    """
    with damage_named(path):
        if writable:
            database = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30.0)
        else:
            database = sqlite3.connect(read_only_uri(path), uri=True, isolation_level=None, check_same_thread=False)
        try:
            _check(database, path, writable)
        except BaseException:
            database.close()
            raise
    return database


def read_only_uri(path: Path) -> str:
    """A URI for reading. SQLite reads a write-ahead log through a side file, which needs a writable folder."""
    side_file = path.with_name(f"{path.name}-wal")
    frozen = not os.access(path.parent, os.W_OK) and not side_file.exists()
    return f"{path.resolve().as_uri()}?{'immutable=1' if frozen else 'mode=ro'}"


def _check(database: sqlite3.Connection, path: Path, writable: bool) -> None:
    (version,) = database.execute("PRAGMA user_version").fetchone()
    (application,) = database.execute("PRAGMA application_id").fetchone()
    (tables,) = database.execute("SELECT COUNT(*) FROM sqlite_schema").fetchone()
    if writable:
        database.execute("PRAGMA synchronous = FULL")
        _use_log(database, path)
    if writable and not tables:
        _create(database)
        return
    if application != APPLICATION_ID:
        raise StoreError(f"{path} must be the database of an agentq run; got another one")
    check_version(version, path)
    if writable:
        database.execute("PRAGMA wal_checkpoint(PASSIVE)")  # syncs what a killed writer committed
    (verdict,) = database.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise StoreError(damaged(path, verdict.splitlines()[-1]))
    if writable:
        _migrate(database, version)


class OtherVersion(StoreError):
    """A run of an agentq whose runs this one does not read. `age`: older or newer."""

    def __init__(self, age: str, message: str) -> None:
        super().__init__(message)
        self.age = age


def check_version(version: int, path: Path) -> None:
    """Raises OtherVersion if this agentq does not read a database of this version of the schema."""
    if version == SCHEMA_VERSION or version in MIGRATIONS:
        return
    age, remedy = "older", "read it with that version, or start over with clean=True"
    if version > SCHEMA_VERSION:
        age, remedy = "newer", "upgrade agentq"
    found, article = f"schema {version}; this one reads {SCHEMA_VERSION}", "an" if age == "older" else "a"
    raise OtherVersion(age, f"{path.parent} was written by {article} {age} agentq ({found}): {remedy}")


def _migrate(database: sqlite3.Connection, version: int) -> None:
    """Bring an older database to this version, in one transaction per version."""
    for number in range(version, SCHEMA_VERSION):
        marks = f"PRAGMA user_version = {number + 1};"
        database.executescript(f"BEGIN IMMEDIATE; {MIGRATIONS[number]} {marks} COMMIT;")


def _use_log(database: sqlite3.Connection, path: Path) -> None:
    (mode,) = database.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise StoreError(
            f"{path} must lie where SQLite can keep a write-ahead log; got journal mode '{mode}', as on network file "
            "systems: choose a local directory"
        )


def _create(database: sqlite3.Connection) -> None:
    marks = f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {SCHEMA_VERSION};"
    database.executescript(f"BEGIN IMMEDIATE; {SCHEMA} {marks} COMMIT;")
