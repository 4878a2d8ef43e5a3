"""Exercises on one page that need no expert: read it, copy from it, choose among actions on it.

An exercise tells the model what to do ("type 555-0134 in Phone") and asks for the action in the ordinary prompt format.
It teaches to read a page, copy words and name element ids, but not what a task needs next. Thoughts repeat the
element's name and id from the page, so the id in the command is a copy of what stands just before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from agentq.agent.prompts import LETTERS, Messages, critic_answer, critic_messages, policy_messages
from agentq.base.orders import (
    PageOrder,
    fact_order,
    fill_order,
    lookup_order,
    order_text,
    page_elements,
    random_orders,
    random_value,
)
from agentq.types import Command, EnvAction, History, Observation


@dataclass(frozen=True, slots=True)
class TrainingExample:
    """A prompt and the answer to learn; `more` are further (question, answer) turns about the same page."""

    messages: Messages
    answer: str
    more: tuple[tuple[str, str], ...] = ()


def make_example(
    rng: np.random.Generator,
    page: Observation,
    instruction: str,
    facts: Mapping[str, str],
    values: Sequence[str],
    past_page: Observation,
) -> TrainingExample | None:
    """One exercise on `page`, or None if it has no element to name.

    The model must carry out orders one by one (several turns about one page), do the next of a list, or pick an order
    out of proposals. Some orders need a value out of `instruction`. Half of the exercises begin with irrelevant past
    actions on `past_page`, where element ids may differ. Values to type, and names that are missing on `page`, come
    from `values`.
    """
    orders: list[PageOrder] = []
    reads = rng.random() < 0.5
    if reads:
        drawn = [fill_order(rng, page.text, facts) if rng.random() < 0.6 else lookup_order(rng, page.text, instruction)]
        drawn += [fill_order(rng, page.text, facts) for _ in range(3)] + [lookup_order(rng, page.text, instruction)]
        drawn += random_orders(rng, page.text, values, 1)
        orders = list(dict.fromkeys(order for order in drawn if order))
    if not orders:
        reads, orders = False, list(dict.fromkeys(random_orders(rng, page.text, values, int(rng.integers(2, 7)))))
    if not orders:
        return None
    past = past_actions(rng, past_page, values)
    question = f"{instruction} {orders[0].words}" if reads or rng.random() < 0.5 else orders[0].words
    kind = rng.random()
    if kind < 0.25:
        best = orders[0].action
        others = [order.action for order in [*orders[1:], *random_orders(rng, page.text, values, 3)]]
        others += near_misses(rng, page.text, best, [*facts.values()] or values)
        return rank_example(rng, History(question, page, past), best, others)
    if kind < 0.45 and not reads:
        done = int(rng.integers(len(orders)))
        query = " , then ".join(order.words for order in orders)
        return TrainingExample(
            policy_messages(History(query, page, tuple(map(order_text, orders[:done])))), order_text(orders[done])
        )
    more = tuple((order.words, order_text(order)) for order in orders[1:5])
    return TrainingExample(policy_messages(History(question, page, past)), order_text(orders[0]), more)


def ask_example(
    rng: np.random.Generator,
    page: Observation,
    told: Sequence[tuple[str, Mapping[str, str]]],
    past: tuple[str, ...] = (),
) -> TrainingExample | None:
    """The place to open or the time to take for each of several (instruction, facts) on one page; None without any.

    Many instructions about one page are three times as dense as one page per instruction.
    """
    turns = []
    for instruction, facts in told:
        order = fact_order(rng, page.text, facts)
        if order:
            turns.append((f"{instruction} {order.words}", order_text(order)))
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
    """Which id has which name, and which names are missing: the densest exercise in look-ups.

    The page has links only, from one or two groups of one kind that `alike` gives. Either its links are listed three
    times, each time in another order, or three lists of names are looked up. Some names are missing.
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
    """Up to six actions that differ from `action` in one thing: the element (of the same role) or the value."""
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
    """A ranking question whose answer is `best` among 1 to 4 of `others`; None if there is no other."""
    distinct = [o for o in dict.fromkeys(others) if o != best]
    if not distinct:
        return None
    size = min(len(distinct), int(rng.integers(1, 5)))
    listed = [best, *(distinct[i] for i in rng.permutation(len(distinct))[:size])]
    listed = [listed[i] for i in rng.permutation(len(listed))]
    return TrainingExample(critic_messages(history, listed), critic_answer(best, LETTERS[listed.index(best)]))


def past_actions(rng: np.random.Generator, page: Observation, values: Sequence[str]) -> tuple[str, ...]:
    """Up to 12 actions done on a page, or none: an irrelevant past for a question."""
    count = int(rng.integers(13)) if rng.random() < 0.5 else 0
    return tuple(order_text(order) for order in random_orders(rng, page.text, values, count))
