"""What differs between systems: the lock of a file, flags of `os.open`, forks, how a process is ended at once."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable

NO_LINK = getattr(os, "O_NOFOLLOW", 0)  # Windows makes links for administrators alone
CLOSED_IN_CHILDREN = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOINHERIT", 0)
PLAIN = getattr(os, "O_BINARY", 0)  # lines end as they are written
FLAGS = NO_LINK | CLOSED_IN_CHILDREN | PLAIN
AT_ONCE = getattr(signal, "SIGKILL", signal.SIGTERM)  # Windows ends a process at once by whatever signal

if sys.platform == "win32":
    import msvcrt

    def lock(handle: int) -> bool:
        """Lock an open file for this process; False if another one holds it."""
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EDEADLOCK):
                raise
            return False
        return True

else:
    import fcntl

    def lock(handle: int) -> bool:
        """Lock an open file for this process; False if another one holds it."""
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise
            return False
        return True


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process at once, and its group where it leads one."""
    if sys.platform == "win32":
        process.kill()
    else:
        os.killpg(process.pid, signal.SIGKILL)


def at_fork(before: Callable[[], object], parent: Callable[[], object], child: Callable[[], object]) -> None:
    """Have these called before each fork and after it in both processes, where processes fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=before, after_in_parent=parent, after_in_child=child)
