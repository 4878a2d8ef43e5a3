"""Which settings code reads: attribute accesses on the sections of `Config`, while a block runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from agentq.config import Config, _Section, is_read, settings

SECTIONS = {type(getattr(Config(), name)): name for name in Config.model_fields}


@contextmanager
def recorded_reads() -> Iterator[set[str]]:
    """The keys read in the block so far; prices count as read together, since a missing one follows another."""
    found: set[str] = set()

    def getattribute(section: Any, name: str) -> Any:
        kind = type(section)
        if kind in SECTIONS and name in kind.model_fields:
            found.add(f"{SECTIONS[kind]}.{name}")
        return object.__getattribute__(section, name)

    _Section.__getattribute__ = getattribute  # type: ignore[method-assign]
    try:
        yield found
    finally:
        del _Section.__getattribute__
        if "price.prompt" in found:
            found.update(key for key in keys(["price"]))


def keys(reads: Iterable[str]) -> set[str]:
    """Every key among keys and whole sections."""
    return {s.key for s in settings() if is_read(s.key, tuple(reads))}
