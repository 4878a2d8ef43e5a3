"""The processes of a worker, read from /proc: who they are, what memory they hold, and their end.

Playwright's driver starts the browser in a process group of its own, so a group is not enough to find them all: a
worker marks its environment, and descendants inherit the mark. Where there is no /proc only the worker itself is known;
the driver and the browser then end themselves when their pipes close.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

MARK = "AGENTQ_BROWSER"
_PROC = Path("/proc")


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
