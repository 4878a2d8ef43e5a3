"""Pretraining material that needs no expert: pages of random walks; reading, copying and choosing exercises on them.

An exercise tells the model what to do ("type 555-0134 in Phone") and asks for the action in the ordinary prompt format,
so it teaches to read a page, copy words and name element ids, not what a task needs next.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from agentq.agent.actions import format_action
from agentq.agent.prompts import LETTERS, Messages, critic_answer, critic_messages, policy_messages
from agentq.types import Command, EnvAction, History, Observation

_ELEMENT = re.compile(r"^(link|button|textbox|combobox|checkbox) \[(\d+)\] ([^:\n]+?)(?:: (.*))?$", re.MULTILINE)


NAVIGATION = ("Home", "Next", "Previous", "Change", "Back", "Details")  # links that need no telling apart


@dataclass(frozen=True, slots=True)
class Example:
    """A prompt and the answer to learn; `more` are further (question, answer) turns about the same page."""

    messages: Messages
    answer: str
    more: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class _Order:
    """One thing to do on a page, in words, and the action that does it."""

    words: str
    action: EnvAction
    thought: str = ""  # the words themselves where empty


def page_elements(text: str) -> list[tuple[str, int, str]]:
    """(role, id, name) of each numbered line of an observation."""
    return [(m[1], int(m[2]), m[3].strip()) for m in _ELEMENT.finditer(text)]


def random_value(rng: np.random.Generator, texts: Sequence[str]) -> str:
    """Something to type: words that stand together in the given texts, words from anywhere in them, digits, an address.

    Words from anywhere (up to 10) can only be copied one by one: no sense or habit says what comes next.
    """
    words = [w for w in texts[int(rng.integers(len(texts)))].replace("\n", " ").split(" ") if w] or ["table"]
    kind = rng.random()
    if kind < 0.15:
        return f"{rng.integers(100, 1000)}-{rng.integers(0, 10000):04d}"
    if kind < 0.3:
        a, b = (words[int(i)].strip("[]:.,") or "table" for i in rng.integers(len(words), size=2))
        return f"{a.lower()}@{b.lower()}.com"
    if kind < 0.7:
        drawn = rng.integers(len(words), size=int(rng.integers(1, 11)))
        return " ".join(words[i] for i in drawn).strip(" .,:") or "table"
    start = int(rng.integers(len(words)))
    return " ".join(words[start : start + int(rng.integers(1, 5))]).strip(" .,:") or "table"


def _orders(rng: np.random.Generator, text: str, values: Sequence[str], count: int) -> list[_Order]:
    found = page_elements(text)
    links = [item for item in found if item[0] == "link" and item[2] not in NAVIGATION]
    orders = []
    for _ in range(count if found else 0):
        among = links if len(links) > 2 and rng.random() < 0.7 else found
        role, element, name = among[rng.integers(len(among))]
        if role == "textbox":
            value = random_value(rng, values)
            orders.append(_Order(f"type {value} in {name}", EnvAction(Command.TYPE, element, value)))
        elif role == "combobox":
            value = random_value(rng, values)
            orders.append(_Order(f"set {name} to {value}", EnvAction(Command.SELECT, element, value)))
        elif sum(n == name for _, _, n in found) == 1:
            orders.append(_Order(f"click {name}", EnvAction(Command.CLICK, element)))
    return orders


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
    count = len(value.split(" "))
    return _Order(
        f"type {count} after {words[start]} in {name}", EnvAction(Command.TYPE, element, value), f"type {value}"
    )


def _fill(rng: np.random.Generator, text: str, facts: Mapping[str, str]) -> _Order | None:
    """An order to fill a field with what the instruction says of it: reading, not knowing when it is due."""
    fields = [(role, element, name) for role, element, name in page_elements(text) if facts.get(name)]
    if not fields:
        return None
    role, element, name = fields[rng.integers(len(fields))]
    command = Command.TYPE if role == "textbox" else Command.SELECT
    return _Order(f"fill {name}", EnvAction(command, element, facts[name]), f"{name} {facts[name]}")


def make_example(
    rng: np.random.Generator, page: Observation, instruction: str, facts: Mapping[str, str], values: Sequence[str]
) -> Example | None:
    """One exercise on `page`, or None if it has no element to name.

    Orders are to be done one by one (several turns about one page), as the next of a list, or to be picked out of
    proposals; some need a value out of `instruction`. Past actions that do not matter stand before half of them.
    """
    orders: list[_Order] = []
    reads = rng.random() < 0.5
    if reads:
        drawn = [_fill(rng, page.text, facts) if rng.random() < 0.6 else _lookup(rng, page.text, instruction)]
        drawn += [_fill(rng, page.text, facts) for _ in range(3)] + [_lookup(rng, page.text, instruction)]
        orders = list(dict.fromkeys(order for order in drawn if order))
    if not orders:
        reads, orders = False, list(dict.fromkeys(_orders(rng, page.text, values, int(rng.integers(2, 7)))))
    if not orders:
        return None
    past = tuple(_text(o) for o in _orders(rng, page.text, values, int(rng.integers(13)) if rng.random() < 0.5 else 0))
    kind = rng.random()
    if kind < 0.2:
        wanted = orders[0]
        history = History(f"{instruction} {wanted.words}" if reads else wanted.words, page, past)
        others = [o.action for o in [*orders[1:], *_orders(rng, page.text, values, 6)] if o.action != wanted.action]
        return rank_example(rng, history, wanted.action, wanted.thought or wanted.words, others)
    if kind < 0.4 and not reads:
        done = int(rng.integers(len(orders)))
        query = " , then ".join(order.words for order in orders)
        return Example(policy_messages(History(query, page, tuple(map(_text, orders[:done])))), _text(orders[done]))
    first = f"{instruction} {orders[0].words}" if reads else orders[0].words
    more = tuple((order.words, _text(order)) for order in orders[1:5])
    return Example(policy_messages(History(first, page, past)), _text(orders[0]), more)


def rank_example(
    rng: np.random.Generator, history: History, best: EnvAction, thought: str, others: Sequence[EnvAction]
) -> Example | None:
    """A ranking question whose answer is `best` among 1 to 4 of `others`; None without any other."""
    distinct = [o for o in dict.fromkeys(others) if o != best]
    if not distinct:
        return None
    size = min(len(distinct), int(rng.integers(1, 5)))
    listed = [best, *(distinct[i] for i in rng.permutation(len(distinct))[:size])]
    listed = [listed[i] for i in rng.permutation(len(listed))]
    return Example(critic_messages(history, listed), critic_answer(LETTERS[listed.index(best)], thought))


def _text(order: _Order) -> str:
    return format_action(order.action, thought=order.thought or order.words)
