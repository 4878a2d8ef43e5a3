"""Exercises in acting by lines of text: short games of our own in which an instruction tells the way, step by step."""

from __future__ import annotations

from dataclasses import dataclass, field

from agentq.agent.actions import format_action
from agentq.agent.prompts import policy_messages
from agentq.base.exercises import TrainingExample
from agentq.base.reading.programs import conversation
from agentq.base.reading.words import Words
from agentq.envs.lexicon import words
from agentq.types import EnvAction, History, Language, Observation, Status, Verb

_WAYS = {"north": "south", "south": "north", "east": "west", "west": "east"}


@dataclass(slots=True)
class _Room:
    """What a room shows: its name, the ways out, what lies on its floor, and one container."""

    name: str
    ways: list[str]
    floor: list[str]
    box: str
    inside: list[str]
    state: str = "closed"  # locked, closed or open


@dataclass(slots=True)
class _Game:
    """A game in progress: the room, what is carried, the key of each locked container, and the way so far."""

    room: _Room
    carried: list[str]
    keys: dict[str, str]
    told: list[str] = field(default_factory=list)  # steps in words
    lines: list[str] = field(default_factory=list)  # the lines that do them
    pages: list[str] = field(default_factory=list)


def game(w: Words) -> TrainingExample:
    """Two to five steps through one or two rooms; each answer is one of the lines that the page lists."""
    names = list(dict.fromkeys(f"{w.word().lower()} {w.one(_THINGS)}" for _ in range(12)))
    g = _Game(_room(w, names), [names.pop()] if w.chance(0.4) else [], {})
    if w.chance(0.3):
        g.room.state, g.keys[g.room.box] = "locked", names.pop()
        (g.carried if w.chance(0.5) else g.room.floor).append(g.keys[g.room.box])
    g.pages.append(_page(g, _look(w, g.room)))
    for _ in range(2 + w.below(4)):
        _step(w, g, names)
    first, *then = g.told
    said = f"{w.one(_BEGIN)} {first}." + "".join(f" {w.one(_THEN)} {step}." for step in then)
    history = History(f"{said} {w.one(_END)}", Observation(g.pages[0]), (), (), Language.TEXT, True)
    for line, page in zip(g.lines[:-1], g.pages[1:-1], strict=True):
        history = history.then(_said(line), Observation(page))
    return conversation(policy_messages(history), _said(g.lines[-1]))


def _said(line: str) -> str:
    return format_action(EnvAction(Verb.SAY, text=line), status=Status.CONTINUE)


def _room(w: Words, names: list[str]) -> _Room:
    ways = w.shuffled([*_WAYS])[: 1 + w.below(2)]
    floor = [names.pop() for _ in range(w.below(3))]
    box = f"{w.word().lower()} {w.one(_BOXES)}"
    name = f"{w.word().lower()} {w.one(_ROOMS)}"
    return _Room(name, ways, floor, box, [names.pop()] if w.chance(0.7) else [], w.one(("closed", "open")))


def _look(w: Words, room: _Room) -> str:
    seen = f"You see {w.one(('a', 'the'))} {room.state} {room.box.split()[-1]}."
    if room.state == "open":
        seen += f" It contains a {room.inside[0]}." if room.inside else " It is empty!"
    ways = " ".join(w.one(_EXITS).format(way) for way in room.ways)
    floor = " ".join(f"There is a {thing} on the floor." for thing in room.floor)
    return "\n".join(filter(None, (f"-= {room.name.title()} =-", w.one(_ENTER).format(room.name), seen, ways, floor)))


def _page(g: _Game, said: str) -> str:
    return f"{said}\nYou can: {'; '.join(sorted(_possible(g)))}"


def _possible(g: _Game) -> list[str]:
    room, box = g.room, g.room.box
    found = ["inventory", "look", f"examine {box}", *(f"go {way}" for way in room.ways)]
    found += [line for thing in room.floor for line in (f"take {thing}", f"examine {thing}")]
    found += [line for thing in g.carried for line in (f"drop {thing}", f"examine {thing}")]
    if room.state == "open":
        found += [f"close {box}", *(f"take {thing} from {box}" for thing in room.inside)]
        found += [f"insert {thing} into {box}" for thing in g.carried]
    elif room.state == "closed":
        found.append(f"open {box}")
    elif g.keys[box] in g.carried:
        found.append(f"unlock {box} with {g.keys[box]}")
    return found


def _step(w: Words, g: _Game, names: list[str]) -> None:
    """One possible step that leads on, as the instruction tells it, and what the game then shows."""
    room, box = g.room, g.room.box
    key = g.keys.get(box, "")
    useful = [line for line in _possible(g) if line.split()[0] in _TOLD]
    if g.lines and g.lines[-1].startswith("go "):  # not straight back
        useful = [line for line in useful if line != f"go {_WAYS[g.lines[-1][3:]]}"] or useful
    line = next((line for line in useful if line == f"take {key}"), None) or w.one(useful)
    verb, thing = line.split()[0], line.partition(" ")[2].partition(" from ")[0].partition(" into ")[0]
    told = w.one(_TOLD[verb])
    if verb == "go":
        back = _WAYS[thing]
        g.room = _room(w, names) if len(names) > 4 else room
        g.room.ways = list(dict.fromkeys([*g.room.ways, back]))
        shown = _look(w, g.room)
    elif verb == "take" and " from " in line:
        room.inside.remove(thing)
        g.carried.append(thing)
        told, shown = w.one(_TOLD_FROM), f"You take the {thing} from the {box}."
    elif verb == "take":
        room.floor.remove(thing)
        g.carried.append(thing)
        shown = f"You pick up the {thing} from the ground."
    elif verb == "drop":
        g.carried.remove(thing)
        room.floor.append(thing)
        shown = f"You drop the {thing} on the ground."
    elif verb == "insert":
        g.carried.remove(thing)
        room.inside.append(thing)
        shown = f"You put the {thing} into the {box}."
    else:
        room.state = {"open": "open", "close": "closed", "unlock": "closed"}[verb]
        shown = f"You {verb} the {box}."
        if verb == "open" and room.inside:
            shown = f"You open the {box}, revealing a {room.inside[0]}."
    g.told.append(told.format(thing=thing, room=room.name, box=box, key=key))
    g.lines.append(line)
    g.pages.append(_page(g, shown))


_TOLD = {
    "go": ("go {thing}", "head {thing}", "travel {thing}", "take a trip {thing}", "try to venture {thing}"),
    "take": ("pick up the {thing} from the floor of the {room}", "take the {thing}", "lift the {thing} from the floor"),
    "open": ("open the {box}", "open the {box} in the {room}", "make sure that the {box} is open"),
    "close": ("close the {box}", "check that the {box} inside the {room} is closed", "shut the {box}"),
    "unlock": ("unlock the {box} with the {key}", "make sure that the {box} is unlocked with the {key}"),
    "insert": ("put the {thing} into the {box}", "place the {thing} inside the {box}"),
    "drop": ("drop the {thing}", "put the {thing} on the floor of the {room}"),
}
_TOLD_FROM = ("take the {thing} from the {box}", "retrieve the {thing} from the {box} in the {room}")
_BEGIN = ("First,", "First of all, you could", "Your first step is to", "To begin with,", "First stop, try to")
_THEN = ("Then,", "After that,", "Next,", "Once that is done,", "With that done,", "And then,", "Now")
_END = ("That's it!", "Then you are done.", "Once that's all handled, you can stop!", "Alright, thanks!")
_ENTER = ("You are in a {}.", "You've entered a {}.", "You find yourself in a {}.", "You arrive in a {}.")
_EXITS = (
    "There is an exit to the {}.",
    "You should try going {}.",
    "The way {} is unblocked.",
    "There is a door to the {}.",
)
_THINGS = words("key keycard lamp book plate apple insect fork pillow cd pen mug spoon hat box lid sock cup")
_BOXES = words("box chest locker safe drawer fridge cabinet suitcase toolbox")
_ROOMS = words("kitchen bedroom studio garage attic office cellar pantry library shower lounge vault")
