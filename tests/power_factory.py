"""A disk whose power can be cut: a program's writes as they were logged, and what may be found after each of them.

`traced` runs a program with `native/powercut.c` loaded. `Disk` replays the log. Until it is synced, a write may be
there, missing, or torn at sectors of 512 bytes, whatever came later; so may a change of a directory, but a rename is
done or not.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

HEAD = struct.Struct("<cQQQQ")
SECTOR = 512


class Op(NamedTuple):
    """One record of the log; see powercut.c."""

    kind: str
    inode: int
    offset: int
    a: bytes
    b: bytes

    @property
    def mark(self) -> Any:
        """What the program acknowledged."""
        return json.loads(self.a)


def compiled(folder: Path) -> Path | None:
    """The logging library, built in a folder; None without a C compiler."""
    compiler, library = shutil.which("cc"), folder / "powercut.so"
    if compiler is None or sys.platform != "linux":
        return None
    source = Path(__file__).parent / "native" / "powercut.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-lpthread"], check=True)
    return library


def traced(library: Path, root: Path, words: Sequence[str], log: Path) -> list[Op]:
    """Run a Python module with words; what it did below `root`."""
    told = {"POWERCUT_ROOT": str(root), "POWERCUT_LOG": str(log), "LD_PRELOAD": str(library)}
    command = [sys.executable, "-m", *words]
    done = subprocess.run(command, env=os.environ | told, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    data, at, ops = log.read_bytes(), 0, []
    while at < len(data):
        kind, inode, offset, a, b = HEAD.unpack_from(data, at)
        at += HEAD.size
        ops.append(Op(kind.decode(), inode, offset, data[at : at + a], data[at + a : at + a + b]))
        at += a + b
        assert ops[-1].kind != "!", f"the log cannot tell {ops[-1].a!r}"
    return ops


@dataclass(slots=True)
class File:
    """Bytes: those that are synced, and what was written since, as (offset, data) or (size, None)."""

    now: bytearray = field(default_factory=bytearray)
    synced: bytes = b""
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)

    def change(self, offset: int, data: bytes | None) -> None:
        self.pending.append((offset, data))
        _change(self.now, offset, data)

    def sync(self) -> None:
        if self.pending:
            self.synced, self.pending = bytes(self.now), []


@dataclass(slots=True)
class Folder:
    """Entries: those that are synced, and changes since, each of (name, what is there afterwards)."""

    now: dict[str, File | Folder] = field(default_factory=dict)
    synced: dict[str, File | Folder] = field(default_factory=dict)
    pending: list[dict[str, File | Folder | None]] = field(default_factory=list)

    def change(self, entries: dict[str, File | Folder | None]) -> None:
        self.pending.append(entries)
        _enter(self.now, entries)

    def sync(self) -> None:
        self.synced, self.pending = dict(self.now), []


class Disk:
    """A folder whose changes are all recorded; it is empty at first."""

    def __init__(self, root: Path) -> None:
        self.root, self.top = root, Folder()
        self.by_inode: dict[int, File | Folder] = {root.stat().st_ino: self.top}

    def apply(self, op: Op) -> None:
        """Make the next change."""
        if op.kind in "CD":
            made = self.by_inode[op.inode] = File() if op.kind == "C" else Folder()
            folder, name = self._place(op.a)
            folder.change({name: made})
        elif op.kind == "U":
            folder, name = self._place(op.a)
            folder.change({name: None})
        elif op.kind in "RL":
            (folder, old), (other, new) = self._place(op.a), self._place(op.b)
            assert folder is other, "a rename between directories is not one change of either"
            folder.change({new: folder.now[old]} | ({old: None} if op.kind == "R" else {}))
        elif op.kind == "S":
            self._see(op)
            self.by_inode[op.inode].sync()
        elif op.kind in "WT":
            file = self.by_inode[op.inode]
            assert isinstance(file, File)
            file.change(op.offset, op.a if op.kind == "W" else None)

    def _see(self, op: Op) -> None:
        """Rename a file that is synced under another name: safetensors renames without the C library."""
        if op.a == str(self.root).encode() or op.a.endswith(b" (deleted)"):
            return
        (folder, name), entry = self._place(op.a), self.by_inode[op.inode]
        if folder.now.get(name) is not entry:
            (old,) = [known for known, there in folder.now.items() if there is entry]
            folder.change({name: entry, old: None})

    def _place(self, path: bytes) -> tuple[Folder, str]:
        *folders, name = Path(path.decode()).relative_to(self.root).parts
        folder = self.top
        for part in folders:
            inner = folder.now[part]
            assert isinstance(inner, Folder)
            folder = inner
        return folder, name

    def write(self, out: Path, luck: Luck) -> None:
        """Make the folder as it is found after a power cut."""
        _write(self.top, out, luck)


class Luck:
    """Which changes that were not synced are found after a cut: none, all, or some."""

    def __init__(self, name: str, seed: int = 0) -> None:
        self.rng = random.Random(f"{name}/{seed}")
        self.ordered = name == "first"  # of each directory or file, the first changes, and no others
        self.share = {"none": 0.0, "all": 1.0}.get(name, self.rng.choice((0.2, 0.5, 0.8)))

    def chosen(self, pending: Sequence[Any]) -> list[Any]:
        """The changes that are found at all."""
        if self.ordered and self.share < 1:
            return list(pending[: self.rng.randint(0, len(pending))])
        return [change for change in pending if self.rng.random() < self.share]

    def content(self, file: File) -> bytes:
        """A file with the changes that survive; some of them are torn."""
        data = bytearray(file.synced)
        for offset, new in self.chosen(file.pending):
            if new is None or self.share in (0.0, 1.0) or self.rng.random() < 0.5:
                _change(data, offset, new)
                continue
            whole = self.rng.choice((SECTOR, 8 * SECTOR))
            for first in range(offset // whole * whole, offset + len(new), whole):
                start, end = max(first, offset), min(first + whole, offset + len(new))
                if self.rng.random() < 0.5:
                    _change(data, start, new[start - offset : end - offset])
                elif self.rng.random() < 0.5:
                    _change(data, max(end, len(data)), None)  # the file grew, and its data did not arrive
        return bytes(data)


def _change(data: bytearray, offset: int, new: bytes | None) -> None:
    if new is None:
        del data[offset:]
        data.extend(bytes(offset - len(data)))
        return
    data.extend(bytes(max(0, offset - len(data))))
    data[offset : offset + len(new)] = new


def _enter(entries: dict[str, File | Folder], changes: dict[str, File | Folder | None]) -> None:
    for name, there in changes.items():
        if there is None:
            entries.pop(name, None)
        else:
            entries[name] = there


def _write(folder: Folder, out: Path, luck: Luck) -> None:
    out.mkdir()
    entries = dict(folder.synced)
    for change in luck.chosen(folder.pending):
        _enter(entries, change)
    for name, entry in entries.items():
        if isinstance(entry, Folder):
            _write(entry, out / name, luck)
        else:
            (out / name).write_bytes(luck.content(entry))
