"""Reading the answers of critics (a letter, or all in order) and judges (a rubric). The questions are in `prompts`.

As with actions, an answer is read as a person would read it, or not at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from agentq.agent.objects import load, lowered
from agentq.agent.prompts import LETTERS
from agentq.agent.quoting import FENCE_LINE
from agentq.agent.thinking import spoken
from agentq.types import EnvAction

_MARKS = re.compile(r"[*_`#]+(?=[A-Za-z(\s:]|$)|(?<=[\w).:])[*_`]+")
_BEST = re.compile(
    r"^\W*(?:BEST(?: ACTION)?|(?:final )?answer|choice|(?:the )?best (?:single )?(?:action|proposal|choice)(?: now)?)"
    r"[ \t]*(?:is[ \t]*:?|[:=]|-+>)[ \t]*(?P<said>.*)$",
    re.MULTILINE | re.IGNORECASE,
)
_RANKED = re.compile(
    r"^\W*(?:(?:my |the |final )*(?:ranking|order)|(?:final )?answer)[ \t*_]*(?:is[ \t]*:?|[:=])(?P<said>.*)",
    re.MULTILINE | re.IGNORECASE | re.DOTALL,
)
_SEPARATORS = (r"->|[>→]", r"[,;]", r"\s+")
_NUMBER = re.compile(r"^\W*\d+[.):][ \t]+")
_ALONE = re.compile(r"\W*(?:option|action|proposal|letter)?[ \t]*\(?([A-Za-z])\)?\W*", re.IGNORECASE)
_LED = re.compile(r"\(?([A-Z])\)?(?:[ \t]*(?:[.,:;)\n-]|$)|[ \t]+(?:because|since|as)\b|[ \t]+\()")
_LAST = re.compile(r".*\(([A-Z])\)[\W_]*$")
_SAID = re.compile(
    r"\W*(?P<yes>YES|TRUE|MET|PASS|SATISFIED)\b|\W*(?:NO|NOT|FALSE|UNMET|FAIL|PARTLY|UNCLEAR)\b", re.IGNORECASE
)
_FINDING = re.compile(
    r"^(?P<what>.*\w.*?)(?:[^\w\n]+(?P<loud>YES|NO)\b|[^\w\n✅❌✓✗]*(?P<sign>[✅✓❌✗])"
    r"|[ \t]*(?:[:=|→?]|[-–—]+>?|\*\*|\()[^\w\n]*"
    r"(?P<quiet>(?i:yes|no|not|partly|partially|unclear|unknown|maybe|n/a))\b)"
    r"(?P<rest>(?!')[^\n]*)$",
    re.MULTILINE,
)
_NOTES = ("reason", "reasoning", "explanation", "comment", "comments", "notes", "note", "summary", "evidence")
_HEDGE = re.compile(
    r"\b(?:but|however|except|though|unless|not|no|unclear|unsure|maybe|probably|partly|assum\w+)\b|\?", re.I
)
_KEYS = ("criterion", "requirement", "what", "item", "name", "description", "thing", "check", "condition", "text")


def parse_critic_answer(text: str, listed: Sequence[EnvAction | None]) -> int | None:
    """Index of the picked proposal (`BEST: CLICK [3] (B)`, `BEST: B`, `**Answer:** b`, JSON), or None.

    None if the answer names none of `listed`, or two.
    """
    said, _ = spoken(text)
    value = load(FENCE_LINE.sub("", said).strip())
    if isinstance(value, dict):
        fields = lowered(value)
        said = next((f"BEST: {fields[key]}" for key in ("best", "answer", "choice", "letter") if key in fields), "")
    said = FENCE_LINE.sub("", said)
    answers = [found["said"] for found in _BEST.finditer(said)] or [said.strip()]
    alone = not _BEST.search(said)
    picked = {_letter(answer, listed, alone=alone) for answer in answers}
    return picked.pop() if len(picked) == 1 else None


def parse_ranking(text: str, k: int) -> list[int] | None:
    """Indices of the first `k` letters, best first (`RANKING: B > A > C`, a numbered list, JSON), or None.

    None unless each letter is named exactly once.
    """
    said = FENCE_LINE.sub("", spoken(text)[0]).strip()
    value = load(said)
    if isinstance(value, dict):
        fields = lowered(value)
        value = next((fields[key] for key in ("ranking", "order", "answer") if key in fields), None)
        said = str(value)
    if isinstance(value, list):
        return _ranked([str(each) for each in value], k)
    found = _RANKED.search(said)
    lines = [line for line in (found["said"] if found else said).splitlines() if line.strip(" *_")]
    if not lines:
        return None
    read = (_ranked(items, k) for items in [*(re.split(by, lines[0].strip()) for by in _SEPARATORS), lines[:k]])
    return next((ranking for ranking in read if ranking), None)


def _ranked(items: Sequence[str], k: int) -> list[int] | None:
    """The index that each of `k` items names, or None unless they are all different."""
    found = [_letter(_NUMBER.sub("", item), [None] * k, alone=False) for item in items]
    ranking = [index for index in found if index is not None]
    return ranking if len(found) == k and len(set(ranking)) == k else None


def _letter(said: str, listed: Sequence[EnvAction | None], *, alone: bool) -> int | None:
    said = _MARKS.sub("", said).strip()
    for index, env_action in enumerate(listed):
        if said.startswith(f"{env_action or 'unreadable'} ({LETTERS[index]})"):
            return index
    found = _ALONE.fullmatch(said) or (None if alone else _LED.match(said) or _LAST.fullmatch(said))
    if found:
        index = LETTERS.index(found[1].upper())
        return index if index < len(listed) else None
    same = [index for index, env_action in enumerate(listed) if env_action is not None and said == str(env_action)]
    return same[0] if len(same) == 1 and not alone else None


def parse_judgement(text: str) -> list[tuple[str, bool]]:
    """The judge's rubric: each thing that was asked for, and whether it holds; empty if it cannot be read.

    A doubtful YES ("YES, but the date is wrong") counts as NO.
    """
    said = FENCE_LINE.sub("", spoken(text)[0]).strip()
    if said[:1] in ("{", "[") and (value := load(said)) is not None:
        return list(_found(value))
    return [
        (found["what"].strip(" -*_:|#\t"), _holds(found["loud"] or found["quiet"] or found["sign"], found["rest"]))
        for found in _FINDING.finditer(said)
    ]


def _holds(said: str, rest: str) -> bool:
    return said.upper() in ("YES", "✅", "✓") and not _HEDGE.search(rest)


def _found(value: Any) -> Iterator[tuple[str, bool]]:
    """The findings in a JSON value: an object keyed by what was asked for, or a list of objects."""
    if isinstance(value, list):
        for each in value:
            yield from _found(each)
    elif isinstance(value, dict):
        fields = lowered(value)
        what = next((str(fields[key]) for key in _KEYS if isinstance(fields.get(key), str)), None)
        if what is not None:
            yield what, {_verdict(each) for key, each in fields.items() if key not in (*_KEYS, *_NOTES)} == {True}
            return
        for key, each in value.items():
            if isinstance(each, list | dict):
                yield from _found(each)
            elif str(key).lower() not in _NOTES:
                yield str(key), _verdict(each) is True


def _verdict(said: Any) -> bool | None:
    """The yes or no of a JSON value; None for anything else."""
    if isinstance(said, bool):
        return said
    found = _SAID.match(said) if isinstance(said, str) else None
    return None if found is None else bool(found["yes"]) and not _HEDGE.search(said)
