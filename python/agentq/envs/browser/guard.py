"""What a live run may do unasked: the rules it was given, the steps the user has refused, what was counted.

What a page sends is held as a request, by the gate of each session (gate.py), whatever it was called. Names only add:
where what is pressed is called like something that may not be undone, a GET of it waits for a yes, too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from agentq.envs.browser.gate import COUNTS
from agentq.envs.browser.outgoing import OutgoingRequest, visible
from agentq.envs.page import Control
from agentq.envs.tab import View
from agentq.types import Command, EnvAction

_FIELDS = ("textbox", "combobox", "checkbox", "radio", "slider", "switch")
_WORDS = re.compile(
    r"\b(buy|purchase|pay|place (the |my |your )?order|checkout|delete|remove|erase|destroy|cancel|revoke|terminate"
    r"|donate|transfer|withdraw|unsubscribe|confirm|approve|publish|deactivate|close account)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class FinalStep:
    """A step that waits for the user: where, the command and what it names, what the page's fields hold, what is sent.

    The step that was held is the same as a later one on an equal page whose request has the same method and address.
    """

    url: str
    action: EnvAction
    element: str
    values: tuple[tuple[str, str], ...]
    sends: OutgoingRequest

    def __str__(self) -> str:
        return f"{visible(f'{self.action} {self.element}')} , which sends {self.sends}"

    def lines(self) -> list[str]:
        """All that a person should know, with the request last; nothing in it that a terminal obeys."""
        fields = [f"  {visible(name)}: {visible(value)}" for name, value in self.values]
        return [f"  {self}", f"  on {visible(self.url)}", *fields, "what is sent:", *self.sends.lines()]


Allows = Callable[[FinalStep], bool]


@dataclass
class Guard:
    """The user's side of a live run. `allow`, `block`: rules as their options have them, read by each session.

    `counts` has gate.COUNTS; `tried` the requests that were kept back, as rules; `sent` the steps the user has allowed.
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
        """As a worker is told them."""
        return {"allow": list(self.allow), "block": list(self.block)}

    @contextmanager
    def lifted(self, asks: Allows) -> Iterator[None]:
        """Of what is sent within, each request is asked about."""
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
        """Add up what a session tells."""
        with self._lock:
            self.counts.update(told["counts"])
            self.tried.update(told["tried"])

    def wary(self, view: View, action: EnvAction) -> bool:
        """Whether what the action presses is named like something that may not be undone."""
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
    """What an action may press: the element; of a form that is submitted, its buttons; by the keyboard, anything."""
    control = view.page.control(action.element or 0)
    match action.command:
        case Command.CLICK | Command.DRAG if control is not None:
            return [control]
        case Command.SUBMIT if control is not None:
            own = (each for each in view.page.controls if each.submits and each.form == control.form)
            return [control, *own]
        case Command.PRESS if (action.text or "").split()[0] in ("Enter", "Space"):
            return list(view.page.controls)
    return []
