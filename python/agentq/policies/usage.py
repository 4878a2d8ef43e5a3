"""What engines were asked and what it took, by role: policy, critic, judge."""

from __future__ import annotations

from dataclasses import dataclass, field, fields


@dataclass(slots=True)
class Tally:
    """Of one role. `cached_tokens`: of the prompts', not computed again; `queue_s`: waited, summed over requests."""

    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    queue_s: float = 0.0

    def __add__(self, other: Tally) -> Tally:
        return Tally(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def __sub__(self, other: Tally) -> Tally:
        return Tally(*(getattr(self, f.name) - getattr(other, f.name) for f in fields(self)))


@dataclass(frozen=True, slots=True)
class Price:
    """Money for a million tokens."""

    prompt: float = 0.0
    cached: float = 0.0
    generated: float = 0.0

    def of(self, tally: Tally) -> float:
        """What a tally costs."""
        new = tally.prompt_tokens - tally.cached_tokens
        return (self.prompt * new + self.cached * tally.cached_tokens + self.generated * tally.generated_tokens) / 1e6


@dataclass(slots=True)
class Usage:
    """What an engine has done so far. `seconds` is time in which it was computing."""

    roles: dict[str, Tally] = field(default_factory=dict)
    seconds: float = 0.0

    def of(self, role: str) -> Tally:
        """The tally of a role, to add to."""
        return self.roles.setdefault(role, Tally())

    def since(self, earlier: Usage | None) -> Usage:
        """What came after `earlier`, a copy; all of it if that is None."""
        then = earlier or Usage()
        tallies = {role: tally - then.roles.get(role, Tally()) for role, tally in self.roles.items()}
        return Usage(tallies, self.seconds - then.seconds)

    @property
    def total(self) -> Tally:
        """Over all roles."""
        return sum(self.roles.values(), Tally())
