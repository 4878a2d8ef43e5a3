"""Requests, tokens and time of engines by role (policy, critic, judge), and their failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self


@dataclass(slots=True)
class Tally:
    """Usage of one role.

    `cached_tokens`: prompt tokens from the cache. `queue_s`: total waiting time. `shortened`: requests whose prompt
    lacks the oldest actions, for which the context had no room.
    """

    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    queue_s: float = 0.0
    shortened: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def __sub__(self, other: Tally) -> Tally:
        return Tally(*(getattr(self, f.name) - getattr(other, f.name) for f in fields(self)))


@dataclass(frozen=True, slots=True)
class Price:
    """Money per million tokens."""

    prompt: float = 0.0
    cached: float = 0.0
    generated: float = 0.0

    def of(self, tally: Tally) -> float:
        """The cost of a tally."""
        new = tally.prompt_tokens - tally.cached_tokens
        return (self.prompt * new + self.cached * tally.cached_tokens + self.generated * tally.generated_tokens) / 1e6


@dataclass(slots=True)
class Usage:
    """Usage of an engine so far.

    `seconds`: computing time. `faults`: failed attempts by cause, such as HTTP 429. `pause_s`: time between a failed
    attempt and the next, summed over requests.
    """

    roles: dict[str, Tally] = field(default_factory=dict)
    seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    pause_s: float = 0.0

    def of(self, role: str) -> Tally:
        """The tally of a role, to add to."""
        return self.roles.setdefault(role, Tally())

    def since(self, earlier: Usage | None) -> Usage:
        """Usage after `earlier`, as a copy; all of it if that is None."""
        then = earlier or Usage()
        now = list(self.roles.items())  # the engine's thread may add a role meanwhile
        tallies = {role: tally - then.roles.get(role, Tally()) for role, tally in now}
        return Usage(
            tallies, self.seconds - then.seconds, self.faults.copy() - then.faults, self.pause_s - then.pause_s
        )

    def __add__(self, other: Usage) -> Usage:
        names = [*self.roles, *(role for role in other.roles if role not in self.roles)]
        tallies = {role: self.roles.get(role, Tally()) + other.roles.get(role, Tally()) for role in names}
        return Usage(tallies, self.seconds + other.seconds, self.faults + other.faults, self.pause_s + other.pause_s)

    @property
    def total(self) -> Tally:
        """Sum over all roles."""
        return sum(list(self.roles.values()), Tally())

    def to_note(self) -> dict[str, Any]:
        """Plain JSON values for a stage's note; `from_note` is the inverse."""
        engine = {"seconds": self.seconds, "faults": dict(self.faults), "pause_s": self.pause_s}
        return {"usage": {role: asdict(tally) for role, tally in self.roles.items()}, "engine": engine}

    @classmethod
    def from_note(cls, note: Mapping[str, Any]) -> Self:
        """The usage in a stage's note; nothing if it has none."""
        engine = note.get("engine", {})
        tallies = {role: Tally(**tally) for role, tally in note.get("usage", {}).items()}
        return cls(tallies, engine.get("seconds", 0.0), Counter(engine.get("faults", {})), engine.get("pause_s", 0.0))

    def __str__(self) -> str:
        """For a status line: `34.5 k tokens, 71 % cached, 3 failed attempts`; empty if nothing was used."""
        total, failed = self.total, self.faults.total()
        read = total.prompt_tokens
        cached = [f"{100 * total.cached_tokens / read:.0f} % cached"] if read else []
        spent = [f"{count(read + total.generated_tokens)} tokens", *cached] if total.requests else []
        short = [f"{total.shortened} prompts shortened"] if total.shortened else []
        return ", ".join([*spent, *short, *([f"{failed} failed attempts"] if failed else [])])


LISTENERS: list[Callable[[Usage, float], None]] = []
"""Called at the end of each `agentq.search` and `evaluate` with the usage of models loaded for it, and its seconds."""


def count(number: int) -> str:
    """`950`, `12.3 k`, `4.5 M`."""
    for size, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if number >= size:
            return f"{number / size:.1f}{unit}"
    return str(number)
