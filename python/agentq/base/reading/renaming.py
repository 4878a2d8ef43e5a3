"""Demonstrations with other names: each is replaced throughout, so that it must be read and cannot be remembered."""

from __future__ import annotations

import re
from dataclasses import replace

from agentq.base.demonstrations import Demonstration
from agentq.base.reading.words import Words
from agentq.envs.booking import world as booking
from agentq.envs.lexicon import DATES, FIRST_NAMES, LAST_NAMES, MONTHS, TIMES
from agentq.envs.shop import world as shop
from agentq.types import EnvAction

WHEN = re.compile(rf"\b(?:\d{{1,2}}:\d\d|(?:{'|'.join(month for month, _ in MONTHS)}) \d{{1,2}})\b")
_HOURS = tuple(time.removesuffix(" PM") for time in TIMES)
_LISTS = (FIRST_NAMES, LAST_NAMES, booking.ADJECTIVES, booking.NOUNS, booking.AREAS, shop.BRANDS, shop.COLORS)
_SHOP = {word for kinds, lists in shop.CATEGORIES.values() for some in (kinds, *lists) for word in some}
NAMES = frozenset(word.lower() for word in {word for some in _LISTS for word in some} | _SHOP if word.isalpha())
_WORD = re.compile(r"[A-Za-z]+")
_SIZES = re.compile(r"(?m)^.*(?:[Ss]izes? (?:\[\d+\]:? )?|SELECT \[\d+\] )\d.*$")  # lines with a size that is a number
_NUMBER = re.compile(r"(?<![\[\d])\d+(?![\]\d]| dollars)")


def renamed(d: Demonstration, w: Words) -> Demonstration:
    """The same step where people, places, products, colours and sizes have other names, in all texts alike.

    Numbers that are sizes become other numbers, dates and times other ones of the site's.
    """
    made: dict[str, str] = {}
    when = dict(zip([*DATES, *_HOURS], w.shuffled([*DATES]) + w.shuffled([*_HOURS]), strict=True))

    def new(name: str) -> str:
        while name not in made:
            word = w.digits(1 + w.below(2)) if name.isdigit() else w.word().lower()
            if word not in made.values() and word not in NAMES:
                made[name] = word
        return made[name]

    def word(found: re.Match[str]) -> str:
        name = found[0].lower()
        if name not in NAMES:
            return found[0]
        return new(name).capitalize() if found[0][0].isupper() else new(name)

    sized = re.search(r"size \d", d.history.instruction) is not None

    def other(text: str) -> str:
        if sized:
            text = _SIZES.sub(lambda line: _NUMBER.sub(lambda number: new(number[0]), line[0]), text)
        return _WORD.sub(word, WHEN.sub(lambda at: when.get(at[0], at[0]), text))

    def action(a: EnvAction) -> EnvAction:
        return a if a.text is None else replace(a, text=other(f"SELECT [0] {a.text}").partition("] ")[2])

    h = d.history
    history = replace(
        h,
        instruction=other(h.instruction),
        observation=replace(h.observation, text=other(h.observation.text)),
        actions=tuple(map(other, h.actions)),
    )
    return Demonstration(history, other(d.text), action(d.action), other(d.thought), tuple(map(action, d.others)))
