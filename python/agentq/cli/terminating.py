"""SIGTERM ends a command as Ctrl-C does. Slurm sends it before it stops a job, `docker stop` before it kills.

Only the command line does this; the library installs no handler.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio


class Termination:
    """A context in which the first SIGTERM interrupts this process, and the second ends it at once.

    It changes nothing outside the main thread, where the signal has a handler or is ignored, and in a process of
    torchrun, which ends its processes itself.

    Attributes:
        came: whether SIGTERM came.
    """

    def __init__(self) -> None:
        self.came = False
        self._pid = os.getpid()

    def __enter__(self) -> Termination:
        in_main = threading.current_thread() is threading.main_thread()
        if in_main and "RANK" not in os.environ and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._stop)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if signal.getsignal(signal.SIGTERM) == self._stop:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if os.getpid() != self._pid:  # a forked process, which has inherited this handler
            os.kill(os.getpid(), signal.SIGTERM)
            return
        self.came = True
        interrupt = signal.getsignal(signal.SIGINT)
        if callable(interrupt):
            interrupt(signal.SIGINT, frame)
        elif not _cancelled():  # a shell's job in the background ignores Ctrl-C
            raise KeyboardInterrupt


def _cancelled() -> bool:
    """Cancel what `asyncio.run` runs in this thread, as asyncio does at Ctrl-C unless that is ignored."""
    if "asyncio" not in sys.modules:
        return False
    import asyncio

    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return False
    first = min(asyncio.all_tasks(loop), key=_number, default=None)
    if first is not None:
        loop.call_soon_threadsafe(first.cancel)
    return first is not None


def _number(task: asyncio.Task[Any]) -> int:
    """The number in the name that asyncio gives to a task: the smallest is that of `asyncio.run`."""
    number = task.get_name().removeprefix("Task-")
    return int(number) if number.isdecimal() else sys.maxsize
