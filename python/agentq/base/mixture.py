"""What the base model is trained on, in order: endless streams of encoded exercises and demonstrations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np

from agentq.agent.prompts import LETTERS, plain_text, policy_messages
from agentq.base.demonstrations import Demonstration
from agentq.base.exercises import (
    TrainingExample,
    alike,
    ask_example,
    list_example,
    make_example,
    near_misses,
    past_actions,
    rank_example,
)
from agentq.base.orders import FIRST_TIME, NAVIGATION, PLACE, SECOND_TIME, page_elements
from agentq.base.pages import page_kind
from agentq.base.training import Sequence, encode_example
from agentq.envs.booking import tasks as booking
from agentq.envs.shop import tasks as shop
from agentq.types import Observation, Task

LIST_SHARE, ASK_SHARE = 0.25, 0.35  # shares of the exercises


def _facts(task: Task) -> dict[str, str]:
    """The value that the instruction gives for each field, by the field's name on the page."""
    if task.env == "booking":
        f = booking.facts(task.seed)
        details = {"First name": f.first_name, "Last name": f.last_name, "Phone": f.phone, "Email": f.email}
        visit = {"Date": f.date, "Time": f.first_choice, "Party": f.party, "Seating": f.seating}
        choices = {FIRST_TIME: f.first_choice, SECOND_TIME: f.second_choice}
        return {PLACE: f.place.title, "Search": f.place.name, **choices, **visit, **details}
    g = shop.goal(task.seed)
    return {"Search": g.query, "Color": g.color, "Size": g.size}


class Teller:
    """Finds an instruction that fits a page: it names a listed restaurant or an offered time."""

    def __init__(self, tasks: list[Task]) -> None:
        self.tasks = [task for task in tasks if task.env == "booking"]
        self.by_name: dict[str, list[Task]] = defaultdict(list)
        for task in self.tasks:
            self.by_name[booking.facts(task.seed).place.name].append(task)

    def task(self, rng: np.random.Generator, page: Observation) -> Task | None:
        """A task about a link of the page or, equally often, about a similar name; None if no task fits."""
        links = [name for role, _, name in page_elements(page.text) if role == "link"]
        like = [task for name in links for task in self.by_name.get(name.rpartition(" ")[0], ())]
        if any(name.endswith(" PM") for name in links):
            drawn = rng.integers(len(self.tasks), size=40)
            told = [(task, _facts(task)) for task in (self.tasks[i] for i in drawn)]
            like = [task for task, facts in told if facts[FIRST_TIME] in links or facts[SECOND_TIME] in links]
        there: tuple[list[Task], list[Task]] = ([], [])
        for task in like:
            facts = _facts(task)
            there[facts[PLACE] in links or facts[FIRST_TIME] in links].append(task)
        found = there[int(rng.random() < 0.5)] or like
        return found[int(rng.integers(len(found)))] if found else None


def exercise_stream(tokenizer: Any, pages: list[tuple[Observation, Task]], seed: int) -> Iterator[Sequence]:
    """Exercises on random pages; kinds of pages with more names to tell apart are drawn more often."""
    rng = np.random.default_rng(seed)
    kinds: dict[tuple[str, str], list[tuple[Observation, Task]]] = defaultdict(list)
    for item in pages:
        kinds[item[1].env, page_kind(item[0])].append(item)
    groups = [group for group in kinds.values() if len(group) >= 20]
    kinds_of_names = [{name for _, _, name in page_elements(group[0][0].text)} - {*NAVIGATION} for group in groups]
    teller = Teller([task for _, task in pages])
    asks = [any(teller.task(rng, page) for page, _ in group[:20]) for group in groups]
    sizes = np.array([2 + len(names) for names in kinds_of_names])
    shares = sizes / sizes.sum()
    names = alike(sorted({name for page, _ in pages for role, _, name in page_elements(page.text) if role == "link"}))
    askable = [group for group, some in zip(groups, asks, strict=True) if some]
    while True:
        kind = rng.random()
        if kind < LIST_SHARE:
            yield encode_example(tokenizer, list_example(rng, names), rng, prompt_weight=0.3)
            continue
        if kind < LIST_SHARE + ASK_SHARE and askable:
            group = askable[rng.integers(len(askable))]
            page, past_page = (group[rng.integers(len(group))][0] for _ in range(2))
            about = [t for t in (teller.task(rng, page) for _ in range(int(rng.integers(3, 7)))) if t]
            past = past_actions(rng, past_page, [past_page.text])
            example = ask_example(rng, page, [(t.instruction, _facts(t)) for t in about], past)
            if example is not None:
                yield encode_example(tokenizer, example, rng, prompt_weight=0.3)
            continue
        group = groups[rng.choice(len(groups), p=shares)]
        page, task = group[rng.integers(len(group))]
        like_page, _ = group[rng.integers(len(group))]
        other_page, other_task = pages[rng.integers(len(pages))]
        told = task if rng.random() < 0.5 else other_task  # possibly an instruction that does not fit the page
        if rng.random() < 0.7:
            told = teller.task(rng, page) or told
        values = [page.text, like_page.text, other_page.text, task.instruction, other_task.instruction]
        past_page = like_page if rng.random() < 0.5 else other_page
        example = make_example(rng, page, told.instruction, _facts(told), values, past_page)
        if example is not None:
            yield encode_example(tokenizer, example, rng, prompt_weight=0.3)


def demonstration_stream(
    tokenizer: Any, acted: list[Demonstration], ranked: list[Demonstration], seed: int
) -> Iterator[Sequence]:
    """Alternately an expert's step to take, and a step of another episode to pick out of other actions."""
    rng = np.random.default_rng(seed)
    while True:
        for i in rng.permutation(len(acted)):
            d = acted[i]
            yield encode_example(tokenizer, TrainingExample(policy_messages(d.history), d.text), rng, prompt_weight=0.0)
            r = ranked[int(rng.integers(len(ranked)))]
            others = [*r.others, *near_misses(rng, r.history.observation.text, r.action, [r.history.instruction])]
            ranking = rank_example(rng, r.history, r.action, others)
            if ranking is not None:
                yield encode_example(tokenizer, ranking, rng, prompt_weight=0.0)


def mixed(source: Iterator[Sequence], other: Iterator[Sequence], *, every: int) -> Iterator[Sequence]:
    """`source`, with one item of `other` after every `every - 1` items."""
    while True:
        for _ in range(every - 1):
            yield next(source)
        yield next(other)


def tokenizer_texts(pages: list[tuple[Observation, Task]], demos: list[Demonstration]) -> Iterator[str]:
    """The texts that the tokenizer is trained on."""
    for page, task in pages:
        yield page.text
        yield task.instruction
    for d in demos:
        yield plain_text(policy_messages(d.history))
        yield d.text
    yield "".join(f" ({letter})" for letter in LETTERS)
