"""Orders on a page: one thing to do there, in words, with the action that does it. No expert is needed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from agentq.agent.actions import format_action
from agentq.types import Command, EnvAction

_ELEMENT = re.compile(r"^(link|button|textbox|combobox|checkbox) ([^\n]+?) \[(\d+)\](?:: .*)?$", re.MULTILINE)
# names of facts: the link that the instruction is about, and the two times that it accepts
PLACE, FIRST_TIME, SECOND_TIME = "Place", "First time", "Second time"
_ID = re.compile(r" \[\d+\]:?")

VERBS = ("click", "open", "take", "press", "choose", "go to")
NAVIGATION = ("Home", "Next", "Previous", "Change", "Back", "Details")  # links that are never confused


@dataclass(frozen=True, slots=True)
class PageOrder:
    """One thing to do on a page, in words, and the action that does it."""

    words: str
    action: EnvAction
    thought: str  # names the element as the page does, with its id


def page_elements(text: str) -> list[tuple[str, int, str]]:
    """(role, id, name) of each numbered line of an observation."""
    return [(m[1], int(m[3]), m[2]) for m in _ELEMENT.finditer(text)]


def random_value(rng: np.random.Generator, texts: Sequence[str]) -> str:
    """Something to type: adjacent words of the given texts, words from anywhere in them, digits, or an address.

    Words from anywhere (up to 10) must be copied one by one, since neither sense nor habit predicts the next.
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


def _random_order(
    rng: np.random.Generator, found: list[tuple[str, int, str]], values: Sequence[str]
) -> PageOrder | None:
    """Something to do with one of the elements `found`; links that must be told apart are drawn more often."""
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
        return PageOrder(f"{verb} {name}", click, f"{verb} {name} [{element}]")
    missing = _name_elsewhere(rng, values, {n for _, _, n in found})
    if missing is None or rng.random() < 0.5:  # the first of two is there
        other = missing or found[rng.integers(len(found))][2]
        return PageOrder(f"{verb} {name} or else {other}", click, f"{verb} {name} [{element}]")
    return PageOrder(f"{verb} {missing} or else {name}", click, f"{missing} is missing , {verb} {name} [{element}]")


def _put(words: str, command: Command, element: int, name: str, value: str) -> PageOrder:
    return PageOrder(words, EnvAction(command, element, value), f"{name} [{element}] {value}")


def _name_elsewhere(rng: np.random.Generator, texts: Sequence[str], here: set[str]) -> str | None:
    """The name of a link in the other texts that is missing on the page."""
    names = [n for text in texts for role, _, n in page_elements(text) if role == "link" and n not in here]
    return names[rng.integers(len(names))] if names else None


def random_orders(rng: np.random.Generator, text: str, values: Sequence[str], count: int) -> list[PageOrder]:
    """At most `count` orders on the page."""
    found = page_elements(text)
    return [order for order in (_random_order(rng, found, values) for _ in range(count if found else 0)) if order]


def lookup_order(rng: np.random.Generator, text: str, instruction: str) -> PageOrder | None:
    """An order to type the words after a cue in the instruction; the cue must occur once."""
    fields = [(element, name) for role, element, name in page_elements(text) if role in ("textbox", "combobox")]
    words = instruction.split(" ")
    cues = [i for i, word in enumerate(words[:-1]) if words.count(word) == 1]
    if not fields or not cues:
        return None
    start = cues[rng.integers(len(cues))]
    value = " ".join(words[start + 1 : start + 1 + int(rng.integers(1, 4))])
    element, name = fields[rng.integers(len(fields))]
    return _put(f"type {len(value.split(' '))} after {words[start]} in {name}", Command.TYPE, element, name, value)


def fill_order(rng: np.random.Generator, text: str, facts: Mapping[str, str]) -> PageOrder | None:
    """An order to fill a field from the instruction, or to open the place or take the time that it names.

    This teaches to read, not to know when the action is due. If the place is missing, the order goes to the next page.
    """
    asked = fact_order(rng, text, facts)
    if asked and rng.random() < 0.7:
        return asked
    found = page_elements(text)
    fields = [(role, element, name) for role, element, name in found if role != "link" and facts.get(name)]
    if not fields:
        return None
    role, element, name = fields[rng.integers(len(fields))]
    command = Command.TYPE if role == "textbox" else Command.SELECT
    return _put(f"fill {name}", command, element, name, facts[name])


def fact_order(rng: np.random.Generator, text: str, facts: Mapping[str, str]) -> PageOrder | None:
    """An order to open the place or take the time that the facts name."""
    links = {name: element for role, element, name in page_elements(text) if role == "link"}
    found = [order for order in (_open(links, facts), _take(links, facts)) if order]
    return found[rng.integers(len(found))] if found else None


def _open(links: Mapping[str, int], facts: Mapping[str, str]) -> PageOrder | None:
    """Thoughts begin with the name: once it is written, it is easiest to see whether the page has it."""
    place = facts.get(PLACE, "")
    if place in links:
        return PageOrder("open the place", EnvAction(Command.CLICK, links[place]), f"{place} [{links[place]}]")
    if place and "Next" in links:
        turn = links["Next"]
        return PageOrder("open the place", EnvAction(Command.CLICK, turn), f"{place} is not here , Next [{turn}]")
    return None


def _take(links: Mapping[str, int], facts: Mapping[str, str]) -> PageOrder | None:
    first, second = facts.get(FIRST_TIME, ""), facts.get(SECOND_TIME, "")
    if first in links:
        return PageOrder("take the time", EnvAction(Command.CLICK, links[first]), f"take {first} [{links[first]}]")
    if second in links:
        click = EnvAction(Command.CLICK, links[second])
        return PageOrder("take the time", click, f"{first} is taken , take {second} [{links[second]}]")
    return None


def order_text(order: PageOrder) -> str:
    """The composite action that carries out an order."""
    return format_action(order.action, thought=order.thought)
