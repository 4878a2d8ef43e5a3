"""Reading the answers of critics (a letter, or all in order) and judges (a rubric). The questions are in `prompts`.

As with actions, an answer is read as a person would read it, or not at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from agentq.agent.objects import first, load, lowered
from agentq.agent.prompts import LETTERS
from agentq.agent.quoting import FENCE_LINE
from agentq.agent.thinking import spoken
from agentq.types import EnvAction

_MARKS = re.compile(r"[*_`#]+(?=[A-Za-z(\s:]|$)|(?<=[\w).:])[*_`]+")
_BEST = re.compile(
    r"^(?:\W*(?:BEST(?: ACTION)?|(?:final )?answer|choice"
    r"|(?:the )?best (?:single )?(?:action|proposal|choice)(?: now)?)"
    r"[ \t*_`]*(?:is\b[ \t]*[:：]?|[:：=]|-+>)[ \t*_`]*(?P<gap>\s*))+(?P<said>.*)$",
    re.MULTILINE | re.IGNORECASE,
)
_RANKING = re.compile(
    r"^(?!\W*\d)(?:.*?\b(?:rank\w*|order)\b[^:=>→\n]*?|\W*(?:final )?answer[ \t*_]*)"
    r"(?:[:=]|\bis\b[ \t]*:?|[ \t][-–—][ \t]|$)",
    re.MULTILINE | re.IGNORECASE,
)
_SEPARATORS = (r"->|[>→]", r"[,;]", r"\s+")
_NUMBER = re.compile(r"^\W*(?:\d+[.):]|then\b|and\b)[ \t]+")
_ALONE = re.compile(r"\W*(?:option|action|proposal|letter)?[ \t]*\(?([A-Za-z])\)?\W*", re.IGNORECASE)
_LED = re.compile(
    r"(?:(?i:option|action|proposal|letter)[ \t]+)?\(?([A-Z])\)?"
    r"(?:[ \t]*(?:[.,:：;)\n]|[-–—](?![A-Z]\b)|$)|[ \t]+(?:because|since|as)\b|[ \t]+\()"
)
_LAST = re.compile(r".*\(([A-Z])\)[\W_]*$")
_SAID = re.compile(
    r"\W*(?P<yes>YES|TRUE|MET|PASS|SATISFIED)\b|\W*(?:NO|NOT|FALSE|UNMET|FAIL|PARTLY|UNCLEAR)\b", re.IGNORECASE
)
_JSON = re.compile(r"^[ \t]*[{\[].*[}\]][ \t]*$", re.MULTILINE | re.DOTALL)
_HOLDS = r"yes|(?:true|met|pass|passed|satisfied|correct)(?=\s*(?:[^\w\s]|$))"
_FAILS = (
    r"no|not|n/a|false|fail(?:s|ed|ure)?|incorrect|wrong|missing|cannot|partly|partially|maybe"
    r"|un(?:clear|known|met|satisfied|verified|confirmed)"
)
_GOOD, _BAD = "✅✓✔☑", "❌✗✘✖"
_FINDING = re.compile(
    rf"(?P<what>.*\w.*?)(?:\W+(?P<loud>YES|NO)\b|[^\w{_GOOD}{_BAD}]*(?P<sign>[{_GOOD}{_BAD}])"
    r"|[ \t]*(?:[:=|→?]|[-–—]+>?|\*\*|\()\W*"
    rf"(?P<quiet>(?i:{_HOLDS}|{_FAILS}))\b)"
    r"(?P<rest>(?!').*)"
)
_VERDICT = re.compile(
    rf"[^\w{_GOOD}{_BAD}]*(?P<name>(?i:verdict|result|conclusion|judge?ment|answer|status|met|satisfied)\W+)??"
    rf"(?P<said>(?:YES|NO|NOT)\b|(?i:yes|no)(?=,|\W*$)|[{_GOOD}{_BAD}])(?P<rest>.*)"
)
_HEAD = re.compile(r"^.*\|.*\n(?=.*\|)[ \t|:-]*-[ \t|:-]*$", re.MULTILINE)  # of a table
_LINE = re.compile(r"(?P<indent>\s*)(?P<item>(?:[-*•+]|[*_#]*[ \t]*\d{1,2}[.)])[ \t]+|\|)?(?P<said>.*)")
_EDGES = " -*_:|#\t"
_TITLE = re.compile(r"\s*#|\s*\*\*[^*]*\*\*\s*$|.*[:：]\W*$")
Row = tuple[int, str, bool | None, int]
_NOTES = ("reason", "reasoning", "explanation", "comment", "comments", "notes", "note", "summary", "evidence")
_HEDGE = re.compile(
    r"\b(?:but|however|except|though|unless|not|no|unclear|unsure|maybe|probably|partly|assum\w+|false|fail\w*)\b|\?",
    re.I,
)
_KEYS = ("criterion", "requirement", "what", "item", "name", "description", "thing", "check", "condition", "text")


def parse_critic_answer(text: str, listed: Sequence[EnvAction | None]) -> int | None:
    """Index of the picked proposal (`BEST: CLICK [3] (B)`, `BEST: B`, `**Answer:** b`, JSON), or None.

    None if the answer names none of `listed`, or two.
    """
    said, _ = spoken(text)
    said = FENCE_LINE.sub("", said).strip()
    value, around = _json(said)
    fields = lowered(value) if isinstance(value, dict) else {}
    answer = first(fields, ("best", "best_action", "answer", "choice", "letter"))
    if answer is not None:
        said = f"{around}\nBEST: {answer}"
    picked = set[int | None]()
    for found in _BEST.finditer(said):
        if "\n" not in found["gap"]:
            picked.add(_letter(found["said"], listed, alone=False))
        else:  # on a line below
            lines = said[found.start("said") :].splitlines()
            picked |= {_letter(line, listed, alone=True) for line in lines} - {None} or {None}
    picked = picked or {_letter(said, listed, alone=True)}
    return picked.pop() if len(picked) == 1 else None


def parse_ranking(text: str, k: int) -> list[int] | None:
    """Indices of the first `k` letters, best first (`RANKING: B > A > C`, a numbered list, JSON), or None.

    None unless each letter is named exactly once, and by one ranking.
    """
    value, said = _json(FENCE_LINE.sub("", spoken(text)[0]).strip())
    if isinstance(value, dict):
        fields = lowered(value)
        value = next((fields[key] for key in ("ranking", "order", "answer") if key in fields), None)
        said = f"RANKING: {value}"
    if isinstance(value, list):
        return _ranked([str(each) for each in value], k)
    parts = _RANKING.split(said)[1:] or re.split(r"\n\s*\n", said)
    found = {tuple(ranking) for part in parts if (ranking := _ranking(part.strip(), k))}
    return list(found.pop()) if len(found) == 1 else None


def _ranking(said: str, k: int) -> list[int] | None:
    """The ranking on the first line of a text, or on its first `k` lines."""
    lines = [line for line in said.splitlines() if line.strip(" *_")] or [""]
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

    A doubtful YES ("YES, but the date is wrong") counts as NO; so does an item of a list that has no verdict, if
    others of its list have one.
    """
    value, said = _json(FENCE_LINE.sub("", spoken(text)[0]).strip())
    rows = [(what, holds) for _, what, holds, _ in _rows(said)]
    found = [*_found(value), *((what, holds) for what, holds in rows if holds is not None)]
    return [(what, bool(holds)) for what, holds in rows] if value is None and found else found


def _json(said: str) -> tuple[Any, str]:
    """The JSON value on lines of its own in an answer, or None; and the text around it."""
    found = _JSON.search(said)
    value = load(found[0]) if found else None
    return (None, said) if found is None or value is None else (value, said[: found.start()] + said[found.end() :])


def _rows(said: str) -> list[Row]:
    """The findings and the items of lists in a text: depth, what, whether it holds, and the titles above it.

    A verdict on a line of its own is that of the item above it; None: an item has none. Items that only head or explain
    others are left out, and those of a list without any verdict, which repeats what was asked for.
    """
    rows: list[Row] = []
    titles = 0
    kind, joined = "", False  # of the row before: its mark, and whether no empty line follows it
    for line in _HEAD.sub("", said).splitlines():
        parts = _LINE.fullmatch(line)
        if parts is None or not parts["said"].strip():
            joined = False
            continue
        item, body, depth = (parts["item"] or "").strip(), parts["said"], len(parts["indent"].expandtabs(4))
        heads = bool(rows) and rows[-1][2] is None
        close = heads and joined and ":" not in rows[-1][1] and item[-1:] != kind
        found, verdict = _FINDING.fullmatch(body), _VERDICT.fullmatch(body)
        at = len(rows)  # the items from here on are explanations of the one before, of which the verdict is
        while verdict and at and rows[at - 1][2] is None and rows[at - 1][0] >= depth:
            at -= 1
        under = at > 0 and rows[at - 1][2] is None
        told = verdict is not None and _holds(verdict["said"], verdict["rest"])
        if verdict and under and (not item or verdict["name"] or at == len(rows)):
            rows[at - 1 :] = [(*rows[at - 1][:2], told, rows[at - 1][3])]
        elif verdict and heads and not item and (close or not verdict["name"]):
            rows[-1] = (*rows[-1][:2], told, rows[-1][3])
        elif found:
            holds = _holds(found["loud"] or found["quiet"] or found["sign"], found["rest"])
            rows.append((depth + close, found["what"].strip(_EDGES), holds, titles))
        elif verdict and (item or not _holds(verdict["said"], "")):
            rows.append((depth, verdict["rest"].strip(_EDGES) or body.strip(), told, titles))
        elif item and re.search(r"\w", body) and not _explains(rows, depth):
            rows.append((depth, body.strip(_EDGES), None, titles))
        else:
            titles += not item and _TITLE.match(line) is not None
            continue
        kind, joined = item[-1:], True
    below, judged = [row[0] for row in rows[1:]] + [0], {row[3] for row in rows if row[2] is not None}
    kept = (row for row, after in zip(rows, below, strict=False) if row[2] is not None or after <= row[0])
    return [row for row in kept if row[3] in judged]


def _explains(rows: Sequence[Row], depth: int) -> bool:
    """Whether an item of this depth stands below one that has a verdict."""
    above = next((row for row in reversed(rows) if row[0] < depth), None)
    return above is not None and above[2] is not None


def _holds(said: str, rest: str) -> bool:
    return (said in _GOOD or re.fullmatch(_HOLDS, said, re.IGNORECASE) is not None) and not _HEDGE.search(rest)


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
