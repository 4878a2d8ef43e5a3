"""What a policy proposes instead of the step that is due, for exercises of ranking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from agentq.agent.actions import parse_action
from agentq.base.demonstrations import Demonstration
from agentq.base.orders import page_elements
from agentq.base.reading.checking import LEAVING, leaves
from agentq.base.reading.seeing import asked_elsewhere
from agentq.base.reading.words import Words
from agentq.types import Command, EnvAction

Values = Mapping[str, Sequence[str]]  # what the expert enters or selects, by the field
_EARLY = ("Find table", "Buy now", "Complete", "Find")


def likely_instead(d: Demonstration, values: Values, field: str, w: Words) -> list[EnvAction]:
    """Wrong values of the `field` that is due, earlier actions once more, clicks that come too early or leave the page.

    If the page should be left, entries for its fields, too: else a click that leaves would be right whenever offered.
    """
    found, names = [], [name for _, _, name in page_elements(d.history.observation.text)]
    if d.history.actions and (last := parse_action(d.history.actions[-1]).env_action) is not None:
        found += [last] * (last.text is not None)
    if d.action.text is not None:
        texts = asked_elsewhere(d.action.text, d.history.instruction)
        texts += [*(w.one(values[field]) for _ in range(4)), w.name(), f"{d.action.text} {w.name()}"]
        texts += miscopied(d.action.text, w) * (d.action.command is Command.TYPE)
        found += [replace(d.action, text=text) for text in texts]
        found += [EnvAction(Command.CLICK, i + 1) for i, name in enumerate(names) if name in (*_EARLY, *LEAVING)]
    elif leaves(d.history.observation.text, d.action):
        found += _filled(d, values, w)
    else:
        found += _clicked(d)
    return found


def miscopied(text: str, w: Words) -> list[str]:
    """Several words with one left out, with one twice, and with one in the place of the next."""
    words = text.split()
    if len(words) < 2:
        return []
    out, at = w.below(len(words)), 1 + w.below(len(words) - 1)
    kept, again = words[:at], words[at - 1 : at]
    made = (words[:out] + words[out + 1 :], kept + again + words[at:], kept + again + words[at + 1 :])
    return [" ".join(each) for each in made]


def _clicked(d: Demonstration) -> list[EnvAction]:
    """The clicks of the episode so far that the page would take, too: mostly on what was opened before."""
    here = {element for _, element, _ in page_elements(d.history.observation.text)}
    done = [parse_action(text).env_action for text in d.history.actions]
    return [a for a in done if a is not None and a.command is Command.CLICK and a.element in here]


def _filled(d: Demonstration, values: Values, w: Words) -> list[EnvAction]:
    """An entry for each field of a page, with the instruction's value if it has a usual one."""
    found = list[EnvAction]()
    for role, element, name in page_elements(d.history.observation.text):
        if role in ("textbox", "combobox") and (usual := values.get(name)):
            told = [value for value in usual if value in d.history.instruction]
            command = Command.TYPE if role == "textbox" else Command.SELECT
            found.append(EnvAction(command, element, w.one(told or usual)))
    return found
