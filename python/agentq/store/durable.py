"""Files and directories that appear whole or not at all, and survive a power cut once the call that made them returns.

Data is written under another name beside its place, synced, and renamed; then the directory is synced. A link in its
place is replaced, never followed. A failure of the disk becomes a `StoreError` of one line.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from agentq.errors import AgentqError, StoreError
from agentq.store.system import CLOSED_IN_CHILDREN, FLAGS

PARTIAL, REPLACED = ".partial", ".replaced"
NEW_FILE = os.O_CREAT | os.O_EXCL | FLAGS
WHOLE_BYTES = 64 << 20  # a larger file is sealed by samples: a 16 GiB checkpoint takes about 50 ms
BLOCK_BYTES = 1 << 20

_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_RUST = re.compile(r"\(os error (\d+)\)")


@contextmanager
def disk_named(path: Path) -> Iterator[None]:
    """Turn a failure of the disk while `path` is written into a `StoreError` of one line."""
    try:
        yield
    except AgentqError:
        raise
    except Exception as error:
        rust = _RUST.search(str(error))  # safetensors and tokenizers raise bare Exceptions with this end
        code = error.errno if isinstance(error, OSError) else int(rust[1]) if rust else None
        if code is None:
            raise
        if code == errno.ELOOP:
            raise StoreError(f"{path} must be a file; got a link: delete it") from error
        remedy = "make room and run it again" if code in _ROOM else "choose another directory"
        raise StoreError(f"{path} must be writable; got {os.strerror(code).lower()}: {remedy}") from error


def sync(path: Path) -> None:
    """Write a file's content, or a directory's entries, to the disk."""
    try:
        handle = os.open(path, os.O_RDONLY | CLOSED_IN_CHILDREN)
    except PermissionError:
        if path.is_dir():
            return  # an unreadable directory cannot be synced, and has nothing that was made here
        raise
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # the file system syncs no directories
            raise
    finally:
        os.close(handle)


def sync_tree(directory: Path) -> None:
    """`sync` of a directory and everything in it."""
    for folder, _, files in os.walk(directory, topdown=False):
        for name in files:
            sync(Path(folder, name))
        sync(Path(folder))


def write_whole(path: Path, data: bytes) -> None:
    """Write a file. Readers see the old or the new one, whole; the new one is on the disk when the call returns.

    Raises:
        StoreError: if writing fails; the old file is then unchanged.
    """
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}{PARTIAL}")
    with disk_named(path):
        try:
            with open(os.open(beside, os.O_WRONLY | NEW_FILE, 0o666), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
        except BaseException:
            with suppress(OSError):
                beside.unlink()
            raise
        sync(path.parent)


def check_page(path: Path, remedy: str = "", *, follow: bool = True) -> None:
    """Check before the work that `write_page` can write a file. Raises StoreError if not."""
    with _page_named(path, remedy):
        place = Path(os.path.realpath(path)) if follow else path
        with disk_named(place), tempfile.TemporaryFile(dir=place.parent):
            pass


def write_page(path: Path, data: bytes, remedy: str = "", *, follow: bool = True) -> None:
    """Write a file as `write_whole` does, but never in place of a device or a pipe.

    Args:
        remedy: the end of the error's message.
        follow: whether a link leads to its file, as where the user named it; otherwise the link is replaced.

    Raises:
        StoreError: if it cannot be written.
    """
    with _page_named(path, remedy):
        write_whole(Path(os.path.realpath(path)) if follow else path, data)


@contextmanager
def _page_named(path: Path, remedy: str) -> Iterator[None]:
    try:
        if reason := no_file(path):
            raise StoreError(reason)
        yield
    except StoreError as error:
        said = error.__cause__.strerror if isinstance(error.__cause__, OSError) else error
        raise StoreError(f"{path} must be a file that can be written; got {said}{remedy}") from error


def no_file(path: Path) -> str | None:
    """Why a file cannot be written to `path`: something else is there, or no folder is; None if it can."""
    if path.exists() and not path.is_file():
        return os.strerror(errno.EISDIR) if path.is_dir() else "a device or a pipe"
    return None if path.parent.is_dir() else os.strerror(errno.ENOENT)


def make_directory(path: Path) -> None:
    """Make a directory and its parents and sync them; existing ones are kept."""
    with disk_named(path):
        parents = [path.parent, *(folder.parent for folder in path.parents if not folder.exists())]
        path.mkdir(parents=True, exist_ok=True)
        for folder in parents:
            sync(folder)


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """A new directory beside `path` that replaces it when the block succeeds, and is deleted when it fails.

    The old one is whole at `path` until then. A process killed between the two renames leaves it for `restore`.

    Raises:
        StoreError: if writing fails; the old directory is then unchanged.
    """
    beside, old = path.with_name(f".{path.name}{PARTIAL}"), path.with_name(f".{path.name}{REPLACED}")
    make_directory(path.parent)
    restore(path)
    with disk_named(path):
        _discard(beside)
        beside.mkdir()
        try:
            yield beside
            sync_tree(beside)
        except BaseException:
            _discard(beside)
            raise
        if os.path.lexists(path):
            path.rename(old)
        beside.rename(path)
        sync(path.parent)
        _discard(old)


def restore(path: Path) -> None:
    """Undo or finish an interrupted `replaced`: put back the old directory if there is no new one, else delete it."""
    old = path.with_name(f".{path.name}{REPLACED}")
    with disk_named(path):
        if os.path.lexists(old) and not os.path.lexists(path):
            old.rename(path)
            sync(path.parent)
        _discard(old)


def clean_up(directory: Path) -> None:
    """Undo or finish interrupted calls of `replaced` anywhere in a directory."""
    for left in sorted(directory.rglob(f".*{REPLACED}")):
        restore(left.with_name(left.name[1:].removesuffix(REPLACED)))
    for left in sorted(directory.rglob(f".*{PARTIAL}")):
        _discard(left)


def remove(path: Path) -> None:
    """Delete a file, a link or a whole directory, if it exists."""
    with disk_named(path):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _discard(path: Path) -> None:
    """`remove` something unneeded; ignore failures."""
    with suppress(StoreError):
        remove(path)


def seal(path: Path) -> dict[str, str]:
    """A seal for `flaw`: name, size and digest of a file, or of each file in a directory.

    Up to 64 MiB the digest covers all bytes, else 64 evenly spaced blocks of 1 MiB, including the first and the last.
    It detects other weights, but not a flipped bit between the blocks.
    """
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    return {str(file.relative_to(path)) if file != path else "": _seal(file) for file in files}


def sealed(path: Path) -> str:
    """32 hex digits that change with what `seal` covers."""
    return hashlib.blake2b(repr(sorted(seal(path).items())).encode(), digest_size=16).hexdigest()


def flaw(path: Path, sealed: Mapping[str, str]) -> str | None:
    """The first fault of sealed files, such as "model.safetensors is missing"; None if they are the same."""
    for name, wanted in sealed.items():
        file = path / name if name else path
        if not file.is_file():
            return f"{file.name} is missing" if path.exists() else "it is missing"
        size, _, _ = wanted.partition(":")
        if file.stat().st_size != int(size):
            return f"{file.name} has {file.stat().st_size} bytes instead of {size}"
        if _seal(file) != wanted:
            return f"{file.name} was altered"
    return None


def _seal(file: Path) -> str:
    size, found = file.stat().st_size, hashlib.blake2b(digest_size=16)
    with file.open("rb") as handle:
        if size <= WHOLE_BYTES:
            found.update(handle.read())
        else:
            count = WHOLE_BYTES // BLOCK_BYTES
            for i in range(count):
                handle.seek((size - BLOCK_BYTES) * i // (count - 1))
                found.update(handle.read(BLOCK_BYTES))
    return f"{size}:{found.hexdigest()}"
