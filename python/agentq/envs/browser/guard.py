"""Which steps may not be undone, and what the user allows of them. A step is held before anything of it is sent.

A step looks final if what it presses is named like it (buy, pay, book, send, delete ...), or if it makes the page send
a document's form by other than GET. Links that lead to an address are followed: a GET changes nothing (RFC 9110).
What a page's scripts send by themselves, behind a button of another name, is not seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from agentq.envs.page import Control
from agentq.envs.tab import View
from agentq.types import Command, EnvAction

_PRESSED = ("button", "link", "clickable", "menuitem")
_FIELDS = ("textbox", "combobox", "checkbox", "radio", "slider", "switch")
_WORDS = re.compile(
    r"\b(buy|purchase|pay|order|checkout|book|reserve|confirm|complete|submit|send|post|publish|delete|donate|transfer"
    r"|withdraw|subscribe|unsubscribe|register|sign up|apply|bid|vote|accept|agree)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class FinalStep:
    """What a held step would do: where, the command and what it names, what the page's fields hold, what is sent.

    `sends` is the method and address of the request that was held, empty where the name alone tells.
    """

    url: str
    action: EnvAction
    element: str
    values: tuple[tuple[str, str], ...]
    sends: str = ""

    def __str__(self) -> str:
        sends = f" , which sends {self.sends}" if self.sends else ""
        return f"{self.action} {self.element}{sends}".replace("\n", " ")


class Guard:
    """What one run may do: nothing that looks final, but the steps it was `lifted` for."""

    def __init__(self) -> None:
        self.refused: set[FinalStep] = set()
        self.up = True

    @contextmanager
    def lifted(self) -> Iterator[None]:
        """The user has allowed what is done within."""
        self.up = False
        try:
            yield
        finally:
            self.up = True

    def named(self, view: View, action: EnvAction) -> FinalStep | None:
        """The step, if it looks final by what the page calls what it presses."""
        pressed = any(control.role in _PRESSED and _WORDS.search(control.name) for control in _pressed(view, action))
        return final_step(view, action) if pressed and self.up else None


def final_step(view: View, action: EnvAction, sends: str = "") -> FinalStep:
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
    controls = [each for each in view.page.controls if not _leads(each)]
    match action.command:
        case Command.CLICK if control is not None and control in controls:
            return [control]
        case Command.SUBMIT if control is not None:
            return [each for each in controls if each is control or (each.submits and each.form == control.form)]
        case Command.PRESS if (action.text or "").split()[0] in ("Enter", "Space"):
            return controls
    return []


def _leads(control: Control) -> bool:
    """Whether it is a link to an address."""
    return control.role == "link" and re.match("#|javascript:|$", control.href, re.IGNORECASE) is None
