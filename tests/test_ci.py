"""What .ci/run prints at its end when tests fail."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

RUN = Path(__file__).parent.parent / ".ci" / "run"
FAILED = """\
=================================== FAILURES ===================================
__________________________________ test_{name} ___________________________________
[gw0] linux -- Python 3.11.2
    def test_{name}() -> None:
>       assert 1 == 2
E       assert 1 == 2

tests/test_{name}.py:4: AssertionError
=========================== short test summary info ============================
FAILED tests/test_{name}.py::test_{name} - assert 1 == 2
=================== 1 failed, 6 passed in 0.12s ===================
"""
MAKE = """#!/bin/sh
[ -f {folder}/$1 ] || exit 0
cat {folder}/$1
! grep -q "failed\\|Error" {folder}/$1
"""
PASSED = "============================== 3 passed in 0.02s ===============================\n"


def ci(folder: Path, test: str, rest: str) -> tuple[int, list[str]]:
    """Exit code and last lines, with a `make` that prints these for `make test` and `make test-rest`."""
    for name, text in (("test", test), ("test-rest", rest)):
        (folder / name).write_text(text)
    make = folder / "make"
    make.write_text(MAKE.format(folder=folder))
    make.chmod(0o755)
    path = {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run([RUN], capture_output=True, text=True, check=False, env={**os.environ, **path})
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


def test_ci_names_what_failed_among_the_rest(tmp_path: Path) -> None:
    code, lines = ci(tmp_path, PASSED, FAILED.format(name="rest") + "vLLM line\n" * 80 + PASSED)
    assert code != 0 and lines[-1] == PASSED.strip()
    assert lines[1:6] == [
        "__________________________________ test_rest ___________________________________",
        "E       assert 1 == 2",
        "tests/test_rest.py:4: AssertionError",
        "FAILED tests/test_rest.py::test_rest - assert 1 == 2",
        "the rest, then vLLM:",
    ]
    assert "vLLM line" not in lines


def test_ci_names_what_failed_in_both_and_ends_with_the_first_summary(tmp_path: Path) -> None:
    code, lines = ci(tmp_path, FAILED.format(name="first"), FAILED.format(name="rest"))
    assert code != 0 and lines[-1] == FAILED.splitlines()[-1]
    assert [line for line in lines[-8:] if line.startswith("FAILED")] == [
        "FAILED tests/test_rest.py::test_rest - assert 1 == 2",
        "FAILED tests/test_first.py::test_first - assert 1 == 2",
    ]


def test_ci_prints_the_end_of_a_log_without_tests_and_passes_if_all_pass(tmp_path: Path) -> None:
    code, lines = ci(tmp_path, PASSED, "collecting\nError: no space left\n")
    assert code != 0 and "Error: no space left" in lines and lines[-1] == PASSED.strip()
    assert ci(tmp_path, PASSED, PASSED) == (0, [PASSED.strip(), "the rest, then vLLM:", PASSED.strip(), PASSED.strip()])
