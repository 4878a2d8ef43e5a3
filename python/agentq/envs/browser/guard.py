"""What a live run may do without asking: its rules, the steps that the user has refused, and counts.

The gate of each session (gate.py) holds the requests of pages, whatever the pressed element is called. Names only add
caution: if the pressed element is named like something irreversible, a GET waits for a yes too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from agentq.agent.commands import KEYS
from agentq.envs.browser.gate import COUNTS
from agentq.envs.browser.outgoing import OutgoingRequest, visible
from agentq.envs.browser.whole import WholeView
from agentq.envs.page import Control
from agentq.envs.tab import View
from agentq.types import Command, EnvAction

_FIELDS = ("textbox", "searchbox", "spinbutton", "combobox", "listbox", "checkbox", "radio", "slider", "switch", "file")
_HARMLESS = frozenset(KEYS) - {"Enter", "Space"}  # they move, or edit a field
_WORDS = re.compile(
    r"\b(buy|purchase|pay|place (the |my |your )?order|checkout|delete|remove|erase|destroy|cancel|revoke|terminate"
    r"|donate|transfer|withdraw|unsubscribe|confirm|approve|publish|deactivate|close account)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class FinalStep:
    """A step that waits for the user: the page, the command and its element, the values of fields, the request.

    `towards`: it is a step on the way, such as a login, and not what the user asked for.
    Two steps are equal if their pages are and their requests have the same method and address.
    """

    url: str
    action: EnvAction
    element: str
    values: tuple[tuple[str, str], ...]
    sends: OutgoingRequest
    towards: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        return f"{visible(f'{self.action} {self.element}')} , which sends {self.sends}"

    def lines(self) -> list[str]:
        """What a person should know, with the request last and without terminal control characters."""
        fields = [f"  {visible(name)}: {visible(value)}" for name, value in self.values]
        way = ["  a step on the way, not the end"] if self.towards else []
        return [f"  {self}", *way, f"  on {visible(self.url)}", *fields, "what is sent:", *self.sends.lines()]


Allows = Callable[[FinalStep], bool]


@dataclass
class Guard:
    """The user's side of a live run. `allow`, `block`: rules as given to the options, parsed by each session.

    `counts`: by gate.COUNTS; `tried`: requests kept back, as rules; `sent`: steps that the user has allowed.
    """

    allow: Sequence[str] = ()
    block: Sequence[str] = ()
    refused: set[FinalStep] = field(default_factory=set)
    sent: list[FinalStep] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(COUNTS, 0)))
    tried: Counter[str] = field(default_factory=Counter)
    asks: Allows | None = None  # while a step is carried out
    _lock: Lock = field(default_factory=Lock, repr=False)

    @property
    def rules(self) -> dict[str, list[str]]:
        """The rules in the form for a worker."""
        return {"allow": list(self.allow), "block": list(self.block)}

    @contextmanager
    def lifted(self, asks: Allows) -> Iterator[None]:
        """Inside the block, each request is asked about."""
        self.asks = asks
        try:
            yield
        finally:
            self.asks = None

    def answer(self, step: FinalStep) -> bool:
        """The user's answer to one request."""
        assert self.asks is not None
        if yes := self.asks(step):
            self.sent.append(step)
        return yes

    def hear(self, told: dict[str, Any]) -> None:
        """Add the counts that a session reports."""
        with self._lock:
            self.counts.update(told["counts"])
            for rule, count in told["tried"]:
                self.tried[rule] += count

    def wary(self, view: View, action: EnvAction) -> bool:
        """Whether the element that the action presses is named like something irreversible."""
        if action.command is Command.DIALOG and isinstance(view, WholeView):
            return any(_WORDS.search(note) for note in view.notes)
        return any(_WORDS.search(control.name) for control in _pressed(view, action))


def final_step(view: View, action: EnvAction, sends: OutgoingRequest) -> FinalStep:
    """What `action` would do on the page."""
    named = view.page.control(action.element or 0)
    values = tuple(
        (control.name or control.field, value)
        for control, value in zip(view.page.controls, view.values, strict=True)
        if control.role in _FIELDS and value
    )
    return FinalStep(view.url, action, f"{named.role} {named.name}".strip() if named else "", values, sends)


def _pressed(view: View, action: EnvAction) -> list[Control]:
    """What an action may press: its element, the buttons of a submitted form, or by keys or at a place anything."""
    control = view.page.control(action.element or 0)
    match action.command:
        case Command.CLICK_AT:
            return list(view.page.controls)
        case Command.CLICK | Command.DRAG if control is not None:
            return [control]
        case Command.SUBMIT if control is not None:
            own = (each for each in view.page.controls if each.submits and each.form == control.form)
            return [control, *own]
        case Command.PRESS if (action.text or "").split()[0] not in _HARMLESS:
            return list(view.page.controls)
        case Command.TYPE | Command.UPLOAD | Command.SELECT if control is not None and isinstance(view, WholeView):
            return [control]
    return []
