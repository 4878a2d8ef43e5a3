"""The command line: parses arguments, calls one function, and turns errors into one line and an exit code.

    0    done
    1    a live task was not done, or a check failed (env check, doctor, check, replay)
    2    an error outside agentq: usage, input, a missing extra, a full disk, a lost server
    3    a bug in agentq, with its traceback
    130  interrupted by Ctrl-C; the same command continues, except for a live task
    143  terminated by SIGTERM; the same, and a second SIGTERM ends the process at once

AGENTQ_TRACEBACK=1 shows the traceback of every error.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path

DONE, NOT_DONE, REFUSED, FAULT, INTERRUPTED, TERMINATED = 0, 1, 2, 3, 130, 143
FILES = 4096  # a search of many sessions on servers and browsers opens more than the usual 1024
DEFAULTS = {  # silent libraries; the number of threads follows from model.threads
    "OMP_WAIT_POLICY": "passive",  # spinning on busy cores makes a step of several threads ten times as long
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_VERBOSITY": "error",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line. Returns the exit code."""
    try:
        return _main(argv)
    except KeyboardInterrupt:  # while modules were loaded, or while an error was told
        print("agentq: interrupted", file=sys.stderr)
        return INTERRUPTED


def _main(argv: Sequence[str] | None) -> int:
    if foreign := foreign_package():  # first, since the modules below may be another project's
        print(f"agentq: {foreign}", file=sys.stderr)
    from agentq.cli.app import run
    from agentq.cli.faults import tell
    from agentq.cli.terminating import Termination

    os.environ.update(DEFAULTS | os.environ)
    open_streams()
    allow_files()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names and pages may have what a terminal cannot show
    words = [at_home(word) for word in (sys.argv[1:] if argv is None else argv)]
    termination = Termination()
    try:
        with termination:
            code = run(words)
            sys.stdout.flush()
        return TERMINATED if termination.came and code == INTERRUPTED else code
    except BaseException as error:
        return tell(error, words, terminated=termination.came)


def open_streams() -> None:
    """Let streams that the caller closed, as by `>&-`, read and write nothing. Files would take their numbers."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  it stays open


def at_home(word: str) -> str:
    """`--out=~/runs` with the home directory. A shell puts it in only where a word begins with `~`."""
    option, equals, value = word.partition("=")
    return f"{option}{equals}{os.path.expanduser(value)}" if option.startswith("--") else word


def allow_files() -> None:
    """Raise the soft limit of open files to `FILES`, or as far as the hard limit allows."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def foreign_package() -> str | None:
    """A message if a distribution `agentq` is installed, which overwrites files of `agentq-search`; otherwise None."""
    for folder in map(Path, sys.path):
        for found in folder.glob("agentq-*.dist-info"):  # importlib.metadata takes 30 ms to import
            return (
                "agentq must come from the package agentq-search alone; got another project's, agentq "
                f"{found.stem.removeprefix('agentq-')}, too: "
                "pip uninstall agentq, then pip install --force-reinstall agentq-search"
            )
    return None
