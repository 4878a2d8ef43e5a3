"""Line breaks of a text to be typed, which a command writes as `\\n` on its one line. Pure."""

from __future__ import annotations

import re

_BREAK = re.compile(r"\\\\n|(?:\\r)?\\n")
_WRITTEN = "\\n"


def has_breaks(text: str) -> bool:
    """Whether `text` has a line break, or `\\n` for one."""
    return "\n" in text or _WRITTEN in text


def with_breaks(text: str) -> str:
    """`text` for a field of several lines: a line break for each `\\n`, and `\\n` for each `\\\\n`."""
    return _BREAK.sub(lambda found: _WRITTEN if found[0].startswith("\\\\") else "\n", text)


def without_breaks(text: str) -> str:
    """`text` for a field of one line, single-spaced. A `\\n` stays as it is written."""
    return " ".join(text.split())


def written(text: str) -> str:
    """`text` on one line: `\\n` for each line break."""
    return text.replace("\n", _WRITTEN)
