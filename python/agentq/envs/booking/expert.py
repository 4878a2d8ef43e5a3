"""The scripted expert of `booking`. It knows the next step from any page and has no state between steps."""

from __future__ import annotations

import re
from collections.abc import Iterable

from agentq.envs.booking.tasks import Facts, facts
from agentq.envs.booking.world import PAGE_SIZE, search
from agentq.envs.tab import View
from agentq.envs.web_env import Advice, SiteExpert, click, fill, find
from agentq.types import Command, EnvAction, Status, Task

_RESERVED = re.compile(r"Your (?:(\d+) )?reservations?")

PLAN = "find the restaurant , set date time party , pick a time , fill details , complete"


def advise(task: Task, view: View) -> Advice:
    """The next step for `task` from what the tab shows."""
    if num_reserved(view):
        return Advice(EnvAction(Command.STOP), "reservation complete", "stop", Status.DONE)
    return toward(facts(task.seed), view)


def num_reserved(view: View) -> int:
    """How many reservations the visitor has made, as each page says."""
    return told_reserved(control.name for control in view.page.controls if control.role == "link")


def told_reserved(links: Iterable[str]) -> int:
    """The same from the names of a page's links."""
    return next((int(said[1] or 1) for name in links if (said := _RESERVED.fullmatch(name))), 0)


def toward(want: Facts, view: View) -> Advice:
    """The next step toward one reservation."""
    lines = view.page.lines
    heading = str(lines[0]).removeprefix("heading ") if lines else ""
    if find(view, "button", "Find"):
        return _search(want, view)
    if heading == want.place.title:
        return _set_fields(want, view)
    if heading in ("Choose a time", "Your details") and str(lines[1]) == f"text {want.place.title}":
        return _pick_time(want, view) if heading == "Choose a time" else _fill_details(want, view)
    return click(view, "link", "Home", f"go back to find {want.place.name}", "go home")


def _search(want: Facts, view: View) -> Advice:
    """On the home page or on results: the right query, then the page that holds the branch, then its link."""
    name, title = want.place.name, want.place.title
    typed = fill(view, Command.TYPE, "textbox", "Search", name)
    if typed is not None:
        return typed._replace(explanation="search name")
    if find(view, "link", title):
        return click(view, "link", title, title, "open restaurant")
    here, there = _results_page(view), search(name).index(want.place) // PAGE_SIZE + 1
    if here and f"q={name.replace(' ', '+')}&" in f"{view.url.partition('?')[2]}&":
        turn = "Next" if here < there else "Previous"
        return click(view, "link", turn, f"{title} is not here", f"{turn.lower()} page")
    return click(view, "button", "Find", f"find {name}", "run search")


def _results_page(view: View) -> int:
    """The number of the results page shown; 0 elsewhere."""
    words = str(view.page.lines[0]).split()
    return int(words[3]) if words[:3] == ["heading", "Results", "page"] else 0


def _set_fields(want: Facts, view: View) -> Advice:
    slots = (("Date", want.date), ("Time", want.first_choice), ("Party", want.party))
    for label, value in slots:
        step = fill(view, Command.SELECT, "combobox", label, value)
        if step is not None:
            return step
    return click(view, "button", "Find table", f"find table at {want.first_choice}", "find table")


def _pick_time(want: Facts, view: View) -> Advice:
    """The first choice if it is shown; the second only if the first would have been shown."""
    first, second = want.first_choice, want.second_choice
    if str(view.page.lines[2]) == f"text {want.date} , party of {want.party}":
        if find(view, "link", first):
            return click(view, "link", first, f"take {first}", "pick time")
        if find(view, "link", second) and f"time={first.replace(':', '%3A').replace(' ', '+')}&" in view.url:
            return click(view, "link", second, f"{first} is taken , take {second}", "pick time")
    return _change(want, view)


def _change(want: Facts, view: View) -> Advice:
    return click(view, "link", "Change", f"change to {want.date} at {want.first_choice}", "change")


def _fill_details(want: Facts, view: View) -> Advice:
    if str(view.page.lines[2]) != f"text {want.date} at {want.time} , party of {want.party}":
        return _change(want, view)
    fields = (
        ("First name", want.first_name),
        ("Last name", want.last_name),
        ("Phone", want.phone),
        ("Email", want.email),
    )
    for label, value in fields:
        step = fill(view, Command.TYPE, "textbox", label, value)
        if step is not None:
            return step
    seating = fill(view, Command.SELECT, "combobox", "Seating", want.seating)
    if seating is not None:
        return seating
    agree = find(view, "checkbox", "I agree")
    if not view.values[agree - 1]:
        return Advice(EnvAction(Command.CLICK, agree), f"check I agree [{agree}]", "agree", Status.CONTINUE)
    return click(view, "button", "Complete", f"complete for {want.guest}", "complete")


EXPERT = SiteExpert(PLAN, advise)
