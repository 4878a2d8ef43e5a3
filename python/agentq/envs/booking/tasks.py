"""The tasks of `booking`: facts from a seed, the instruction in words, the four checks, the simulated user."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from agentq.envs.booking.world import PARTIES, SEATINGS, Place, free_times, places, search
from agentq.envs.lexicon import DATES, FIRST_NAMES, LAST_NAMES, MAIL_HOSTS, TIMES
from agentq.types import Task

_FIRST_TAKEN = 0.35
_PARTY_WEIGHTS = (6, 36, 14, 18, 8, 8, 5, 5)
_WORDINGS = (
    "Book {name} in {area} for {party} on {date} at {first} or else {second} . {seating}"
    "Phone {phone} , email {email} , name {guest} .",
    "Reserve a table at {name} in {area} on {date} at {first} , if taken {second} , for {party} people . "
    "Name {guest} , phone {phone} , email {email} . {seating}Thanks .",
    "I want to eat at {name} in {area} . Party of {party} on {date} at {first} or else {second} . {seating}"
    "I am {guest} , email {email} , phone {phone} , please .",
    "Table for {party} on {date} at {first} , second choice {second} , at {name} in {area} . {seating}"
    "It is for {guest} , phone {phone} and email {email} please .",
    "For {guest} , phone {phone} , email {email} : book {name} in {area} at {first} , if taken {second} , "
    "on {date} for {party} . {seating}Thanks .",
)


class Reservation(NamedTuple):
    """What the site keeps of a completed reservation; all as text, `place` is the branch's number."""

    place: int
    date: str
    time: str
    party: str
    first_name: str
    last_name: str
    phone: str
    email: str
    seating: str


@dataclass(frozen=True, slots=True)
class Facts:
    """What the user wants. `time` is the right one: the first choice if a table is free then, else the second."""

    place: Place
    date: str
    first_choice: str
    second_choice: str
    time: str
    party: str
    first_name: str
    last_name: str
    phone: str
    email: str
    seating: str  # "" if the branch does not ask
    wording: int

    @property
    def guest(self) -> str:
        """First and last name."""
        return f"{self.first_name} {self.last_name}"


@lru_cache(maxsize=4096)
def facts(seed: int) -> Facts:
    """The facts of task `seed`."""
    return draw(random.Random(f"booking {seed}"))


def draw(rng: random.Random) -> Facts:
    """A branch that is among the search results for its own name, a time there, a guest."""
    place = rng.choice(places())
    while place not in search(place.name):
        place = rng.choice(places())
    date, party, first, second, time = _when(rng, place)
    first_name, last_name = rng.choice(FIRST_NAMES), rng.choice(LAST_NAMES)
    email = f"{rng.choice((first_name, last_name)).lower()}@{rng.choice(MAIL_HOSTS)}.com"
    phone = f"555-{rng.randrange(10_000):04d}"
    seating = rng.choice(SEATINGS) if place.asks_seating else ""
    wording = rng.randrange(len(_WORDINGS))
    return Facts(place, date, first, second, time, party, first_name, last_name, phone, email, seating, wording)


def _when(rng: random.Random, place: Place) -> tuple[str, str, str, str, str]:
    """Date, party, first choice, second choice, and the right one of the two. At least 3 times are shown."""
    wants_taken = rng.random() < _FIRST_TAKEN
    while True:
        date, first = rng.choice((place.defaults[0], rng.choice(DATES), rng.choice(DATES))), rng.choice(TIMES)
        party = rng.choices(PARTIES, _PARTY_WEIGHTS)[0]
        shown = free_times(place.number, date, first, party)
        others = [time for time in shown if time != first]
        if len(shown) < 3 or (first in shown) is wants_taken or (date, first, party) == place.defaults:
            continue
        second = rng.choice(others)
        return date, party, first, second, second if wants_taken else first


def instruction(seed: int) -> str:
    """The request of task `seed` in words."""
    return request(facts(seed))


def request(want: Facts) -> str:
    """The request in words; every value is spelled exactly as on the pages."""
    return _WORDINGS[want.wording].format(
        name=want.place.name,
        area=want.place.area,
        party=want.party,
        date=want.date,
        first=want.first_choice,
        second=want.second_choice,
        guest=want.guest,
        phone=want.phone,
        email=want.email,
        seating=f"Seating {want.seating} . " if want.seating else "",
    )


def checks(session: Mapping[str, Any], task: Task) -> dict[str, bool]:
    """The paper's four checks on the server's state; `completed` means exactly one reservation, at the right branch."""
    want, made = facts(task.seed), session["reservations"]
    if not made:
        return dict.fromkeys(("date_time", "party", "guest", "completed"), False)
    return compared(made[-1], want) | {"completed": len(made) == 1 and made[-1].place == want.place.number}


def compared(last: Reservation, want: Facts) -> dict[str, bool]:
    """Whether a reservation has the date and time, the party and the guest that are wanted."""
    guest = (want.first_name, want.last_name, want.phone, want.email, want.seating)
    return {
        "date_time": (last.date, last.time) == (want.date, want.time),
        "party": last.party == want.party,
        "guest": (last.first_name, last.last_name, last.phone, last.email, last.seating) == guest,
    }


def score(session: Mapping[str, Any], task: Task) -> tuple[float, bool]:
    """Reward 1 and success iff all four checks hold."""
    success = all(checks(session, task).values())
    return float(success), success


def answer(task: Task, question: str) -> str:
    """The simulated user: gives the facts that the question asks for, all from the instruction."""
    return reply(facts(task.seed), question)


def reply(want: Facts, question: str) -> str:
    """What `answer` says of one reservation."""
    known = {
        "phone": f"phone {want.phone}",
        "email": f"email {want.email}",
        "date": f"date {want.date}",
        "time": f"{want.first_choice} or else {want.second_choice}",
        "party": f"party of {want.party}",
        "people": f"party of {want.party}",
        "restaurant": f"{want.place.name} in {want.place.area}",
        "seating": f"seating {want.seating or 'does not matter'}",
        "name": f"name {want.guest}",
    }
    words = question.lower().replace("?", " ").split()
    said = dict.fromkeys(told for key, told in known.items() if key in words)
    return " , ".join(said) or "please go on with what I said"
