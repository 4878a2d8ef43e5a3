"""Faults in python/agentq/recipes/."""

from __future__ import annotations

from tests.mutants.fault import Lines, faults_of

LINES: Lines = {
    ("recipes/settings.py", "test_traps"): [("if self.run.constrained", "if False")],
}  # fmt: skip

FAULTS = faults_of("python/agentq", LINES)
