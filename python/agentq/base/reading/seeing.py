"""What an agent can know of a page, where the sites' experts know more or think less.

An expert of `shop` knows a product's colors before it has seen its page. An expert of `booking` names the right one of
several names that share words, or the field whose value is wrong, without comparing them, which a model of this size
does not do in one step.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import takewhile

from agentq.base.demonstrations import name_of
from agentq.base.orders import page_elements
from agentq.base.reading.checking import checked
from agentq.envs.booking.expert import told_reserved
from agentq.envs.web_env import Advice
from agentq.types import Command, EnvAction, History, Observation, Status

_BOXES = re.compile(r"^(?:combobox .*\[\d+\](?:: (.*))?|textbox.*)$", re.MULTILINE)  # "" if a box has no value
_KNOWN_AHEAD = re.compile(r"\[(\d+)\] (\d+) color no")
_NAMED = re.compile(r"(?:(?:(?P<first>.+) is taken , )?take )?(?P<name>.+?)(?P<gone> is not here , \w+)? \[\d+\]")
_TURN = re.compile(
    r"(?P<where>(?:First|Second|Third) : (?P<name>.+?) in .+?) for (?P<party>\d+) on (?P<date>.+?) at (?P<first>.+?) "
    r"or else (?P<second>\S+ [AP]M)(?: \. Seating (?P<seating>\w+))?"
)
_ASKED = ("name", "party", "date", "first", "second", "seating")


def seen(advice: Advice, history: History, opened: set[str]) -> Advice:
    """The advice of someone who knows the page and what was `opened`.

    Names that share words are compared, fields that hold a value from the start are looked at, and of several
    reservations the one that is due is repeated.
    """
    page = history.observation
    advice = _verified(_compared(_looked(advice, page, opened), page), page)
    return advice._replace(thought=in_turn(advice.thought, history))


def _looked(advice: Advice, page: Observation, opened: set[str]) -> Advice:
    """The advice; if it passes over a product for colors that nobody has seen yet, a click on that product."""
    for found in _KNOWN_AHEAD.finditer(advice.thought):
        click = EnvAction(Command.CLICK, int(found[1]))
        if name_of(page, click) not in opened:
            thought = f"{advice.thought[: found.start()]}[{found[1]}] {found[2]} yes"
            return Advice(click, thought, "open product", Status.CONTINUE)
    return advice


def _compared(advice: Advice, page: Observation) -> Advice:
    """A thought that names one of several links, or says that it is not there, begins with a verdict on each alike.

    Alike are links that share a word: branches of a name, times. The times are compared with the first choice alone.
    """
    named = _NAMED.fullmatch(advice.thought)
    if named is None or advice.env_action.command is not Command.CLICK:
        return advice
    wanted = named["first"] or named["name"]
    links = {name: element for role, element, name in page_elements(page.text) if role == "link"}
    alike = {name: element for name, element in links.items() if {*name.split()} & {*wanted.split()}}
    if len(alike) < 2 or (wanted not in links) is not bool(named["first"] or named["gone"]):
        return advice
    rest = [advice.thought] if wanted not in links else []
    return advice._replace(thought=" , ".join([*compared(alike, wanted), *rest]))


def _verified(advice: Advice, page: Observation) -> Advice:
    """If all fields are comboboxes with a value, a thought begins with a verdict on each, up to the one that is due."""
    action, boxes = advice.env_action, _BOXES.findall(page.text)
    pressed = any(role == "button" and i == action.element for role, i, _ in page_elements(page.text))
    if not boxes or "" in boxes or not (action.command is Command.SELECT or pressed):
        return advice
    return advice._replace(thought=checked(page.text, action, advice.thought))


def in_turn(thought: str, history: History) -> str:
    """If several reservations are asked for, a thought on one of them begins with the one that is due after those made.

    Without this key in front, what is due would have to be looked up in one step.
    """
    made = told_reserved(name for role, _, name in page_elements(history.observation.text) if role == "link")
    for due in [*_TURN.finditer(history.instruction)][made : made + 1]:
        named = due["name"] in thought
        if named or "Seating [" in thought or any(due[of] in thought for of in ("date", "first", "second")):
            return f"{due['where'] if named else due[0]} , {thought}"
    return thought


def asks_several(instruction: str) -> bool:
    """Whether an instruction asks for several reservations."""
    return bool(_TURN.search(instruction))


def asked_elsewhere(text: str, instruction: str) -> list[str]:
    """What the other reservations of an instruction have where one has `text`."""
    turns = [*_TURN.finditer(instruction)]
    values = [turn[of] for of in _ASKED if text in [turn[of] for turn in turns] for turn in turns]
    return [value for value in values if value and value != text]


def compared(ids: Mapping[str, int], wanted: str) -> list[str]:
    """A verdict on each name up to the wanted one: "Blue [3] no , Old Fox Diner [5] yes".

    A name is copied as far as it is the wanted one, and one word more, so that each verdict is about the last word.
    """
    said = list[str]()
    for name, element in ids.items():
        if name == wanted:
            return [*said, f"{name} [{element}] yes"]
        words = name.split()
        same = takewhile(lambda pair: pair[0] == pair[1], zip(words, wanted.split(), strict=False))
        said.append(f"{' '.join(words[: len([*same]) + 1])} [{element}] no")
    return said
