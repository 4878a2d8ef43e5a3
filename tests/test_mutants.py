"""Each fault of `make mutants` has its place: what it replaces stands there once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from tests.mutation import Fault

from tests import mutants
from tests.native import mutants as native


@pytest.mark.parametrize(
    ("faults", "source_of"),
    [(mutants.FAULTS, mutants.source_of), (native.FAULTS, native.source_of)],
    ids=["python", "native"],
)
def test_every_fault_has_its_place(faults: Sequence[Fault], source_of: Callable[[str], str]) -> None:
    moved = []
    for fault in faults:
        try:
            fault.within(source_of(fault.place))
        except ValueError as error:
            moved.append(str(error))
    assert not moved, "\n".join(moved)
