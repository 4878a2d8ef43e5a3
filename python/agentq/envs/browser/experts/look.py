"""What an expert of a MiniWoB++ page sees, and the steps it can take. Independent of single pages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import takewhile

from agentq.envs.browser.experts.thoughts import beside
from agentq.envs.tab import VIEWPORT_LINES, View
from agentq.envs.web_env import Advice
from agentq.types import Command, EnvAction, Status

ORDINALS = {"1st": 0, "2nd": 1, "3rd": 2, **{f"{n}th": n - 1 for n in range(4, 21)}}


@dataclass(frozen=True, slots=True)
class Look:
    """The instruction, what the tab shows, and the actions since reset, which some pages do not show."""

    said: str
    view: View
    done: tuple[EnvAction, ...]

    @property
    def quoted(self) -> list[str]:
        """The text that the instruction has in quotation marks."""
        return re.findall('"([^"]*)"', self.said)

    @property
    def lines(self) -> tuple[str | int, ...]:
        """The page in the observation, in reading order: texts with their role, and ids."""
        return self.view.page.lines[self.view.scroll : self.view.scroll + VIEWPORT_LINES]

    def words(self, pattern: str) -> tuple[str, ...]:
        """The groups of `pattern` in the instruction; empty if it is not found."""
        found = re.search(pattern, self.said)
        return found.groups() if found else ()

    def nth(self) -> int:
        """The ordinal in the instruction, from 0."""
        return ORDINALS[self.words(r"\b(\d+(?:st|nd|rd|th))\b")[0]]

    def all(self, role: str = "", name: str | None = None) -> list[int]:
        """The ids of shown controls with this role and name, in reading order."""
        return [e for e in self._shown() if role in ("", self.role(e)) and name in (None, self.name(e))]

    def find(self, name: str, role: str = "") -> int:
        """The first of `all`; 0 if there is none."""
        return next(iter(self.all(role, name)), 0)

    def label(self, element: int) -> str:
        """The text above an element, or below it if there is none above."""
        at = self.lines.index(element)
        near = [line for line in (*self.lines[:at][-1:], *self.lines[at + 1 : at + 2]) if isinstance(line, str)]
        return self.line(near[0]) if near else ""

    def group(self, text: str) -> list[tuple[str, int]]:
        """The names and ids of the controls from the first line with the word or beginning `text` to the next text."""
        lines = iter(self.lines)
        for line in lines:
            said = self.line(line)
            if said.startswith(text) or text in said.split():
                own = [(text.strip(), line)] if isinstance(line, int) else []
                return own + self._controls(lines)
        return []

    def _controls(self, lines: Iterator[str | int]) -> list[tuple[str, int]]:
        """The next controls of these lines, up to a text."""
        found = list[tuple[str, int]]()
        for line in lines:
            if isinstance(line, int):
                found.append((self.name(line), line))
            elif found:
                break
        return found

    def after(self, text: str, name: str = "") -> int:
        """The first control below the first line that begins with `text`, with a given name if any; else 0."""
        lines = iter(self.lines)
        for line in lines:
            if self.line(line).startswith(text):
                return next((e for e in lines if isinstance(e, int) and name in ("", self.name(e))), 0)
        return 0

    def below(self, text: str, name: str) -> int:
        """The first control with this name below the first line that has the word `text`; 0 if there is none."""
        lines = iter(self.lines)
        found = any(text in self.line(line).split() for line in lines)
        return next((e for e in lines if isinstance(e, int) and self.name(e) == name), 0) if found else 0

    def line(self, line: str | int) -> str:
        """A line's words without role and value."""
        return self.name(line) if isinstance(line, int) else line.partition(" ")[2]

    def role(self, element: int) -> str:
        return self.view.page.controls[element - 1].role

    def name(self, element: int) -> str:
        return self.view.page.controls[element - 1].name

    def value(self, element: int) -> str:
        return self.view.values[element - 1]

    def did(self, command: Command, element: int | None = None) -> bool:
        """Whether this was done since reset, on a given element if any."""
        return any(a.command is command and element in (None, a.element) for a in self.done)

    def count(self, command: Command) -> int:
        """How often this was done since reset."""
        return sum(a.command is command for a in self.done)

    def _shown(self) -> Iterator[int]:
        return (line for line in self.lines if isinstance(line, int))

    # Steps

    def act(self, command: Command, element: int, why: str, text: str | None = None) -> Advice:
        """An action on an element, whose name and id are the thought. If it is not shown (0), scroll down."""
        if not element and self.lines[-1:] != self.view.page.lines[-1:]:
            return Advice(EnvAction(Command.SCROLL, text="DOWN"), "not here", "look below", Status.CONTINUE)
        if not element:
            return Advice(EnvAction(Command.STOP), "it is not here", "stop", Status.FAIL)
        thought = f"{self.name(element) or self.role(element)} [{element}] {text or ''}".strip()
        return Advice(EnvAction(command, element, text), thought, why, Status.CONTINUE)

    def because(self, reason: str, advice: Advice) -> Advice:
        """The same step with what it follows from before its thought; see `thinking`."""
        return self.thinking(f"{reason} , {advice.thought}", advice)

    def thinking(self, thought: str, advice: Advice, *, submitting: bool = False) -> Advice:
        """The same step with a thought of its own, unless it scrolls or gives up, or submits and not `submitting`."""
        submits = advice.explanation == "submit" and not submitting
        if submits or advice.env_action.command in (Command.SCROLL, Command.STOP):
            return advice
        return advice._replace(thought=thought)

    def click(self, element: int, why: str = "click it") -> Advice:
        return self.act(Command.CLICK, element, why)

    def drag(self, element: int, to: int) -> Advice:
        return self.act(Command.DRAG, element, "drag it", f"TO [{to}]")

    def drag_by(self, element: int, right: int, down: int) -> Advice:
        return self.act(Command.DRAG, element, "drag it", f"BY {right} {down}")

    def click_at(self, x: float, y: float) -> Advice:
        text = f"{round(x)} {round(y)}"
        return Advice(EnvAction(Command.CLICK_AT, text=text), f"the point {text}", "mark it", Status.CONTINUE)

    def wait(self, seconds: int) -> Advice:
        return Advice(EnvAction(Command.WAIT, text=str(seconds)), "not yet", "wait", Status.CONTINUE)

    def press(self, key: str, times: int = 1, why: str = "press it") -> Advice:
        text = key if times == 1 else f"{key} {times}"
        return Advice(EnvAction(Command.PRESS, text=text), f"press {text}", why, Status.CONTINUE)

    def submit(self, name: str = "Submit") -> Advice:
        return self.click(self.find(name), "submit")

    def clicks(self, elements: list[int], submit: str = "Submit") -> Advice:
        """Click each once, then submit if there is a button."""
        for element in elements:
            if not self.did(Command.CLICK, element):
                return self.click(element)
        return self.submit(submit)

    def check(self, elements: list[int]) -> Advice:
        """Check each box, then submit."""
        done = list(takewhile(self.value, elements))
        left = elements[len(done) :]
        advice = self.click(left[0], "check it") if left else self.submit()
        said = [f"{self.name(e)} [{e}] checked" for e in done if self.name(e)]
        return self.thinking(" , ".join([*said, advice.thought]), advice, submitting=True)

    def fill(self, values: dict[int, str], submit: str = "Submit", *, labelled: bool = False) -> Advice:
        """Put each value into its field, then submit. `labelled`: fields have no name, but a label beside them."""
        for element, value in values.items():
            if not element or self.value(element).strip() != value.strip():
                advice = self.act(Command.TYPE, element, "enter it", value)
                label = self.label(element) if labelled and element else ""
                return self.thinking(beside("textbox", element, label, value), advice) if label else advice
        return self.submit(submit)


PageExpert = Callable[[Look], Advice]
