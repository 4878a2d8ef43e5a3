"""The processes of a worker: how it starts, who they are (read from /proc), what memory they hold, and their end.

Playwright's driver starts the browser in a process group of its own, so a group is not enough to find them all: a
worker's environment holds a mark, and descendants inherit it. Where there is no /proc only the worker itself is known;
the driver and the browser then end themselves when their pipes close. Runs in any Python 3.9, without agentq.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from pathlib import Path
from typing import IO, NoReturn

MARK = "AGENTQ_WORKER"
CHROMIUMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")  # programs, the best first
NO_SANDBOX = "AGENTQ_NO_SANDBOX"  # the variable that, if it is 1, allows a Chromium without its sandbox
# What Chromium says on stderr, in Playwright's log of a failed launch, if it cannot have its sandbox.
_NO_SANDBOX_SAID = re.compile(
    r"\[err\] (?:\[[^]\n]*\] )?(.*?(?:sandbox|namespace).*?)(?:[.!](?: .*)?)?$", re.IGNORECASE | re.MULTILINE
)
PREFIX = "agentq-process-"  # of temporary folders; each is locked by its owner as long as that lives
_SETTLED_S = 60.0  # what is younger may be about to be locked
_PROC = Path("/proc")


def must_sandbox() -> bool:
    """Whether a Chromium may run in its own sandbox only, as the user has not allowed otherwise."""
    return os.environ.get(NO_SANDBOX) != "1"


def sandbox_error(log: str) -> str:
    """What to tell of a launch that failed with `log` because Chromium cannot have its sandbox; "" if it did not."""
    said = _NO_SANDBOX_SAID.search(log)
    if said is None:
        return ""
    allowed = f"run as a user that is not root, or let it run without its sandbox: {NO_SANDBOX}=1"
    return f"Chromium must run in its sandbox; got '{said[1]}': {allowed}"


class WorkerProcess:
    """A worker seen from outside: a process with a mark and a temporary folder of its own, that speaks over its pipes.

    So that it does not outlive its owner, it must call `end_here` at the end of its input.
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
        """Run `command`; what it complains of goes to `log`, or where this process complains.

        Raises OSError if it does not start; the folder is gone then.
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
        discard(self.folder)
        held, self._lock = self._lock, -1
        if held >= 0:
            os.close(held)


def discard(folder: Path) -> None:
    """Remove a folder as far as that goes; an empty one even where no descriptor is left to look into it."""
    try:
        folder.rmdir()
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)


def lock(path: Path) -> int:
    """Lock a file or folder until the descriptor is closed or this process ends. Raises OSError if another holds it."""
    held = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(held)
        raise
    return held


def is_stale(path: Path) -> bool:
    """Whether a file or folder is this user's and its owner ended without removing it: nothing locks it."""
    try:
        about = path.lstat()
        if about.st_uid != os.geteuid() or time.time() - about.st_mtime < _SETTLED_S:
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
    """In the worker: end all that it started, remove its folder, end it; whatever its other threads are stuck in."""
    end(os.getpid(), os.environ[MARK], timeout_s=60.0)  # the folder goes after the last that writes
    discard(Path(os.environ["TMPDIR"]))
    os._exit(0)


def tree(pid: int, mark: str) -> set[int]:
    """`pid`, every process whose environment says MARK=mark, and all their descendants."""
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
    """Memory in MiB, pages that several share counted once (proportional set size)."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError):
            for line in (_PROC / str(pid) / "smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1])
    return total / 1024


def end(pid: int, mark: str, timeout_s: float = 5.0) -> None:
    """Kill the worker `pid` and everything it started, and wait until they are gone."""
    deadline = time.monotonic() + timeout_s
    while pids := tree(pid, mark) - {os.getpid()}:
        pids = {each for each in pids if _alive(each)}
        if not pids or time.monotonic() > deadline:
            return
        for each in pids:
            with contextlib.suppress(OSError):
                os.kill(each, signal.SIGKILL)
        time.sleep(0.005)


def _alive(pid: int) -> bool:
    """Not dead, and not a zombie that waits for its parent."""
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False
