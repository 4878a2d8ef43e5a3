"""Results as JSON on stdout, apart from all else that is printed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from typing import Any, TextIO

_results: TextIO | None = None  # where JSON goes; None: stdout


@contextmanager
def json_alone() -> Iterator[None]:
    """Send to stderr whatever is printed but by `print_json`, such as by an environment or a recipe."""
    global _results
    before, _results = _results, sys.stdout
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _results = before


def print_json(result: Mapping[str, Any]) -> None:
    """Print a result on one line."""
    print(json.dumps(result), file=_results, flush=True)
