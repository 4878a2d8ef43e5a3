"""Error messages of the command line: one line for outside errors, a traceback for bugs in agentq."""

from __future__ import annotations

import os
import select
import shlex
import sys
import traceback
from collections.abc import Sequence
from functools import reduce

from cyclopts import (
    App,
    CoercionError,
    CycloptsError,
    MissingArgumentError,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
)

from agentq.cli import FAULT, INTERRUPTED, REFUSED
from agentq.cli.app import app
from agentq.errors import AgentqError, did_you_mean, line_in

TRACEBACK = "AGENTQ_TRACEBACK"
OUTSIDE = (
    "SafetensorError",
    "OutOfMemoryError",
)  # of safetensors and torch, by name, since neither may be loaded


def tell(error: BaseException, words: Sequence[str]) -> int:
    """Print to stderr why `agentq WORDS` failed. Returns the exit code."""
    rich_left = isinstance(error, SystemExit) and isinstance(error.__context__, BrokenPipeError)
    if rich_left or (isinstance(error, BrokenPipeError) and _stdout_is_gone()):
        return REFUSED
    line, code = _line(error, words)
    if code == FAULT or os.environ.get(TRACEBACK, "0") not in ("", "0"):
        traceback.print_exception(error)
    print(f"agentq: {line}", file=sys.stderr)
    return code


def _line(error: BaseException, words: Sequence[str]) -> tuple[str, int]:
    if isinstance(error, KeyboardInterrupt):
        return f"interrupted; go on with: {shlex.join(['agentq', *words])}", INTERRUPTED
    if isinstance(error, AgentqError):
        return " ".join(str(error).splitlines()), REFUSED
    if isinstance(error, CycloptsError):
        return _usage(error), REFUSED
    own_recipe = next((word for word in words if word.endswith(".py")), None)
    if own_recipe is not None and (line := line_in(own_recipe, error)):
        return f"{own_recipe}:{line}: {_last_line(error)} ({TRACEBACK}=1 shows the traceback)", REFUSED
    if isinstance(error, OSError):
        return _of_the_system(error), REFUSED
    if isinstance(error, MemoryError) or type(error).__name__ in OUTSIDE:
        return f"the machine must have room for the work; got {_last_line(error)}", REFUSED
    return "this is a fault of agentq itself: please report it with the lines above", FAULT


def _usage(error: CycloptsError) -> str:
    """The message for a usage error."""
    chain = error.command_chain or ()
    within = reduce(App.__getitem__, chain, app)
    command, words = " ".join(("agentq", *chain)), error.unused_tokens or []
    help_ = f"{command} --help says what it takes"
    if isinstance(error, UnknownCommandError):
        known = [name for name in within if not name.startswith("-")]
        return f"no command '{' '.join((*chain, words[0]))}'{did_you_mean(words[0], known)}"
    token = getattr(error, "token", None)
    option = (token.keyword if token else getattr(error, "keyword", None)) or ""
    arguments = within.assemble_argument_collection()
    options = [name for argument in arguments for name in argument.names if name.startswith("--")]
    takes_settings = "--[KEYWORD]" in options
    if option and "." not in option and option not in options:
        return f"no option {option} of {command}{did_you_mean(option, set(options) - {'--[KEYWORD]'})}"
    if isinstance(error, UnknownOptionError):
        return f"{command} takes no settings; got '{option}': leave it out"
    if isinstance(error, MissingArgumentError):
        if option:
            return f"command line: {option} must be followed by a value; got nothing"
        return f"{error.argument.name if error.argument else 'an argument'} must be given; {help_}"
    if isinstance(error, UnusedCliTokensError) and takes_settings:
        return f"command line: settings must be written --section.key value; got '{words[0]}'"
    if isinstance(error, UnusedCliTokensError):
        return f"{command} takes no '{words[0]}'; {help_}"
    if isinstance(error, CoercionError) and error.argument and error.argument.name == "--[KEYWORD]":
        written = next((word for word in error.root_input_tokens or () if word.count(".") > 1), option)
        return f"command line: settings must be written --section.key value; got '{written}'"
    if isinstance(error, CoercionError) and token and error.target_type in (int, float):
        return f"{option} must be a number; got '{token.value}'"
    return " ".join(str(error).split())


def _of_the_system(error: OSError) -> str:
    reason = error.strerror or _last_line(error)
    if error.filename is not None:
        return f"{error.filename} must be readable, and writable where agentq writes; got {reason}"
    return f"files and servers must be within reach; got {reason} ({TRACEBACK}=1 shows where)"


def _last_line(error: BaseException) -> str:
    """`ZeroDivisionError: division by zero`."""
    return traceback.format_exception_only(error)[-1].strip().splitlines()[-1]


def _stdout_is_gone() -> bool:
    """Whether the reader of stdout has closed it. If so, stdout is redirected to /dev/null."""
    poll = select.poll()
    poll.register(1, select.POLLOUT)
    gone = any(event & select.POLLERR for _, event in poll.poll(0))
    if gone:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return gone
