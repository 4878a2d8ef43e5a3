"""An attack: a number, what is done, the expected result, and a function that does it and returns the result."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ATTACKS: dict[str, Attack] = {}


class Skipped(Exception):
    """The attack cannot be run on this machine; the message says why."""


@dataclass(frozen=True, slots=True)
class Attack:
    """`act` gets an empty folder and returns the result, in the words of `expected`."""

    number: str
    what: str
    expected: str
    act: Callable[[Path], str]

    def __lt__(self, other: Attack) -> bool:
        return self._key() < other._key()

    def _key(self) -> tuple[int, ...]:
        return tuple(int(part) for part in self.number.split("."))


@dataclass(frozen=True, slots=True)
class Result:
    """The result of an attack."""

    attack: Attack
    got: str
    skipped: bool = False

    @property
    def as_expected(self) -> bool:
        return not self.skipped and self.got == self.attack.expected

    @property
    def verdict(self) -> str:
        return "skipped" if self.skipped else "expected" if self.as_expected else "WRONG"

    def to_dict(self) -> dict[str, Any]:
        return {
            "what": self.attack.what,
            "expected": self.attack.expected,
            "got": self.got,
            "as_expected": self.as_expected,
            "skipped": self.skipped,
        }


def attack(number: str, what: str, *, expected: str) -> Callable[[Callable[[Path], str]], Callable[[Path], str]]:
    """Register the decorated function as the attack `number` ("4.13")."""

    def register(act: Callable[[Path], str]) -> Callable[[Path], str]:
        if number in ATTACKS:
            raise ValueError(f"each attack must have a number of its own; got {number} twice")
        ATTACKS[number] = Attack(number, what, expected, act)
        return act

    return register


def run(attack: Attack, folder: Path) -> Result:
    """Run one attack; an unexpected exception is its result."""
    try:
        return Result(attack, attack.act(folder))
    except Skipped as reason:
        return Result(attack, str(reason), skipped=True)
    except Exception as error:
        return Result(attack, f"{type(error).__name__}: {error}")


@dataclass(frozen=True, slots=True)
class Answer:
    """How a command ended: its exit code and both streams."""

    code: int
    out: str
    err: str

    @property
    def has_traceback(self) -> bool:
        return "Traceback (most recent call last)" in self.err

    @property
    def lines(self) -> list[str]:
        """The non-empty lines of stderr."""
        return [line for line in self.err.splitlines() if line.strip()]

    def __str__(self) -> str:
        """`exit 2: the one line`, or `exit 2: a traceback`, or `exit 2: N lines`."""
        said = (
            "a traceback"
            if self.has_traceback
            else self.lines[0]
            if len(self.lines) == 1
            else f"{len(self.lines)} lines"
        )
        return f"exit {self.code}: {said}"


def agentq(
    *words: str, cwd: Path, timeout: float = 300, env: Mapping[str, str] | None = None, stdin: str = ""
) -> Answer:
    """Run `agentq WORDS` in `cwd` as a separate process."""
    command: Sequence[str] = [sys.executable, "-m", "agentq", *words]
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **(env or {})},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    return Answer(done.returncode, done.stdout, done.stderr)
