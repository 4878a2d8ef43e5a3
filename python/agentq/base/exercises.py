"""Pretraining material that needs no expert: pages of random walks; reading, copying and choosing exercises on them.

An exercise tells the model what to do ("type 555-0134 in Phone") and asks for the action in the ordinary prompt format,
so it teaches to read a page, copy words and name element ids, not what a task needs next. Thoughts repeat the element's
name and id from the page: then the id in the command is a copy of what stands just before it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from agentq.agent.actions import format_action
from agentq.agent.prompts import LETTERS, Messages, critic_answer, critic_messages, policy_messages
from agentq.types import Command, EnvAction, History, Observation

_ELEMENT = re.compile(r"^(link|button|textbox|combobox|checkbox) ([^\n]+?) \[(\d+)\](?:: .*)?$", re.MULTILINE)
# among the facts: the link that the instruction is about, and the two times it would take
PLACE, FIRST_TIME, SECOND_TIME = "Place", "First time", "Second time"
_ID = re.compile(r" \[\d+\]:?")

VERBS = ("click", "open", "take", "press", "choose", "go to")
NAVIGATION = ("Home", "Next", "Previous", "Change", "Back", "Details")  # links that need no telling apart


@dataclass(frozen=True, slots=True)
class TrainingExample:
    """A prompt and the answer to learn; `more` are further (question, answer) turns about the same page."""

    messages: Messages
    answer: str
    more: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class _Order:
    """One thing to do on a page, in words, and the action that does it."""

    words: str
    action: EnvAction
    thought: str  # names the element as the page does, with its id


def page_elements(text: str) -> list[tuple[str, int, str]]:
    """(role, id, name) of each numbered line of an observation."""
    return [(m[1], int(m[3]), m[2]) for m in _ELEMENT.finditer(text)]


def random_value(rng: np.random.Generator, texts: Sequence[str]) -> str:
    """Something to type: words that stand together in the given texts, words from anywhere in them, digits, an address.

    Words from anywhere (up to 10) can only be copied one by one: no sense or habit says what comes next.
    """
    text = _ID.sub("", texts[int(rng.integers(len(texts)))])
    words = [w for w in text.replace("\n", " ").split(" ") if w] or ["table"]
    kind = rng.random()
    if kind < 0.25:
        return f"{rng.integers(100, 1000)}-{rng.integers(0, 10000):04d}"
    if kind < 0.4:
        a, b = (words[int(i)].strip(":.,") or "table" for i in rng.integers(len(words), size=2))
        return f"{a.lower()}@{b.lower()}.com"
    if kind < 0.7:
        drawn = rng.integers(len(words), size=int(rng.integers(1, 11)))
        return " ".join(words[i] for i in drawn).strip(" .,:") or "table"
    start = int(rng.integers(len(words)))
    return " ".join(words[start : start + int(rng.integers(1, 5))]).strip(" .,:") or "table"


def _order(rng: np.random.Generator, found: list[tuple[str, int, str]], values: Sequence[str]) -> _Order | None:
    """Something to do with one of the elements `found`; links that need telling apart come more often than others."""
    links = [item for item in found if item[0] == "link" and item[2] not in NAVIGATION]
    among = links if len(links) > 2 and rng.random() < 0.7 else found
    role, element, name = among[rng.integers(len(among))]
    if role in ("textbox", "combobox"):
        value = random_value(rng, values)
        if role == "textbox":
            return _put(f"type {value} in {name}", Command.TYPE, element, name, value)
        return _put(f"set {name} to {value}", Command.SELECT, element, name, value)
    if sum(n == name for _, _, n in found) > 1:
        return None
    click, verb = EnvAction(Command.CLICK, element), VERBS[rng.integers(len(VERBS))]
    if rng.random() < 0.5:
        return _Order(f"{verb} {name}", click, f"{verb} {name} [{element}]")
    missing = _name_elsewhere(rng, values, {n for _, _, n in found})
    if missing is None or rng.random() < 0.5:  # the first of two is there
        other = missing or found[rng.integers(len(found))][2]
        return _Order(f"{verb} {name} or else {other}", click, f"{verb} {name} [{element}]")
    return _Order(f"{verb} {missing} or else {name}", click, f"{missing} is missing , {verb} {name} [{element}]")


def _put(words: str, command: Command, element: int, name: str, value: str) -> _Order:
    return _Order(words, EnvAction(command, element, value), f"{name} [{element}] {value}")


def _name_elsewhere(rng: np.random.Generator, texts: Sequence[str], here: set[str]) -> str | None:
    """A link's name of the other texts that the page does not have."""
    names = [n for text in texts for role, _, n in page_elements(text) if role == "link" and n not in here]
    return names[rng.integers(len(names))] if names else None


def _orders(rng: np.random.Generator, text: str, values: Sequence[str], count: int) -> list[_Order]:
    found = page_elements(text)
    return [order for order in (_order(rng, found, values) for _ in range(count if found else 0)) if order]


def _lookup(rng: np.random.Generator, text: str, instruction: str) -> _Order | None:
    """An order to type the words that stand after a cue in the instruction; only cues that occur once."""
    fields = [(element, name) for role, element, name in page_elements(text) if role in ("textbox", "combobox")]
    words = instruction.split(" ")
    cues = [i for i, word in enumerate(words[:-1]) if words.count(word) == 1]
    if not fields or not cues:
        return None
    start = cues[rng.integers(len(cues))]
    value = " ".join(words[start + 1 : start + 1 + int(rng.integers(1, 4))])
    element, name = fields[rng.integers(len(fields))]
    return _put(f"type {len(value.split(' '))} after {words[start]} in {name}", Command.TYPE, element, name, value)


def _fill(rng: np.random.Generator, text: str, facts: Mapping[str, str]) -> _Order | None:
    """An order to fill a field with what the instruction says of it, or to open the place or take the time it names.

    That is reading, not knowing when it is due. A place that is not among several links is looked for on the next page.
    """
    asked = _asked(rng, text, facts)
    if asked and rng.random() < 0.7:
        return asked
    found = page_elements(text)
    fields = [(role, element, name) for role, element, name in found if role != "link" and facts.get(name)]
    if not fields:
        return None
    role, element, name = fields[rng.integers(len(fields))]
    command = Command.TYPE if role == "textbox" else Command.SELECT
    return _put(f"fill {name}", command, element, name, facts[name])


def _asked(rng: np.random.Generator, text: str, facts: Mapping[str, str]) -> _Order | None:
    links = {name: element for role, element, name in page_elements(text) if role == "link"}
    found = [order for order in (_open(links, facts), _take(links, facts)) if order]
    return found[rng.integers(len(found))] if found else None


def _open(links: Mapping[str, int], facts: Mapping[str, str]) -> _Order | None:
    """Thoughts begin with the name: whether it is there is seen best when it has been written."""
    place = facts.get(PLACE, "")
    if place in links:
        return _Order("open the place", EnvAction(Command.CLICK, links[place]), f"{place} [{links[place]}]")
    if place and "Next" in links:
        turn = links["Next"]
        return _Order("open the place", EnvAction(Command.CLICK, turn), f"{place} is not here , Next [{turn}]")
    return None


def _take(links: Mapping[str, int], facts: Mapping[str, str]) -> _Order | None:
    first, second = facts.get(FIRST_TIME, ""), facts.get(SECOND_TIME, "")
    if first in links:
        return _Order("take the time", EnvAction(Command.CLICK, links[first]), f"take {first} [{links[first]}]")
    if second in links:
        click = EnvAction(Command.CLICK, links[second])
        return _Order("take the time", click, f"{first} is taken , take {second} [{links[second]}]")
    return None


def make_example(
    rng: np.random.Generator,
    page: Observation,
    instruction: str,
    facts: Mapping[str, str],
    values: Sequence[str],
    past_page: Observation,
) -> TrainingExample | None:
    """One exercise on `page`, or None if it has no element to name.

    Orders are to be done one by one (several turns about one page), as the next of a list, or to be picked out of
    proposals; some need a value out of `instruction`. Past actions that do not matter, on `past_page` where element ids
    may be others, stand before half of them. What to type, and names that are missing here, come from `values`.
    """
    orders: list[_Order] = []
    reads = rng.random() < 0.5
    if reads:
        drawn = [_fill(rng, page.text, facts) if rng.random() < 0.6 else _lookup(rng, page.text, instruction)]
        drawn += [_fill(rng, page.text, facts) for _ in range(3)] + [_lookup(rng, page.text, instruction)]
        drawn += _orders(rng, page.text, values, 1)
        orders = list(dict.fromkeys(order for order in drawn if order))
    if not orders:
        reads, orders = False, list(dict.fromkeys(_orders(rng, page.text, values, int(rng.integers(2, 7)))))
    if not orders:
        return None
    past = past_actions(rng, past_page, values)
    question = f"{instruction} {orders[0].words}" if reads or rng.random() < 0.5 else orders[0].words
    kind = rng.random()
    if kind < 0.25:
        best = orders[0].action
        others = [order.action for order in [*orders[1:], *_orders(rng, page.text, values, 3)]]
        others += near_misses(rng, page.text, best, [*facts.values()] or values)
        return rank_example(rng, History(question, page, past), best, others)
    if kind < 0.45 and not reads:
        done = int(rng.integers(len(orders)))
        query = " , then ".join(order.words for order in orders)
        return TrainingExample(
            policy_messages(History(query, page, tuple(map(_text, orders[:done])))), _text(orders[done])
        )
    more = tuple((order.words, _text(order)) for order in orders[1:5])
    return TrainingExample(policy_messages(History(question, page, past)), _text(orders[0]), more)


def ask_example(
    rng: np.random.Generator,
    page: Observation,
    told: Sequence[tuple[str, Mapping[str, str]]],
    past: tuple[str, ...] = (),
) -> TrainingExample | None:
    """The place to open or the time to take of each of several (instruction, facts), on one page; None without any.

    One page with many instructions is three times as dense as pages of their own.
    """
    turns = []
    for instruction, facts in told:
        order = _asked(rng, page.text, facts)
        if order:
            turns.append((f"{instruction} {order.words}", _text(order)))
    if not turns:
        return None
    history = History(turns[0][0], page, past)
    return TrainingExample(policy_messages(history), turns[0][1], tuple(turns[1:]))


def alike(names: Sequence[str]) -> tuple[list[list[str]], list[list[str]]]:
    """Groups of at least three names: those with the same first two words, and those with the same last word."""
    first: dict[str, list[str]] = {}
    last: dict[str, list[str]] = {}
    for name in names:
        words = name.split(" ")
        first.setdefault(" ".join(words[:2]), []).append(name)
        last.setdefault(words[-1], []).append(name)
    found = [[group for group in groups.values() if len(group) >= 3] for groups in (first, last)]
    return found[0], found[1]


def list_example(rng: np.random.Generator, groups: Sequence[Sequence[Sequence[str]]]) -> TrainingExample:
    """Which id has which name, and which name has none. Nothing is as dense in look-ups.

    A page of links alone, out of one or two groups of one of the kinds that `alike` gives. Either its links are told
    three times, each time in another order, or three lists of names are looked up, some of which are not there.
    """
    kind = groups[int(rng.integers(len(groups)))]
    drawn = [kind[int(rng.integers(len(kind)))] for _ in range(int(rng.integers(1, 3)))]
    pool = list(dict.fromkeys(name for group in drawn for name in group))
    pool = [pool[i] for i in rng.permutation(len(pool))]
    count = int(rng.integers(3, 9))
    chosen, absent = pool[:count], pool[count : 2 * count]
    first = int(rng.integers(1, 5))
    ids = {name: f"[{element}]" for element, name in enumerate(chosen, first)}
    finding = bool(absent) and rng.random() < 0.6
    lines = ["heading Results"]
    for name in chosen:
        lines.append(f"link {name} {ids[name]}")
        if rng.random() < 0.3 and not finding:
            lines.append(f"text {pool[rng.integers(len(pool))]}")
    turns = []
    for again in range(3):
        if finding:
            among = [*chosen, *absent]
            names = [among[i] for i in rng.permutation(len(among))[: int(rng.integers(2, 7))]]
            answer = " , ".join(f"{name} {ids.get(name, 'is not here')}" for name in names)
            turns.append(("find " + " , ".join(names), answer))
        else:
            answer = " , ".join(f"click {chosen[i]} {ids[chosen[i]]}" for i in rng.permutation(len(chosen)).tolist())
            turns.append(("again" if again else "list the links", answer))
    history = History(turns[0][0], Observation("\n".join(lines)))
    return TrainingExample(policy_messages(history), turns[0][1], tuple(turns[1:]))


def near_misses(rng: np.random.Generator, text: str, action: EnvAction, values: Sequence[str]) -> list[EnvAction]:
    """Up to six actions that differ from `action` in one thing: the element (of the same role), or the value put in."""
    found = page_elements(text)
    role = next((r for r, element, _ in found if element == action.element), None)
    same = [element for r, element, _ in found if r == role and element != action.element]
    misses = [EnvAction(action.command, same[i], action.text) for i in rng.permutation(len(same))[:3]]
    if action.command in (Command.TYPE, Command.SELECT):
        misses += [EnvAction(action.command, action.element, random_value(rng, values)) for _ in range(3)]
    return misses


def rank_example(
    rng: np.random.Generator, history: History, best: EnvAction, others: Sequence[EnvAction]
) -> TrainingExample | None:
    """A ranking question whose answer is `best` among 1 to 4 of `others`; None without any other."""
    distinct = [o for o in dict.fromkeys(others) if o != best]
    if not distinct:
        return None
    size = min(len(distinct), int(rng.integers(1, 5)))
    listed = [best, *(distinct[i] for i in rng.permutation(len(distinct))[:size])]
    listed = [listed[i] for i in rng.permutation(len(listed))]
    return TrainingExample(critic_messages(history, listed), critic_answer(best, LETTERS[listed.index(best)]))


def past_actions(rng: np.random.Generator, page: Observation, values: Sequence[str]) -> tuple[str, ...]:
    """Up to 12 actions done on a page, or none: what stands before a question and does not matter."""
    count = int(rng.integers(13)) if rng.random() < 0.5 else 0
    return tuple(_text(order) for order in _orders(rng, page.text, values, count))


def _text(order: _Order) -> str:
    return format_action(order.action, thought=order.thought)
