"""Exercises on pages of the built-in sites: verdicts on results, final pages to judge, steps to take and to rank."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from agentq import envs
from agentq.agent.actions import format_action
from agentq.agent.prompts import critic_answer, critic_messages, judge_messages, policy_messages
from agentq.base.demonstrations import Demonstration, demonstrate
from agentq.base.exercises import TrainingExample, near_misses
from agentq.base.pages import collect_pages
from agentq.base.reading.checking import checked, chosen, leaves
from agentq.base.reading.copying import act, ask
from agentq.base.reading.judging import finding
from agentq.base.reading.proposing import likely_instead
from agentq.base.reading.renaming import renamed
from agentq.base.reading.seeing import asks_several, in_turn, seen
from agentq.base.reading.shopping import item, results, search
from agentq.base.reading.words import Words
from agentq.envs.booking import tasks as booking
from agentq.envs.lexicon import TIMES
from agentq.envs.shop import tasks as shop
from agentq.envs.shop.world import Product, products
from agentq.envs.web_env import Advice
from agentq.types import Command, EnvAction, History, Observation, Split, Status, Task

SITES, _ERRANDS = ("booking", "shop"), ("booking/several",)
Make = Callable[[Words], TrainingExample]
HELD_OUT_FROM = 500_000_000  # BASE index of the tasks of the gates, far behind those of training


@dataclass(frozen=True, slots=True)
class Sites:
    """What was collected on the sites: pages of random walks, demonstrations to act on, others to rank and judge."""

    pages: dict[str, list[tuple[Observation, Task]]]  # by the first word of the path, of `shop` alone
    acted: list[Demonstration]
    errands: list[Demonstration]  # to act on, with two or three reservations each
    ranked: list[Demonstration]
    first_task: int
    values: dict[str, list[str]]  # what the expert enters or selects in `ranked`, by the field

    @classmethod
    def collect(
        cls,
        *,
        walks: int,
        acted: int,
        ranked: int,
        slip_rate: float,
        seed: int,
        first_task: int = 0,
        corrected: int = 0,
    ) -> Sites:
        """Walks and episodes of BASE tasks from index `first_task`; numbers are per site, `booking/several` is one.

        `corrected` more episodes of each use on `shop` open a product that fits but for its colors, and go on with
        another.
        """
        pages: dict[str, list[tuple[Observation, Task]]] = defaultdict(list)
        for page, task in collect_pages("shop", walks, seed, start=first_task + 1_000_000):
            pages[page.url.strip("/").partition("?")[0].partition("/")[0]].append((page, task))

        def shown(n: int, start: int, sites: tuple[str, ...] = SITES) -> list[Demonstration]:
            return [
                d
                for i, site in enumerate(sites)
                for d in demonstrate(site, n, seed + i, start=start, slip_rate=slip_rate, revise=seen)
            ]

        found = shown(ranked, first_task + acted) + shown(acted, first_task + acted, _ERRANDS)
        found += _corrected(corrected, first_task + 4_000_000, seed)
        values = defaultdict[str, list[str]](list)
        for d in found:
            if d.action.text is not None:
                values[_field(d)].append(d.action.text)
        acts = shown(acted, first_task) + _corrected(corrected, first_task + 3_000_000, seed)
        return cls(dict(pages), acts, shown(acted, first_task, _ERRANDS), found, first_task, dict(values))

    @property
    def kinds(self) -> dict[str, Make]:
        """The exercises by name."""
        sites = (self.step, self.errand, self.rank, self.slots, self.reserved, self.bought)
        on_shop = {make.__name__: partial(make, self.pages) for make in (search, results, item)}
        return {**{make.__name__: make for make in sites}, **on_shop}

    def step(self, w: Words) -> TrainingExample:
        """A step of the expert to take, mostly with other names."""
        d = _mostly_renamed(self.acted[w.below(len(self.acted))], w)
        return TrainingExample(policy_messages(d.history), d.text)

    def errand(self, w: Words) -> TrainingExample:
        """The same of a task with two or three reservations. The oldest actions are left out, as in a short context."""
        d = _mostly_renamed(self.errands[w.below(len(self.errands))], w)
        return TrainingExample(policy_messages(_recent(d.history, w)), d.text)

    def rank(self, w: Words) -> TrainingExample:
        """A step of another episode to pick out of other actions; verdicts come before the pick.

        Many of the others are what a policy proposes. Of a page of `booking` the thought says first whether what was
        chosen on earlier pages is right.
        """
        while True:
            at = w.below(len(self.ranked))
            d = _mostly_renamed(self.ranked[at], w)
            likely = likely_instead(d, self.values, _field(self.ranked[at]), w)
            others = [*d.others, *near_misses(w.rng, d.history.observation.text, d.action, [d.history.instruction])]
            distinct = [o for o in dict.fromkeys(likely if w.chance(0.6) else likely + others) if o != d.action]
            if distinct:
                break
        listed = [d.action, *(distinct[i] for i in w.rng.permutation(len(distinct))[: 1 + w.below(4)])]
        listed = [listed[i] for i in w.rng.permutation(len(listed))]
        page = d.history.observation.text
        said = d.thought if leaves(page, d.action) else checked(page, d.action, d.thought)
        said = said if said == d.thought else in_turn(said, d.history)
        if not asks_several(d.history.instruction):
            said = " , ".join([*chosen(page, d.thought), said])
        asked = critic_messages(_recent(d.history, w), listed)
        return TrainingExample(asked, f"THOUGHT: {said}\n{critic_answer(d.action)}")

    def slots(self, w: Words) -> TrainingExample:
        """The free times of an evening and several requests: the first choice, else the second, else the way back."""
        here = booking.facts(base_seed(self.first_task, w))
        free = [TIMES[i] for i in sorted(w.rng.permutation(len(TIMES))[: 1 + w.below(6)])]
        ids = {name: i for i, name in enumerate((*free, "Change", "Home"), 1)}
        lines = ["heading Choose a time", f"text {here.place.title}", f"text {here.date} , party of {here.party}"]
        page, turns = "\n".join([*lines, *(f"link {name} [{i}]" for name, i in ids.items())]), []
        for _ in range(2 + w.below(4)):
            first, *rest = w.shuffled([*TIMES])
            second = next((time for time in rest if time in ids), rest[0]) if w.chance(0.7) else rest[0]
            due = first if first in ids else second if second in ids else "Change"
            said = {first: f"take {first}", "Change": f"change to {here.date} at {first} , Change"}
            thought = said.get(due, f"{first} is taken , take {second}")
            click = Advice(EnvAction(Command.CLICK, ids[due]), f"{thought} [{ids[due]}]", "", Status.CONTINUE)
            other = booking.facts(base_seed(self.first_task, w))
            asked = replace(other, place=here.place, date=here.date, party=here.party)
            asked = replace(asked, first_choice=first, second_choice=second)
            answer = act(Command.CLICK, ids[due], seen(click, History("", Observation(page)), set()).thought)
            turns.append((booking.request(asked), answer))
        return ask(turns, page)

    def reserved(self, w: Words) -> TrainingExample:
        """The final page of `booking` beside the request: as asked, or with some facts of another request."""
        want = booking.facts(base_seed(self.first_task, w))
        other = booking.facts(base_seed(self.first_task, w))
        wrong = set(w.shuffled([*_BOOKED, "Time", "Time"])[: 1 + w.below(2)]) if w.chance(0.6) else set()
        got = {name: _BOOKED[name](other if name in wrong else want) for name in _BOOKED}
        asked = {name: of(want) for name, of in _BOOKED.items()}
        if not got["Seating"] or not asked["Seating"]:
            got["Seating"] = asked["Seating"] = ""
        if "Place" in wrong and w.chance(0.6):  # another branch of the same name
            got["Place"] = f"{want.place.name} {other.place.area}"
        lines = [
            "heading Reservation complete",
            f"text {got['Place']}",
            f"text {got['Date']} at {got['Time']} , party of {got['Party']}",
            f"text {got['Name']} , {got['Phone']} , {got['Email']}",
            *([f"text Seating {got['Seating']}"] if got["Seating"] else []),
            "link Your reservation [1]\nlink Home [2]",
        ]
        told = booking.request(want)
        times = (want.first_choice, want.second_choice)
        right = {name: got[name] in times if name == "Time" else got[name] == asked[name] for name in _BOOKED}
        asked["Time"] = " or ".join(times)
        answer = [finding(name, asked[name], got[name], holds=right[name]) for name in _BOOKED if asked[name]]
        return self._judged(w, told, "\n".join(lines), "/done", answer)

    def bought(self, w: Words) -> TrainingExample:
        """The final page of `shop` beside the request: the product may lack a word, or cost too much."""
        want = shop.goal(base_seed(self.first_task, w))
        item = want.target if w.chance(0.5) else _rival(w, want)
        color = want.color if w.chance(0.8) else w.one(item.colors)
        size = (want.size if w.chance(0.85) else w.one(item.sizes)) if item.sizes and want.size else ""
        lines = ["heading Order complete", f"text {item.title}", f"text {item.price} dollars", f"text Color {color}"]
        lines += [f"text Size {size}"] if size else []
        named = set(item.title.split())
        answer = [
            *(finding("Word", word, word if word in named else "", holds=word in named) for word in want.query.split()),
            finding("Price", f"under {want.limit}", str(item.price), holds=item.price < want.limit),
            finding("Color", want.color, color),
            *([finding("Size", want.size, size)] if want.size else []),
        ]
        return self._judged(
            w, shop.request(want), "\n".join([*lines, "link Your order [1]\nlink Home [2]"]), "/order", answer
        )

    def _judged(self, w: Words, told: str, page: str, url: str, answer: list[str]) -> TrainingExample:
        """The question about a final page, after the commands of a recorded episode; one in ten ends elsewhere."""
        d = self.ranked[w.below(len(self.ranked))]
        past = _recent(d.history, w).actions[-w.below(12) - 1 if w.chance(0.5) else 0 :]
        stop = format_action(EnvAction(Command.STOP))
        if w.chance(0.12):
            page, url, answer = d.history.observation.text, d.history.observation.url, ["Done: yes / no: NO"]
        return TrainingExample(judge_messages(History(told, Observation(page, url), (*past, stop))), "\n".join(answer))


def _recent(history: History, w: Words) -> History:
    """The history with 12 to 19 actions at most, as in a short context."""
    most = 12 + w.below(8)
    while len(history.actions) > most:
        history = history.shortened()
    return history


def _mostly_renamed(d: Demonstration, w: Words) -> Demonstration:
    return renamed(d, w) if w.chance(_RENAMED) else d


def _corrected(n: int, start: int, seed: int) -> list[Demonstration]:
    """`n` episodes of `shop` in which a product has another color than asked for: from its page to the end."""
    found = list[Demonstration]()
    while n:
        episode = demonstrate("shop", 1, seed, start=start, revise=seen)
        start += 1
        at = next((i for i, d in enumerate(episode) if " is not here" in d.thought), None)
        if at is not None:
            found += episode[at:]
            n -= 1
    return found


def _field(d: Demonstration) -> str:
    """The name of the field that a step fills, from its thought."""
    return d.thought.rpartition(" , ")[2].partition(" [")[0]


_RENAMED = 0.6  # share of steps with other names
_BOOKED: dict[str, Callable[[booking.Facts], str]] = {
    "Place": lambda f: f.place.title,
    "Date": lambda f: f.date,
    "Time": lambda f: f.time,
    "Party": lambda f: f.party,
    "Name": lambda f: f.guest,
    "Phone": lambda f: f.phone,
    "Email": lambda f: f.email,
    "Seating": lambda f: f.seating,
}


def base_seed(first: int, w: Words) -> int:
    """The seed of a BASE task behind those of the demonstrations."""
    return envs.task("booking", Split.BASE, first + 2_000_000 + w.below(100_000_000)).seed


def _rival(w: Words, want: shop.Goal) -> Product:
    """Another product, mostly one of the wanted kind."""
    same = [item for item in products() if item.kind == want.kind] if w.chance(0.9) else list(products())
    return same[w.below(len(same))]
