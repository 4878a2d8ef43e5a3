"""The token budget of an observation."""

from __future__ import annotations

import re
from itertools import islice

MAX_TOKENS = 4000
_TOKEN = re.compile(r"\w{1,6}|[^\w\s]")  # a word piece has about six letters, as with subword tokenizers


def tokens(text: str, most: int | None = None) -> int:
    """An estimate of the tokens of `text`, the same for every model. It is read until there are `most`."""
    return sum(1 for _ in islice(_TOKEN.finditer(text), most))


def fit(lines: list[str], max_tokens: int) -> tuple[list[str], int]:
    """The first lines that fit `max_tokens`, and how many were cut; if any, a last line says so.

    A first line that is too long by itself is shortened.
    """
    room = max_tokens
    for i, line in enumerate(lines):
        room -= tokens(line, room + 1)  # a line of megabytes is not read to its end
        if room < 0:
            kept = lines[:i] or [head(line, max_tokens)]
            return [*kept, f"cut {len(lines) - i} lines"], len(lines) - i
    return lines, 0


def head(line: str, max_tokens: int) -> str:
    """The first `max_tokens` tokens of a line."""
    ends = [match.end() for match in islice(_TOKEN.finditer(line), max_tokens)]
    return line[: ends[-1]]
