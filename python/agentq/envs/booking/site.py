"""The web application of `booking`: routes, validation, pages.

GET  /                     search box
GET  /find?q=&page=        results, four per page
GET  /place/N              a branch: date, time, party
GET  /place/N/times        the free times around the requested one
GET  /place/N/book         the guest's details
POST /place/N/book         complete, then see /done
GET  /done                 the last reservation
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from agentq.envs.booking.tasks import Reservation
from agentq.envs.booking.world import (
    PAGE_SIZE,
    PARTIES,
    SEATINGS,
    Place,
    free_times,
    is_free,
    place,
    places,
    search,
)
from agentq.envs.lexicon import DATES, TIMES
from agentq.envs.site import Request, Response, SiteSession, redirect, renderer

_render = renderer(Path(__file__).parent / "templates")
_PHONE = re.compile(r"\d{3}-\d{4}")
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")
_WHEN = ("date", "time", "party")
_TEXT_FIELDS = (("first", "First name"), ("last", "Last name"), ("phone", "Phone"), ("email", "Email"))


def new_session() -> SiteSession:
    """A visitor who has done nothing yet."""
    return {"reservations": ()}


class BookingSite:
    """See `agentq.envs.site.Site`."""

    def handle(self, request: Request, session: SiteSession) -> Response:
        """Answer one request."""
        match request.path.strip("/").split("/"):
            case [""]:
                return _page("home.html", session, {"query": ""})
            case ["find"]:
                return _results(request.params, session)
            case ["done"] if session["reservations"]:
                last = session["reservations"][-1]
                return _page("done.html", session, {"last": last, "spot": places()[last.place]})
            case ["place", number, *rest]:
                spot = place(number)
                return _missing(session) if spot is None else _branch(spot, rest, request, session)
            case _:
                return _missing(session)


def _page(template: str, session: SiteSession, values: Mapping[str, object], status: int = 200) -> Response:
    return Response(_render(template, num_reserved=len(session["reservations"]), **values), status)


def _missing(session: SiteSession) -> Response:
    return _page("error.html", session, {"heading": "Page not found", "problem": "There is no such page"}, 404)


def _bad(session: SiteSession, problem: str) -> Response:
    return _page("error.html", session, {"heading": "Bad request", "problem": problem}, 400)


def _results(params: Mapping[str, str], session: SiteSession) -> Response:
    query, number = " ".join(params.get("q", "").split()), params.get("page", "1")
    if not query:
        return _page("home.html", session, {"query": "", "problem": "Search is required"}, 422)
    found = search(query)
    last = max(1, -(-len(found) // PAGE_SIZE))
    if number not in (known := [str(i) for i in range(1, last + 1)]):
        return _bad(session, f"There are {last} pages")
    page = known.index(number) + 1
    shown = found[(page - 1) * PAGE_SIZE : page * PAGE_SIZE]
    return _page("results.html", session, {"query": query, "shown": shown, "page": page, "last": last})


def _branch(spot: Place, rest: list[str], request: Request, session: SiteSession) -> Response:
    date, time, party = (request.params.get(key, value) for key, value in zip(_WHEN, spot.defaults, strict=True))
    if date not in DATES or time not in TIMES or party not in PARTIES:
        return _bad(session, "Date , Time or Party is not valid")
    values: dict[str, object] = {"spot": spot, "date": date, "time": time, "party": party}
    match rest:
        case []:
            return _page("place.html", session, values | {"dates": DATES, "times": TIMES, "parties": PARTIES})
        case ["times"]:
            return _page("times.html", session, values | {"free": free_times(spot.number, date, time, party)})
        case ["book"] if not is_free(spot.number, date, time, party):
            return _bad(session, "This table is taken")
        case ["book"] if request.method == "POST":
            return _complete(spot, (date, time, party), request.params, session)
        case ["book"]:
            return _details(spot, (date, time, party), {}, (), session)
        case _:
            return _missing(session)


def _details(
    spot: Place, when: tuple[str, str, str], given: Mapping[str, str], problems: tuple[str, ...], session: SiteSession
) -> Response:
    """The form for the guest's details; it keeps the values given so far."""
    values = {"spot": spot, **dict(zip(_WHEN, when, strict=True)), "given": given, "problems": problems}
    fixed = {"fields": _TEXT_FIELDS, "seatings": SEATINGS}
    return _page("book.html", session, values | fixed, 422 if problems else 200)


def _complete(spot: Place, when: tuple[str, str, str], params: Mapping[str, str], session: SiteSession) -> Response:
    given = {key: " ".join(value.split()) for key, value in params.items()}
    problems = _problems(spot, given)
    if problems:
        return _details(spot, when, given, problems, session)
    first, last, phone, email = (given[key] for key, _ in _TEXT_FIELDS)
    seating = given["seating"] if spot.asks_seating else ""
    made = Reservation(spot.number, *when, first, last, phone, email, seating)
    session["reservations"] = (*session["reservations"], made)
    return redirect("/done")


def _problems(spot: Place, given: Mapping[str, str]) -> tuple[str, ...]:
    """One line for each field that is missing or not valid."""
    lines = [f"{label} is required" for key, label in _TEXT_FIELDS if not given.get(key)]
    if given.get("phone") and not _PHONE.fullmatch(given["phone"]):
        lines.append("Phone is not valid")
    if given.get("email") and not _EMAIL.fullmatch(given["email"]):
        lines.append("Email is not valid")
    if spot.asks_seating and given.get("seating") not in SEATINGS:
        lines.append("Seating is required")
    if not given.get("agree"):
        lines.append("I agree is required")
    return tuple(lines)
