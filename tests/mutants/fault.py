"""A one-line fault and the tests that must notice it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]


class Fault(NamedTuple):
    """`new` stands for `old` in a file below the root.

    `tests`: arguments of pytest without "tests/" and ".py", such as "test_forest test_train::test_branches".
    """

    file: str
    tests: str
    old: str
    new: str

    @property
    def is_native(self) -> bool:
        return not self.file.endswith(".py")

    def source(self) -> str:
        """The file's text with the fault.

        Raises:
            ValueError: if `old` is not there exactly once.
        """
        text = (ROOT / self.file).read_text()
        if text.count(self.old) != 1:
            raise ValueError(f"a fault must stand once in {self.file}; got {text.count(self.old)} times: {self.old}")
        return text.replace(self.old, self.new)

    def __str__(self) -> str:
        return f"{self.file}: {' '.join(self.old.split())} -> {' '.join(self.new.split())}"


Lines = Mapping[tuple[str, str], Sequence[tuple[str, str]]]
"""(file, tests): what stands there, what is put there."""


def faults_of(folder: str, lines: Lines) -> list[Fault]:
    """The faults of a list whose files are below `folder`."""
    return [Fault(f"{folder}/{file}", tests, *texts) for (file, tests), found in lines.items() for texts in found]
