"""A whole page as a person sees it: lines with their depth, of which an observation shows what fits its budget."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

from agentq.envs.browser.budget import head, shortened, tokens
from agentq.envs.tab import View

_SHOWN_CHOICES = 1500  # characters of a control's state and options


class Line(NamedTuple):
    """`at`: -1 above the window, 0 in it, 1 below. `first`: part of a dialog, a menu or a message.

    `unread`: of a line that stands for others, which are too far from the window to be read, how many they are.
    """

    depth: int
    text: str
    at: int = 0
    first: bool = False
    unread: int = 0

    @property
    def stands_for(self) -> int:
        """How many lines of the page this is."""
        return self.unread or 1

    def __str__(self) -> str:
        return " " * self.depth + self.text


@dataclass(frozen=True, slots=True)
class WholeView(View):
    """`lines`: the whole page. `notes`: tabs, and a dialog that waits for an answer.

    `offers`: ids of the fields that take text and offer options for it.
    """

    lines: tuple[Line, ...] = ()
    notes: tuple[str, ...] = ()
    offers: frozenset[int] = frozenset()

    def text(self) -> str:
        """All lines that were read, without a budget."""
        return "\n".join([*self.notes, *(str(line) for line in self.lines if not line.unread)])

    def within(self, max_tokens: int, before: View | None) -> tuple[str, int]:
        """The lines that fit `max_tokens`, in the order of the page, and how many were left out.

        Lines are chosen in this order: what a person looks at first and what is new since `before`, the window, what is
        below it, what is above. A line where others are left out says how many; the last line says what lies outside
        the window. A line too long for the room that is left gets half of it.
        """
        room = max_tokens - sum(map(tokens, self.notes)) - 20
        chosen: dict[int, Line] = {}
        order = [*dict.fromkeys(chain.from_iterable(self._groups(before)))]
        for i in order:
            text, used = shortened(self.lines[i].text, room, last=i == order[-1])
            room -= used + 1
            if room < 0:
                break
            chosen[i] = self.lines[i]._replace(text=text)
        left = sum(line.stands_for for line in self.lines) - len(chosen)
        if not chosen and self.lines:
            only = next((line for line in self.lines if line.at == 0 and not line.unread), self.lines[0])
            return "\n".join([*self.notes, head(str(only), max_tokens), self._outside(1)]), left - 1
        shown = [*self.notes, *self._with_gaps(chosen)]
        return "\n".join([*shown, self._outside(left)] if left or self._around() != (0, 0) else shown), left

    def _groups(self, before: View | None) -> Iterable[list[int]]:
        fresh, read = self._fresh(before), [(i, line) for i, line in enumerate(self.lines) if not line.unread]
        yield [i for i, line in read if line.first or i in fresh]
        yield [i for i, line in read if line.at == 0]
        yield [i for i, line in read if line.at == 1]
        yield [i for i, line in reversed(read) if line.at == -1]

    def _fresh(self, before: View | None) -> set[int]:
        """Lines that were not on the page before; none if most of it is another page."""
        if not isinstance(before, WholeView):
            return set()
        known = {line.text for line in before.lines}
        fresh = {i for i, line in enumerate(self.lines) if line.text not in known}
        return fresh if 2 * len(fresh) <= len(self.lines) else set()

    def _with_gaps(self, chosen: Mapping[int, Line]) -> Iterable[str]:
        gap = 0
        for i, line in enumerate(self.lines):
            if i not in chosen:
                gap += line.stands_for
                continue
            if gap:
                yield f"... {gap} lines left out"
            gap = 0
            yield str(chosen[i])
        if gap:
            yield f"... {gap} lines left out"

    def _around(self) -> tuple[int, int]:
        above = sum(line.stands_for for line in self.lines if line.at == -1)
        return above, sum(line.stands_for for line in self.lines if line.at == 1)

    def _outside(self, left: int) -> str:
        above, below = self._around()
        return f"window: {above} lines above, {below} below, {left} left out"


def control_text(number: int, seen: dict[str, Any], *, begins: bool = True) -> str:
    """One control on its line: role, name, number, value; state, format and options in parentheses.

    The role of a cell is left out, as its row shows it, unless the control begins the line.
    """
    role = "" if not begins and seen["name"] and seen["role"] in ("cell", "gridcell") else seen["role"]
    text = " ".join(word for word in (role, seen["name"], f"[{number}]") if word)
    if seen["live"]:
        text += f": {'*' * 8 if seen['secret'] else ' '.join(seen['live'].split())}"
    said = ", ".join(seen["said"])
    if len(said) > _SHOWN_CHOICES:
        said = f"{said[:_SHOWN_CHOICES]}… {len(said) - _SHOWN_CHOICES} more characters"
    return f"{text} ({said})" if said else text
