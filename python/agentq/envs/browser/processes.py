"""The processes of a worker: how it starts, who they are (read from /proc), what memory they hold, and their end.

Playwright's driver starts the browser in a process group of its own, so a group is not enough to find them all: a
worker's environment holds a mark, and descendants inherit it. Where there is no /proc only the worker itself is known;
the driver and the browser then end themselves when their pipes close. Runs in any Python 3.9, without agentq.
"""

from __future__ import annotations

import contextlib
import os
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
_PROC = Path("/proc")


class Worker:
    """A worker seen from outside: a process with a mark and a temporary folder of its own, that speaks over its pipes.

    So that it does not outlive its owner, it must call `end_here` at the end of its input.
    """

    process: subprocess.Popen[bytes]

    def __init__(self) -> None:
        self.mark = uuid.uuid4().hex
        self.folder = Path(tempfile.mkdtemp(prefix="agentq-worker-"))

    def start(self, command: list[str], environ: dict[str, str], log: IO[bytes] | None = None) -> None:
        """Run `command`; what it complains of goes to `log`, or where this process complains. Raises OSError."""
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env={**environ, "TMPDIR": str(self.folder), MARK: self.mark},
            start_new_session=True,
        )

    def kill(self) -> None:
        """End all its processes, remove its folder. Idempotent."""
        end(self.process.pid, self.mark)
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def end_here() -> NoReturn:
    """In the worker: end all that it started, remove its folder, end it; whatever its other threads are stuck in."""
    end(os.getpid(), os.environ[MARK], timeout_s=60.0)  # the folder goes after the last that writes
    shutil.rmtree(os.environ["TMPDIR"], ignore_errors=True)
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
