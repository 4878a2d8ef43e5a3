"""What a critic thinks before it picks: the page's fields or links in turn, up to the one that is due, with a verdict.

A verdict has to be written before the next one, so each is one comparison with the instruction. An agent's thought
names the due element at once, so the critic can be right where the agent is wrong.
"""

from __future__ import annotations

import re

from agentq.types import EnvAction

_ELEMENT = re.compile(r"^(\w+) (?:(.*?) )?\[(\d+)\](?:: (.*))?$", re.MULTILINE)
_FIELDS = ("textbox", "combobox", "checkbox", "radio", "switch")
_STATED = re.compile(r" (?:yes|no)\b")
LEAVING = ("Change", "Home", "Back")  # names of links that leave a page for an earlier one
_CHOSEN = re.compile(r"^heading (?:Your details|Choose a time)\ntext (?P<place>.+)\ntext (?P<when>.+)$", re.MULTILINE)
_PLACE = re.compile(r"^heading (?P<place>.+)\ntext .+\ncombobox Date ", re.MULTILINE)


def checked(page: str, due: EnvAction, thought: str) -> str:
    """The verdicts on `page` where `due` is right; `thought` if there is nothing to compare, or it has verdicts.

    "Date June 22 yes , Party 2 no , Party [3] 4"; "Blue Fox Diner no , Old Fox Diner yes , Old Fox Diner [5]". A field
    is right if it is as it should be, also if it should be empty.
    """
    found = [(role, name, int(element), value) for role, name, element, value in _ELEMENT.findall(page)]
    at = next((i for i, (_, _, element, _) in enumerate(found) if element == due.element), None)
    if at is None or _STATED.search(thought):
        return thought
    role, name, element, _ = found[at]
    upto = found[:at] if role in _FIELDS else found
    said = [_verdict(name, value, "yes") for each, name, _, value in upto if each in _FIELDS]
    if role in _FIELDS:
        said.append(_verdict(name, found[at][3], "no"))
    elif role == "link":
        before = [other for each, other, _, _ in found[:at] if each == "link"]
        said += [f"{other} no" for other in before] + [f"{name} yes"] * bool(before)
    text = [due.text] if due.text is not None else []
    return " , ".join([*said, " ".join(filter(None, [name, f"[{element}]", *text]))])


def leaves(page: str, due: EnvAction) -> bool:
    """Whether `due` leaves the page for an earlier one. The reason is not in its fields, which may all be right."""
    return any(element == str(due.element) and name in LEAVING for _, name, element, _ in _ELEMENT.findall(page))


def chosen(page: str, thought: str) -> list[str]:
    """Verdicts on what a page of `booking` says was chosen on earlier ones, as the expert's `thought` has it.

    "Blue Fox Diner Marina yes", "May 4 at 7:30 PM , party of 2 no".
    """
    found = _CHOSEN.search(page) or _PLACE.search(page)
    if found is None:
        return []
    if "go back to find" in thought:
        return [f"{found['place']} no"]
    when = found.groupdict().get("when")
    verdict = "no" if thought.startswith("change to") else "yes"
    return [f"{found['place']} yes", *([f"{when} {verdict}"] if when else [])]


def _verdict(name: str, value: str, verdict: str) -> str:
    return " ".join(filter(None, (name, value or "empty", verdict)))
