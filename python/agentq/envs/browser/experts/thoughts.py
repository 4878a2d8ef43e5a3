"""What an expert thinks before it acts: the way to the element, in steps that each need one look.

The exercises of the reading base (`agentq.base.reading.places`) think alike.
"""

from __future__ import annotations

from calendar import month_name
from collections.abc import Callable, Sequence


def beside(role: str, element: int, label: str, value: str) -> str:
    """A field without a name: its id, the label beside it, the value."""
    return f"{role} [{element}] {label} , {value}"


def walk(name: str, controls: list[tuple[str, int]], to: int) -> str:
    """One of several controls alike: the entry's name, its controls in order up to the one with id `to`.

    An entry that is a control itself is the first of its controls, with the same name.
    """
    said = list[str]()
    for control, element in controls:
        said.append(f"{control} [{element}]")
        if element == to:
            break
    return " , ".join(said if controls and controls[0][0] == name else [name, *said])


def counted(role: str, ids: list[int]) -> str:
    """The last of these controls of a role: all of them, numbered."""
    return " , ".join(f"{n} {role} [{i}]" for n, i in enumerate(ids, 1))


def pressed(button: str, ids: list[int], due: str) -> str:
    """A button that is pressed several times: those that have been, numbered, and what is due."""
    return f"{counted(button, ids)} , {due}" if ids else due


def numbered(words: list[str]) -> str:
    """The last of these words: all of them, each behind its number."""
    return " ".join(f"{n} {word}" for n, word in enumerate(words, 1))


def in_month(wanted: int, shown: int) -> str:
    """A month beside the one that is shown, both from 1 to 12."""
    return f"{wanted:02d} is {month_name[wanted]} , here is {month_name[shown]} {shown:02d}"


def best(values: list[tuple[int, str]], numbers: Sequence[int], better: Callable[[int, int], int]) -> tuple[str, int]:
    """An extreme: each value behind its id, from the second on with a verdict on it beside the best so far.

    Returns the thought and the id of the best. `numbers` are what is compared; `better` is min or max.
    """
    (chosen, first), *others = values
    top, said = numbers[0], [f"[{chosen}] {first}"]
    for (element, value), n in zip(others, numbers[1:], strict=True):
        won = n != top and better(n, top) == n
        said.append(f"[{element}] {value} {'yes' if won else 'no'}")
        top, chosen = (n, element) if won else (top, chosen)
    return " , ".join(said), chosen
