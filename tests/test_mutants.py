"""Each fault of `make mutants` has its place: what it replaces stands there once, and its tests exist."""

from __future__ import annotations

import ast

from tests.mutants import FAULTS
from tests.mutants.fault import ROOT


def test_every_fault_has_its_place_and_leaves_a_program() -> None:
    moved = []
    for fault in FAULTS:
        try:
            source = fault.source()
            if not fault.is_native:
                ast.parse(source)
        except (ValueError, SyntaxError) as error:
            moved.append(f"{fault}: {error}")
    assert not moved, "\n".join(moved)
    assert len(set(FAULTS)) == len(FAULTS)


def test_the_tests_of_every_fault_exist() -> None:
    for word in {word for fault in FAULTS for word in fault.tests.split()}:
        file, _, name = word.partition("::")
        text = (ROOT / f"tests/{file}.py").read_text()
        assert not name or f"def {name}(" in text, word
