"""What a command that failed says: one line for what its user or the machine can mend, a traceback for agentq's own."""

from __future__ import annotations

import os
import shlex
import sys
import traceback
from collections.abc import Sequence

from agentq.cli import FAULT, INTERRUPTED, REFUSED
from agentq.errors import AgentqError, line_in

TRACEBACK = "AGENTQ_TRACEBACK"
OUTSIDE = (
    "SafetensorError",
    "OutOfMemoryError",
)  # safetensors' (a file) and torch's (a GPU), by name: neither is loaded


def tell(error: BaseException, words: Sequence[str], *, own_file: str | None) -> int:
    """Print what `agentq WORDS` failed of to stderr; returns the exit code.

    Args:
        own_file: a recipe file of the user's, whose faults are told with their line.
    """
    if isinstance(error, BrokenPipeError) and _stdout_is_gone():
        return REFUSED
    line, code = _line(error, words, own_file)
    if code == FAULT or os.environ.get(TRACEBACK, "0") not in ("", "0"):
        traceback.print_exception(error)
    print(f"agentq: {line}", file=sys.stderr)
    return code


def _line(error: BaseException, words: Sequence[str], own_file: str | None) -> tuple[str, int]:
    if isinstance(error, KeyboardInterrupt):
        return f"interrupted; go on with: {shlex.join(['agentq', *words])}", INTERRUPTED
    if isinstance(error, AgentqError):
        return " ".join(str(error).splitlines()), REFUSED
    if own_file is not None and (line := line_in(own_file, error)):
        return f"{own_file}:{line}: {_last_line(error)} ({TRACEBACK}=1 shows the traceback)", REFUSED
    if isinstance(error, OSError):
        return _of_the_system(error), REFUSED
    if isinstance(error, MemoryError) or type(error).__name__ in OUTSIDE:
        return f"the machine must have room for the work; got {_last_line(error)}", REFUSED
    return "this is a fault of agentq itself: please report it with the lines above", FAULT


def _of_the_system(error: OSError) -> str:
    reason = error.strerror or _last_line(error)
    if error.filename is not None:
        return f"{error.filename} must be readable, and writable where agentq writes; got {reason}"
    return f"files and servers must be within reach; got {reason} ({TRACEBACK}=1 shows where)"


def _last_line(error: BaseException) -> str:
    """`ZeroDivisionError: division by zero`."""
    return traceback.format_exception_only(error)[-1].strip().splitlines()[-1]


def _stdout_is_gone() -> bool:
    """Whether the reader of stdout has closed it; then nothing more is written there."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return True
    return False
