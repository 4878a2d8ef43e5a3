"""Exercises on pages of `shop`: what to search for, verdicts on results, the color to choose."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from agentq.base.exercises import TrainingExample
from agentq.base.orders import page_elements
from agentq.base.reading.copying import act, ask, put
from agentq.base.reading.words import Words
from agentq.envs.shop import tasks as shop
from agentq.envs.shop.expert import scan
from agentq.envs.shop.world import COLORS, products
from agentq.types import Command, Observation, Task

Pages = Mapping[str, Sequence[tuple[Observation, Task]]]  # of random walks, by the first word of the path
_PRICE = re.compile(r"link ([^\n]+) \[(\d+)\]\ntext (\d+) dollars")
_FEATURES = sorted({word for item in products() for word in item.attributes})


def search(pages: Pages, w: Words) -> TrainingExample:
    """A page with the search field and several requests: the words to search for, all of them in their order."""
    while True:
        page, _ = w.one(pages["search" if w.chance(0.5) else ""])
        field = next((i for _, i, name in page_elements(page.text) if name == "Search"), 0)
        if field:
            break
    turns = []
    for _ in range(2 + w.below(4)):
        known = w.chance(0.5)
        features = w.shuffled(_FEATURES)[: 1 + w.below(3)]
        if not known:
            features = [w.word().lower() if w.chance(0.5) else feature for feature in features]
        want = shop.goal(w.below(10**9))
        want = replace(want, attributes=tuple(features), kind=want.kind if known else w.word().lower())
        turns.append((shop.request(want), put("Search", field, want.query)))
    return ask(turns, page.text)


def results(pages: Pages, w: Words) -> TrainingExample:
    """A page of results and several wishes: verdicts one by one, then the first that fits or the next page."""
    while True:
        page, _ = w.one(pages["search"])
        items = [(int(i), title.split(), int(price)) for title, i, price in _PRICE.findall(page.text)]
        turn = next((i for role, i, name in page_elements(page.text) if name == "Next"), 0)
        if len(items) > 1 and turn:
            break
    turns = []
    for _ in range(2 + w.below(4)):
        title = items[w.below(len(items))][1]
        wish = w.shuffled(title[1:-1])[:2] if w.chance(0.8) else [w.one(_FEATURES) for _ in range(2)]
        limit = (max(5, items[w.below(len(items))][2] + w.below(25) - 10) // 5 + 1) * 5
        goal = replace(shop.goal(w.below(10**9)), attributes=tuple(wish), kind=title[-1], limit=limit)
        thought, element = scan(items, [*wish, title[-1]], limit)
        answer = act(Command.CLICK, element or turn, thought if element else f"{thought} , Next [{turn}]")
        turns.append((shop.request(goal), answer))
    return ask(turns, page.text)


def item(pages: Pages, w: Words) -> TrainingExample:
    """A product's page and several wishes: the colour to choose, or the way back if it has none such."""
    while True:
        page, _ = w.one(pages["item"])
        offered = re.search(r"^text Colors (.+)$", page.text, re.MULTILINE)
        found = {name: i for _, i, name in page_elements(page.text)}
        if offered and "Back" in found:
            break
    here, turns = offered[1].split(" , "), []
    for _ in range(2 + w.below(3)):
        color = w.one(here) if w.chance(0.6) else w.one(COLORS)
        goal = replace(shop.goal(w.below(10**9)), color=color)
        if color in here:
            answer = act(Command.SELECT, found["Color"], f"Color [{found['Color']}] {color}", color)
        else:
            answer = act(Command.CLICK, found["Back"], f"{color} is not here , Back [{found['Back']}]")
        turns.append((f"{shop.request(goal)} choose the color", answer))
    return ask(turns, page.text)
