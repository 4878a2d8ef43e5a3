"""The command line: parses arguments, calls one function, and turns errors into one line and an exit code.

    0    done
    1    a live task was not done, or an environment failed a check
    2    an error outside agentq: usage, input, a missing extra, a full disk, a lost server
    3    a bug in agentq, with its traceback
    130  interrupted; the same command continues, except for a live task

AGENTQ_TRACEBACK=1 shows the traceback of every error.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

DONE, NOT_DONE, REFUSED, FAULT, INTERRUPTED = 0, 1, 2, 3, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line. Returns the exit code."""
    from agentq.cli.foreign import foreign_package  # first, since the modules below may be another project's

    if foreign := foreign_package():
        print(f"agentq: {foreign}", file=sys.stderr)
    from agentq.cli.app import app
    from agentq.cli.faults import tell

    _set_defaults()
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        code = app(searching(words), exit_on_error=False, print_error=False)
        sys.stdout.flush()
        return REFUSED if words in ([], ["env"]) else int(code or 0)  # help returns no code
    except BaseException as error:
        return tell(error, words)


def searching(words: list[str]) -> list[str]:
    """The words, with `--search` alone replaced by `--search=tree`."""
    return [
        f"{word}=tree" if word == "--search" and following not in ("tree", "step") else word
        for word, following in zip(words, [*words[1:], ""], strict=False)
    ]


def _set_defaults() -> None:
    """Default to one math thread per process, since more are slower on small machines, and silence libraries.

    Where more are used, those that wait sleep: spinning on busy cores makes a step ten times as long.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
