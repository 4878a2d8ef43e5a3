"""The city of `booking`: its restaurants, its search, its free tables. Fixed: pure functions of names only."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

from agentq.envs.lexicon import DATES, TIMES, fixed_hash, words

ADJECTIVES = words("Blue Red Golden Silver Little Grand Royal Happy Lucky Quiet Wild Sunny Rusty Copper Velvet Crystal")
NOUNS = words("Harbor Garden Lantern Olive Maple River Moon Fox Crane Lotus Pepper Anchor Bridge Orchard Meadow Falcon")
KINDS = words("Grill Kitchen Bistro Cafe Diner Tavern House Table")
AREAS = words(
    "Marina Downtown Midtown Riverside Uptown Lakeside Northgate Southside Westend Eastwood Hillcrest Parkview"
)
CUISINES = words("Italian French Mexican Indian Thai Greek Spanish Korean Turkish Seafood")
PRICES = ("cheap", "moderate", "expensive")
PARTIES = tuple(str(size) for size in range(1, 9))
SEATINGS = ("Inside", "Patio", "Bar")

PAGE_SIZE = 4
MAX_PAGES = 5
_NUM_NAMES = 210
_BRANCHES = (1, 2, 2, 3, 3, 4, 4, 4, 5, 5, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7)  # drawn from; most names have several branches
_WINDOW = 3  # half hours shown on either side of the requested time
_FREE_PERCENT = 62


@dataclass(frozen=True, slots=True)
class Place:
    """One branch. `defaults` are the date, time and party that its page offers first."""

    number: int
    name: str
    area: str
    cuisine: str
    price: str
    asks_seating: bool
    defaults: tuple[str, str, str]

    @property
    def title(self) -> str:
        """Name and area, as shown."""
        return f"{self.name} {self.area}"


@lru_cache(maxsize=1)
def places() -> tuple[Place, ...]:
    """`[places]` every branch; the index is its number in urls."""
    rng = random.Random("city")
    names = rng.sample([f"{a} {n} {k}" for a in ADJECTIVES for n in NOUNS for k in KINDS], _NUM_NAMES)
    branches = []
    for name in names:
        cuisine = rng.choice(CUISINES)
        branches += [(name, area, cuisine) for area in rng.sample(AREAS, rng.choice(_BRANCHES))]
    rng.shuffle(branches)
    return tuple(
        Place(number, name, area, cuisine, rng.choice(PRICES), rng.random() < 0.5, _defaults(rng))
        for number, (name, area, cuisine) in enumerate(branches)
    )


def _defaults(rng: random.Random) -> tuple[str, str, str]:
    return rng.choice(DATES), rng.choice(("6:30 PM", "7:00 PM", "7:30 PM")), "2"


def place(number: str) -> Place | None:
    """The branch with a number from a url, or None."""
    known = number.isascii() and number.isdigit() and len(number) < 6 and int(number) < len(places())
    return places()[int(number)] if known else None


@lru_cache(maxsize=1)
def _by_word() -> dict[str, tuple[int, ...]]:
    index: dict[str, list[int]] = {}
    for spot in places():
        for word in spot.name.lower().split():
            index.setdefault(word, []).append(spot.number)
    return {word: tuple(numbers) for word, numbers in index.items()}


@lru_cache(maxsize=4096)
def search(query: str) -> tuple[Place, ...]:
    """Branches whose names share words with `query`: most shared words first, then in an arbitrary fixed order."""
    shared: Counter[int] = Counter()
    for word in set(query.lower().split()):
        shared.update(_by_word().get(word, ()))
    found = sorted(shared, key=lambda n: (-shared[n], fixed_hash(places()[n].name), fixed_hash("branch", n)))
    return tuple(places()[number] for number in found[: PAGE_SIZE * MAX_PAGES])


def is_free(number: int, date: str, time: str, party: str) -> bool:
    """Whether the branch has a free table at that time."""
    return fixed_hash("table", number, date, time, party) % 100 < _FREE_PERCENT


def free_times(number: int, date: str, time: str, party: str) -> tuple[str, ...]:
    """The free times within an hour and a half of `time`, in order."""
    middle = TIMES.index(time)
    near = TIMES[max(0, middle - _WINDOW) : middle + _WINDOW + 1]
    return tuple(slot for slot in near if is_free(number, date, slot, party))


def random_query(rng: random.Random) -> str:
    """The name of some restaurant."""
    return rng.choice(places()).name
