"""The token budget of an observation."""

from __future__ import annotations

import re
from itertools import islice

MAX_TOKENS = 4000
LITTLE = 200  # tokens
_TOKEN = re.compile(r"\w{1,6}|[^\w\s]")  # a word piece has about six letters, as with subword tokenizers


def tokens(text: str, most: int | None = None) -> int:
    """An estimate of the tokens of `text`, the same for every model. It is read until there are `most`."""
    return sum(1 for _ in islice(_TOKEN.finditer(text), most))


def fit(lines: list[str], max_tokens: int) -> tuple[list[str], int]:
    """The first lines that fit `max_tokens`, and how many were cut or shortened; if any, a last line says so."""
    room, kept = max_tokens, list[str]()
    for i, line in enumerate(lines, start=1):
        shown, used = shortened(line, room, last=i == len(lines))
        room -= used
        if room < 0:
            break
        kept.append(shown)
    cut = len(lines) - sum(map(str.__eq__, kept, lines))
    return ([*(kept or [head(lines[0], max_tokens)]), f"cut {cut} lines"], cut) if cut else (lines, 0)


def shortened(line: str, room: int, *, last: bool) -> tuple[str, int]:
    """A line and its tokens. One that does not fit gets half of the room, so that it hides no others.

    The last one gets all. With less room than `LITTLE` the line stays as it is, and its tokens are more than the room.
    """
    used = tokens(line, room + 1)  # a line of megabytes is not read to its end
    if used <= room or room < LITTLE:
        return line, used
    most = room - 2 if last else room // 2
    return f"{head(line, most)}…", most + 1


def head(line: str, max_tokens: int) -> str:
    """The first `max_tokens` tokens of a line."""
    ends = [match.end() for match in islice(_TOKEN.finditer(line), max_tokens)]
    return line[: ends[-1]]
