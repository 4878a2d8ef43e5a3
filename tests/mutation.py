"""How a list of one-line faults is tried: which of them, what is said of each, what the program ends with."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple, NoReturn


class Fault(NamedTuple):
    """One line of a file or a module: what stands there, what is put there."""

    place: str
    old: str
    new: str

    def within(self, source: str) -> str:
        """The source with the fault in it.

        Raises:
            ValueError: if its place is not there, or is there more than once.
        """
        if source.count(self.old) != 1:
            raise ValueError(f"a fault must stand once in {self.place}; got {source.count(self.old)} times: {self.old}")
        return source.replace(self.old, self.new)

    def __str__(self) -> str:
        return f"{self.place}: {' '.join(self.old.split())} -> {' '.join(self.new.split())}"


def chosen(doc: str | None, faults: Sequence[Fault]) -> tuple[list[Fault], bool]:
    """The faults that the command line asks for, and whether it asks for JSON."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="faults whose place or text holds this")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    return [fault for fault in faults if args.only in f"{fault.place}: {fault.old}"], args.json


def attempt(
    faults: Sequence[Fault],
    is_killed: Callable[[Fault], bool],
    as_json: bool,
    prepare: Callable[[], None] | None = None,
) -> NoReturn:
    """Try each fault, one process per core, and end the program: with 1 if the tests missed one.

    Args:
        is_killed: a function of a module, called in one of the processes.
        prepare: called once in each process, before its first fault.
    """
    survived, begun = [], time.monotonic()
    fork = multiprocessing.get_context("fork")  # a process has the modules that this one has imported
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), fork, prepare) as pool:
        for i, (fault, killed) in enumerate(zip(faults, pool.map(is_killed, faults), strict=True), start=1):
            at = f"{i}/{len(faults)} {time.monotonic() - begun:.0f} s"
            print(f"{at} {'killed  ' if killed else 'SURVIVED'} {fault}", file=sys.stderr, flush=True)
            if not killed:
                survived.append(str(fault))
    if as_json:
        print(json.dumps({"faults": len(faults), "survived": survived, "seconds": round(time.monotonic() - begun)}))
    raise SystemExit(1 if survived else 0)
