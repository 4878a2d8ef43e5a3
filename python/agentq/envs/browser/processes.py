"""The processes of a worker: starting them, finding them (in /proc), measuring their memory, ending them.

Playwright's driver starts the browser in a process group of its own, so a group does not find them all. Instead a
worker's environment has a mark, which descendants inherit. Without /proc only the worker itself is known; driver and
browser then exit when their pipes close. Runs in any Python 3.9, without agentq.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import IO, NoReturn

MARK = "AGENTQ_WORKER"
CHROMIUMS = (
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
)  # programs, in order of preference
NO_SANDBOX = "AGENTQ_NO_SANDBOX"  # 1 allows a Chromium without sandbox
# Chromium's message, in Playwright's log of a failed launch, if it cannot have its sandbox.
_NO_SANDBOX_SAID = re.compile(
    r"\[err\] (?:\[[^]\n]*\] )?(.*?(?:sandbox|namespace).*?)(?:[.!](?: .*)?)?$", re.IGNORECASE | re.MULTILINE
)
PREFIX = "agentq-process-"  # of temporary folders, each locked for the life of its owner
_SETTLED_S = 60.0  # a younger folder may be about to be locked
_DISCARD_S = 2.0  # killed processes take this long to be gone from a busy machine
_PROC = Path("/proc")


def must_sandbox() -> bool:
    """Whether Chromium must run in its own sandbox, which is so unless the user has allowed otherwise."""
    return os.environ.get(NO_SANDBOX) != "1"


def sandbox_error(log: str) -> str:
    """The message for a failed launch if `log` says that Chromium cannot have its sandbox, else ""."""
    said = _NO_SANDBOX_SAID.search(log)
    if said is None:
        return ""
    allowed = f"run as a user that is not root, or let it run without its sandbox: {NO_SANDBOX}=1"
    return f"Chromium must run in its sandbox; got '{said[1]}': {allowed}"


class WorkerProcess:
    """The owner's view of a worker: a process with a mark, a temporary folder, and pipes.

    The process must call `end_here` at the end of its input, so that it does not outlive its owner.
    """

    process: subprocess.Popen[bytes]

    def __init__(self) -> None:
        """Raises OSError if there is no room for a folder."""
        sweep()
        self.mark = uuid.uuid4().hex
        self.folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        try:
            self._lock = lock(self.folder)
        except OSError:
            discard(self.folder)
            raise

    def start(self, command: list[str], environ: dict[str, str], log: IO[bytes] | None = None) -> None:
        """Run `command` with stderr in `log`, or in that of this process.

        Raises OSError if it does not start; the folder is then removed.
        """
        try:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**environ, "TMPDIR": str(self.folder), MARK: self.mark},
                start_new_session=True,
            )
        except OSError:
            self._remove()
            raise

    def kill(self) -> None:
        """End all its processes, remove its folder. Idempotent."""
        end(self.process.pid, self.mark)
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()
        self._remove()

    def _remove(self) -> None:
        held, self._lock = self._lock, -1
        if held >= 0:
            os.close(held)  # first: its descriptor may be the last one
        discard(self.folder)


def discard(folder: Path) -> None:
    """Remove a folder, an empty one even if no descriptor is left to list it.

    What a process that is ending writes meanwhile is removed, too, within a bound.
    """
    give_up = time.monotonic() + _DISCARD_S
    while True:
        try:
            folder.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists() or time.monotonic() > give_up:
            return
        time.sleep(0.01)


if sys.platform == "win32":
    import msvcrt

    def lock(path: Path) -> int:
        """Lock a file or folder until the descriptor is closed or this process ends. Raises OSError if it is locked."""
        held = os.open(path / "lock" if path.is_dir() else path, os.O_RDWR | os.O_CREAT | os.O_NOINHERIT)
        try:
            os.lseek(held, 1 << 30, os.SEEK_SET)  # nobody can read what is locked
            msvcrt.locking(held, msvcrt.LK_NBLCK, 1)
        except OSError:
            os.close(held)
            raise
        return held

    def _is_own(about: os.stat_result) -> bool:
        return True  # folders of temporary files belong to one user

else:
    import fcntl

    def lock(path: Path) -> int:
        """Lock a file or folder until the descriptor is closed or this process ends. Raises OSError if it is locked."""
        held = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(held)
            raise
        return held

    def _is_own(about: os.stat_result) -> bool:
        return about.st_uid == os.geteuid()


def is_stale(path: Path) -> bool:
    """Whether a file or folder of this user is left by an owner that has ended: nothing locks it."""
    try:
        about = path.lstat()
        if not _is_own(about) or time.time() - about.st_mtime < _SETTLED_S:
            return False
        os.close(lock(path))
    except OSError:
        return False
    return True


def sweep() -> None:
    """Remove the folders of workers that were killed together with their owner."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        if is_stale(folder):
            discard(folder)


def end_here() -> NoReturn:
    """In the worker: end all its processes, remove its folder and exit, even if other threads hang."""
    end(os.getpid(), os.environ[MARK], timeout_s=60.0)  # the folder is removed after the last writer
    discard(Path(os.environ["TMPDIR"]))
    os._exit(0)


def tree(pid: int, mark: str) -> set[int]:
    """`pid`, every process with MARK=mark in its environment, and all their descendants."""
    parents: dict[int, int] = {}
    roots = {pid}
    for entry in _PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if f"{MARK}={mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                roots.add(int(entry.name))
    found, before = roots, 0
    while len(found) > before:
        before = len(found)
        found = found | {child for child, parent in parents.items() if parent in found}
    return found


def memory_mb(pids: set[int]) -> float:
    """Memory in MiB as proportional set size: shared pages are counted once."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError):
            for line in (_PROC / str(pid) / "smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1])
    return total / 1024


def end(pid: int, mark: str, timeout_s: float = 20.0) -> None:
    """Kill the worker `pid` and everything it started, and wait until they are gone."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            pids = {each for each in tree(pid, mark) - {os.getpid()} if _alive(each)}
        except OSError:  # no descriptor is left to list the processes
            pids = {pid}
        if not pids or time.monotonic() > deadline:
            return
        for each in pids:
            with contextlib.suppress(OSError):
                os.kill(each, getattr(signal, "SIGKILL", signal.SIGTERM))  # at once on Windows too
        time.sleep(0.005)


def _alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False
