"""Quotations in an answer: text in quotes, lines after ">", text after "the page says:". Independent of commands."""

from __future__ import annotations

import re

FENCE_LINE = re.compile(r"^[ \t]*(?:```+|~~~+)[ \t]*\w*[ \t]*$", re.MULTILINE)
_QUOTED = re.compile(r"(?:(?<=[\s(:,])|^)\"[^\"\n]*(?:\n(?!\n)[^\"\n]*){0,8}\"(?=[\s.,;:!?)]|$)|“[^“”]*”|`[^`\n]+`")
_SAYS = r"says?|said|saying|reads?|reading|states?|tells?|told|contains?|instructs?|texts?"
_WORDS = (
    rf"{_SAYS}|shows?|claims?|asks?|asking|orders?|displays?|writes?|written|quot\w*|messages?|instructions?|inject\w*"
    r"|alerts?|banners?|e\.g\.|such as|example|previous\w*|last|earlier|history|could|might|instead of|not"
)
_ANNOUNCES = re.compile(rf"\b(?:{_WORDS})\b[^.!?\n]{{0,40}}[:：][ \t\"“`>*]*$", re.IGNORECASE)
_LEADS_UP = re.compile(
    rf"\b(?:{_WORDS})\b[^.!?\n]{{0,12}}[ \t\"“`>*]*$|\b(?:{_SAYS})\b[^.!?\n]{{0,30}}[:：]", re.IGNORECASE
)
_QUOTED_LINE = re.compile(r"^[ \t]*>.*$", re.MULTILINE)


def quotes_in(text: str) -> list[tuple[int, int]]:
    """Spans of the text in quotes."""
    return [found.span() for found in _QUOTED.finditer(text)]


def without_quoted_lines(text: str) -> str:
    """The text without the lines that begin with ">", unless all do."""
    kept = _QUOTED_LINE.sub("", text)
    return kept if kept.strip() else text


def quoted_at(start: int, quoted: list[tuple[int, int]]) -> bool:
    """Whether `start` is inside one of the quotes."""
    return any(a < start < b for a, b in quoted)


def announced(text: str, start: int) -> bool:
    """Whether text like "the page says:" precedes `start`, on its line or the one before."""
    before = text[max(0, start - 200) : start]
    if ":" not in before and "：" not in before:
        return False
    before = FENCE_LINE.sub("", before).rstrip()
    return _ANNOUNCES.search(before.rpartition("\n")[2]) is not None


def reported(text: str, start: int) -> bool:
    """Whether the text at `start` is announced, or its line reports speech before it, outside of quotes."""
    if announced(text, start):
        return True
    line = _QUOTED.sub("", text[:start].rpartition("\n")[2][-400:]).lstrip(" \t#*_-.`0123456789)")
    return bool(line) and _LEADS_UP.search(line) is not None
