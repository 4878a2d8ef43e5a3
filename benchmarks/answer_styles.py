"""Answers as twelve kinds of chat model write them, and the command that a person reads in each. Uses no parser.

An answer begins with `@@@ STYLE: COMMAND [ID] [TEXT]`, or with `unreadable` in place of the command. `(cut)` after the
style marks an answer that ended at its token limit. `first` was written alongside the parser, `second` when it was
done, `third` after it was mended for `second`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "answers"
SETS = ("first", "second", "third")
_HEAD = re.compile(r"^@@@ (\w+)( \(cut\))?: (.*)\n", re.MULTILINE)
_COMMAND = re.compile(r"(CLICK|TYPE|SELECT|SUBMIT|CLEAR|HOVER|DRAG) (\d+)(?: (.+))?|([A-Z_]+)(?: (.+))?")


@dataclass(frozen=True, slots=True)
class StyledAnswer:
    """One answer. `expected` is the command, the element's id and the text, or None if a person reads no command."""

    style: str
    set: str
    text: str
    cut: bool
    expected: tuple[str, int | None, str | None] | None


def answers(name: str) -> list[StyledAnswer]:
    """The answers of one set."""
    whole = (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    heads = list(_HEAD.finditer(whole))
    ends = [*(head.start() for head in heads[1:]), len(whole)]
    return [
        StyledAnswer(head[1], name, whole[head.end() : end].removesuffix("\n"), bool(head[2]), _expected(head[3]))
        for head, end in zip(heads, ends, strict=True)
    ]


def _expected(said: str) -> tuple[str, int | None, str | None] | None:
    if said == "unreadable":
        return None
    found = _COMMAND.fullmatch(said)
    assert found is not None, said
    return (found[1], int(found[2]), found[3]) if found[1] else (found[4], None, found[5])
