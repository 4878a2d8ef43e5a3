"""Error messages of the command line: one line for outside errors, a traceback for bugs in agentq.

With `--json` the error is also an object on stdout, where the result would be.
"""

from __future__ import annotations

import errno
import os
import select
import shlex
import sys
import traceback
from collections.abc import Sequence

from agentq.cli import FAULT, INTERRUPTED, REFUSED, TERMINATED
from agentq.errors import AgentqError, in_one_line, place_in_run_file, says_no_memory
from agentq.output import print_json

TRACEBACK = "AGENTQ_TRACEBACK"
KEEP_NOTHING = (["run"], ["doctor"], ["view"], ["env"])  # commands that begin anew when they are repeated
OUTSIDE = "SafetensorError"  # of safetensors; by name, as it may not be loaded


def tell(error: BaseException, words: Sequence[str], *, terminated: bool = False) -> int:
    """Print to stderr why `agentq WORDS` failed. Returns the exit code. `terminated`: SIGTERM made the interrupt."""
    rich_left = isinstance(error, SystemExit) and isinstance(error.__context__, BrokenPipeError)
    if rich_left or (isinstance(error, BrokenPipeError) and _stdout_is_gone()):
        return REFUSED
    if terminated and type(error).__name__ == "CancelledError":  # of asyncio, where Ctrl-C is ignored
        error = KeyboardInterrupt()
    line, code = _line(error, words)
    if code == INTERRUPTED and terminated:
        line, code = line.replace("interrupted", "terminated", 1), TERMINATED
    if code == FAULT or os.environ.get(TRACEBACK, "0") not in ("", "0"):
        traceback.print_exception(error)
    print(f"agentq: {line}", file=sys.stderr)
    if "--json" in words:
        found = {"kind": _kind(error, code), "message": line, "exit_code": code}
        print_json({"error": found})
    return code


def _kind(error: BaseException, code: int) -> str:
    """A class of `errors.py`; `Outside`: another error outside agentq; `Fault`: a bug; `Interrupted`."""
    if code != REFUSED:
        return "Interrupted" if code in (INTERRUPTED, TERMINATED) else "Fault"
    return next((c.__name__ for c in type(error).__mro__ if c.__module__ == AgentqError.__module__), "Outside")


def _line(error: BaseException, words: Sequence[str]) -> tuple[str, int]:
    if isinstance(error, KeyboardInterrupt):
        more = "" if words[:1] in KEEP_NOTHING else f"; go on with: {shlex.join(['agentq', *words])}"
        return f"interrupted{more}", INTERRUPTED
    if isinstance(error, AgentqError):
        return " ".join(str(error).splitlines()), REFUSED
    if (place := place_in_run_file(error)) is not None:
        return f"{place}: {in_one_line(error)} ({TRACEBACK}=1 shows the traceback)", REFUSED
    if isinstance(error, OSError):
        return _of_the_system(error), REFUSED
    if says_no_memory(error) or type(error).__name__ == OUTSIDE:
        return f"the machine must have room for the work; got {in_one_line(error)}", REFUSED
    return "this is a fault of agentq itself: please report it with the lines above", FAULT


def _of_the_system(error: OSError) -> str:
    reason = error.strerror or in_one_line(error)
    if error.filename is not None:
        return f"{error.filename} must be readable, and writable where agentq writes; got {reason}"
    if error.errno == errno.ENOSPC:
        return f"files must be writable; got {reason.lower()}: make room and run it again"
    return f"files and servers must be within reach; got {reason} ({TRACEBACK}=1 shows where)"


def _stdout_is_gone() -> bool:
    """Whether the reader of stdout has closed it. If so, stdout is redirected to /dev/null."""
    if sys.platform == "win32":
        return True  # a broken pipe is that of stdout
    poll = select.poll()
    poll.register(1, select.POLLOUT)
    gone = any(event & select.POLLERR for _, event in poll.poll(0))
    if gone:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return gone
