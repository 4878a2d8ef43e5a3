"""Processor seconds per test, child processes included: what a test costs, however busy the machine is.

    make test ARGS="-p tests.cpu"

Prints the sum, the dearest files and the dearest tests; every test goes to build/test-cpu.txt. A fixture counts for the
test that made it first. A process that was never waited for is not counted.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

FILE = Path("build/test-cpu.txt")
SHOWN = 25
TICK = os.sysconf("SC_CLK_TCK")

_seconds: defaultdict[str, float] = defaultdict(float)
_before = 0.0


def used() -> float:
    """Processor seconds of this process and its descendants, those that ended and were waited for included."""
    parents, ticks = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        pid = int(stat.parent.name)
        parents[pid], ticks[pid] = int(fields[1]), sum(map(int, fields[11:15]))
    family = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return sum(ticks.get(pid, 0) for pid in family) / TICK


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Each phase's report carries its seconds, also from a worker of xdist."""
    global _before
    report = yield
    now = used()
    report.user_properties.append(("cpu", max(0.0, now - _before)))
    _before = now
    return report


def pytest_sessionstart() -> None:
    global _before
    _before = used()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[report.nodeid] += sum(value for name, value in report.user_properties if name == "cpu")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    files: defaultdict[str, float] = defaultdict(float)
    for test, seconds in _seconds.items():
        files[test.partition("::")[0]] += seconds
    dearest = sorted(_seconds.items(), key=lambda row: -row[1])
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text("".join(f"{seconds:8.2f} {test}\n" for test, seconds in dearest))
    terminalreporter.section(f"{sum(files.values()):.0f} processor seconds in {len(_seconds)} tests")
    for name, seconds in sorted(files.items(), key=lambda row: -row[1])[:SHOWN] + dearest[:SHOWN]:
        terminalreporter.write_line(f"{seconds:8.2f} {name}")
