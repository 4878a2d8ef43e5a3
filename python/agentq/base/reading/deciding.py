"""Exercises in deciding: look-ups in tables, verdicts one by one, extremes, counting, sorting."""

from __future__ import annotations

from collections.abc import Callable

from agentq.base.exercises import TrainingExample
from agentq.base.reading.copying import act, ask, put
from agentq.base.reading.words import Words, ordinal
from agentq.envs.browser.experts.thoughts import best
from agentq.envs.lexicon import DATES
from agentq.envs.shop.expert import scan
from agentq.types import Command

_UNITS = (("", " dollars"), ("$", ""), ("", " points"), ("", " km"), ("", ""), ("Book for $", ""))


def table(w: Words) -> TrainingExample:
    """Rows of a label and its value; a field wants the value of one label."""
    labels = list(dict.fromkeys(w.word() if w.chance(0.5) else w.title() for _ in range(3 + w.below(6))))
    row = {label: w.value() for label in labels}
    form = w.below(4)
    lines = []
    for label, value in row.items():
        lines += (
            [f"text {label}", f"text {value}"],
            [f"text {label}: {value}"],
            [f"text {label} , {value}"],
            [f"cell {label}", f"cell {value}"],
        )[form]
    field = 1 + w.below(3)
    lines += [f"link {w.title()} [{i}]" for i in range(1, field)] + [
        f"textbox [{field}]",
        f"button Submit [{field + 1}]",
    ]
    turns = []
    for label in w.shuffled(labels)[: 2 + w.below(4)]:
        value = row[label]
        said = w.one((f"Enter the value of {label} into the text field .", f"{label} ?", f"What is the {label} ?"))
        turns.append((said, put(label, field, value) if "Enter" in said else f"{label} , {value}"))
    if w.chance(0.4):
        back = w.shuffled(labels)[:2]
        turns += [
            (f"which has {row[label]} ?", f"{row[label]} , {label}")
            for label in back
            if list(row.values()).count(row[label]) == 1
        ]
    return ask(turns, "\n".join(lines))


def verdicts(w: Words) -> TrainingExample:
    """Numbers, prices or dates beside a limit: "61 no , 54 yes"."""
    turns = []
    for _ in range(3 + w.below(5)):
        show, draw = _scale(w)
        limit = draw()
        near = [draw() for _ in range(3 + w.below(5))]
        said, fits = _condition(w, show(limit), limit)
        listed = " , ".join(show(n) for n in near)
        turns.append((f"{said} : {listed}", " , ".join(f"{show(n)} {'yes' if fits(n) else 'no'}" for n in near)))
    return ask(turns)


def _scale(w: Words) -> tuple[Callable[[int], str], Callable[[], int]]:
    """How a number is shown, and a draw of numbers of about one size."""
    if w.chance(0.15):
        return DATES.__getitem__, lambda: w.below(len(DATES))
    top = (20, 100, 100, 200, 1000, 5000)[w.below(6)]
    if w.chance(0.5):
        middle = 1 + w.below(top)
        return str, lambda: max(1, middle + w.below(21) - 10)
    return str, lambda: 1 + w.below(top)


def _condition(w: Words, shown: str, limit: int) -> tuple[str, Callable[[int], bool]]:
    if w.chance(0.65):
        return f"{w.one(('under', 'less than', 'below', 'before'))} {shown}", lambda n: n < limit
    if w.chance(0.5):
        return f"{w.one(('over', 'more than', 'above', 'after'))} {shown}", lambda n: n > limit
    return f"{w.one(('at most', 'up to'))} {shown}", lambda n: n <= limit


def offers(w: Words) -> TrainingExample:
    """A list of offers with prices: the first that has all words and fits a limit, as on `shop`, or the next page.

    The thought gives a verdict on each, "[3] wool no , [4] 61 no , [5] 54 yes", before the action.
    """
    words = list(dict.fromkeys(w.word().lower() for _ in range(5)))
    kind = words.pop()
    before, after = w.one((("", " dollars"), ("$", ""), ("", " dollars")))
    middle, first, shown = 10 + w.below(150), 1 + w.below(5), 2 + w.below(5)
    items = []
    for element in range(first, first + shown):
        named = w.shuffled(words)[: 2 + w.below(3)]
        items.append((element, [w.name(), *named, kind], max(1, middle + w.below(41) - 20)))
    lines = [f"heading Results page {1 + w.below(5)} of 5"] if w.chance(0.7) else []
    for element, title, price in items:
        lines += [f"link {' '.join(title)} [{element}]", f"text {before}{price}{after}"]
    last = first + shown
    lines.append(f"link Next [{last}]")
    turns = []
    for _ in range(2 + w.below(5)):
        wanted = w.shuffled(words)[: 1 + w.below(2)]
        limit = max(1, middle + w.below(31) - 15)
        said = w.one(("under {} dollars", "for less than {} dollars", "price under {} dollars")).format(limit)
        asked = w.one(("Buy a {} {} .", "I need a {} , {} .", "Find me a {} {} .", "order a {} {} please"))
        thought, element = scan(items, wanted, limit)
        answer = act(Command.CLICK, element or last, thought if element else f"{thought} , Next [{last}]")
        turns.append((asked.format(" ".join([*wanted, kind]), said), answer))
    return ask(turns, "\n".join(lines))


def extreme(w: Words) -> TrainingExample:
    """The cheapest or dearest, first or last of a list: each value is compared with the best so far."""
    before, after = _UNITS[w.below(len(_UNITS))]
    show, draw = _scale(w)
    numbers = list(dict.fromkeys(draw() for _ in range(2 + w.below(6))))
    named, role = w.chance(0.7), w.one(("link", "button", "clickable"))
    lines, values = [], []
    for element, n in enumerate(numbers, 1):
        value = f"{before}{show(n)}{after}"
        values.append(show(n))
        lines += [f"{role} {w.title()} [{element}]", f"text {value}"] if named else [f"{role} {value} [{element}]"]
    turns = []
    for names, better in _EXTREMES:
        name = w.one(names)
        thought, at = best([*enumerate(values, 1)], numbers, better)
        turns.append((f"{w.one(('Click', 'Find', 'Book', 'open'))} the {name} .", act(Command.CLICK, at, thought)))
    return ask(turns if w.chance(0.5) else turns[::-1], "\n".join(lines))


_EXTREMES: tuple[tuple[tuple[str, ...], Callable[[int, int], int]], ...] = (
    (("cheapest", "smallest", "lowest", "least", "earliest", "shortest"), min),
    (("most expensive", "greatest", "largest", "highest", "latest", "longest"), max),
)


def count(w: Words) -> TrainingExample:
    """How many lines are of a kind: they are numbered in the answer."""
    kinds = list(dict.fromkeys(w.word() for _ in range(2 + w.below(2))))
    lines = [w.one(kinds) for _ in range(2 + w.below(9))]
    role = w.one(("text", "clickable", "cell"))
    turns = []
    for kind in w.shuffled(kinds):
        n = lines.count(kind)
        told = " , ".join(f"{i} {kind}" for i in range(1, n + 1))
        turns.append((f"How many {kind} ?", f"{told} , {n}" if n else f"no {kind} , 0"))
    return ask(turns, "\n".join(f"{role} {line}" for line in lines))


def order(w: Words) -> TrainingExample:
    """Numbers or words to sort, and the nth of a list."""
    turns = []
    for _ in range(2 + w.below(2)):
        if w.chance(0.6):
            show, draw = _scale(w)
            numbers = list(dict.fromkeys(draw() for _ in range(2 + w.below(6))))
            listed = " , ".join(map(show, numbers))
            turns.append((f"sort {listed}", " , ".join(map(show, sorted(numbers)))))
        else:
            words = list(dict.fromkeys(w.word() for _ in range(3 + w.below(6))))
            nth = w.below(len(words))
            counted = " , ".join(f"{i} {word}" for i, word in enumerate(words[: nth + 1], 1))
            turns.append((f"the {ordinal(nth + 1)} of {' '.join(words)}", counted))
    return ask(turns)
