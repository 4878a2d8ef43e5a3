"""`booking/several`: two or three reservations in one task, in the order given, for the same guest."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from agentq.envs.booking.expert import PLAN, num_reserved, toward
from agentq.envs.booking.site import BookingSite, new_session
from agentq.envs.booking.tasks import Facts, compared, draw, reply
from agentq.envs.booking.world import random_query
from agentq.envs.tab import View
from agentq.envs.web_env import Advice, SiteExpert, SiteKit
from agentq.types import Command, EnvAction, Status, Task

MAX_STEPS = 75  # the expert takes 25 to 50
_WORDINGS = (
    "Make {many} reservations , one after the other , for {guest} , phone {phone} , email {email} . {each}",
    "I am {guest} , email {email} , phone {phone} , please book {many} tables in this order . {each}",
    "{each}Make these {many} reservations in this order . Name {guest} , phone {phone} , email {email} .",
)
_TABLE = "{turn} : {name} in {area} for {party} on {date} at {first} or else {second} . {seating}"
_TURNS = ("First", "Second", "Third")


@lru_cache(maxsize=4096)
def facts(seed: int) -> tuple[Facts, ...]:
    """The reservations of task `seed` in their order, at different branches."""
    rng = random.Random(f"booking/several {seed}")
    first, *others = (draw(rng) for _ in range(rng.choice((2, 3))))
    wants = [first]
    for other in others:
        while other.place in [want.place for want in wants]:
            other = draw(rng)
        guest = {key: getattr(first, key) for key in ("first_name", "last_name", "phone", "email")}
        wants.append(replace(other, **guest))
    return tuple(wants)


def instruction(seed: int) -> str:
    """The request of task `seed` in words; every value is spelled exactly as on the pages."""
    wants = facts(seed)
    each = [
        _TABLE.format(
            turn=turn,
            name=want.place.name,
            area=want.place.area,
            party=want.party,
            date=want.date,
            first=want.first_choice,
            second=want.second_choice,
            seating=f"Seating {want.seating} . " if want.seating else "",
        )
        for turn, want in zip(_TURNS, wants, strict=False)
    ]
    guest = {"guest": wants[0].guest, "phone": wants[0].phone, "email": wants[0].email}
    wording = _WORDINGS[wants[0].wording % len(_WORDINGS)]
    return wording.format(many=len(wants), each="".join(each), **guest).strip()


def checks(session: Mapping[str, Any], task: Task) -> dict[str, bool]:
    """Whether each reservation is the one that is wanted at its turn, and whether there are so many."""
    wants, made = facts(task.seed), session["reservations"]
    found = {turn.lower(): False for turn, _ in zip(_TURNS, wants, strict=False)}
    for turn, want, one in zip(found, wants, made, strict=False):
        found[turn] = all(compared(one, want).values()) and one.place == want.place.number
    return found | {"completed": len(made) == len(wants)}


def score(session: Mapping[str, Any], task: Task) -> tuple[float, bool]:
    """Reward 1 and success iff all checks hold."""
    success = all(checks(session, task).values())
    return float(success), success


def answer(task: Task, question: str) -> str:
    """The simulated user: gives the facts that the question asks for, of all reservations in their order."""
    return " ; ".join(dict.fromkeys(reply(want, question) for want in facts(task.seed)))


def advise(task: Task, view: View) -> Advice:
    """The next step for `task` from what the tab shows. Reservations made count as right."""
    wants, made = facts(task.seed), num_reserved(view)
    if made >= len(wants):
        return Advice(EnvAction(Command.STOP), "all reservations complete", "stop", Status.DONE)
    return toward(wants[made], view)


KIT = SiteKit(
    "booking/several",
    BookingSite(),
    MAX_STEPS,
    new_session,
    instruction,
    score,
    answer,
    SiteExpert(f"for each reservation : {PLAN}", advise),
    random_query,
)
