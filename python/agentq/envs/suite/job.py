"""One task of the suite: what is asked for, the steps of its expert, and the check of the database."""

from __future__ import annotations

import random
import sqlite3
from dataclasses import dataclass

Values = dict[str, str]
_FIRST = ("Ann", "Bea", "Carl", "Dora", "Emil", "Fay", "Gus", "Hana", "Ivo", "Jana")
_LAST = ("Abbot", "Baker", "Clark", "Doyle", "Evans", "Ford", "Grant", "Hale", "Irwin", "Jones")


def draw(seed: int) -> Values:
    """What a task is about, by its seed."""
    rng = random.Random(seed)
    first, last = rng.choice(_FIRST), rng.choice(_LAST)
    number = str(rng.randint(1000, 9999))
    user = f"user{rng.randint(1, 40)}"
    return {"first": first, "last": last, "number": number, "user": user, "row": str(rng.randint(1, 400))}


@dataclass(frozen=True, slots=True)
class Job:
    """`application`: the script that serves it. `asks` and the steps have `{first}` and the like, drawn from the seed.

    A step is `COMMAND role name text`: `CLICK button Save`, `TYPE textbox "First name" {first}`; see walk.py.
    `check`: the query of the database, with the drawn values by name, whose result is 1 if the task is done.
    """

    name: str
    application: str
    start: str
    asks: str
    steps: tuple[str, ...]
    check: str

    def instruction(self, seed: int) -> str:
        """The task in words."""
        return self.asks.format(**draw(seed))

    def done(self, database: sqlite3.Connection, seed: int) -> bool:
        """Whether the task of a seed is done in its database."""
        return bool(database.execute(self.check, draw(seed)).fetchone() == (1,))
