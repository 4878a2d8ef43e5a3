"""`agentq` in a process in which something happens at the Nth write of an item: see `benchmarks/chaos.py`.

python chaos_child.py [KIND N] -- WORDS
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from agentq.cli import main
from agentq.store.run import RunStore


def transaction(store: RunStore) -> None:
    """Killed in a transaction that has written something."""
    os.kill(os.getpid(), signal.SIGKILL)


def read_only_disk(store: RunStore) -> None:
    """Every later write to the database is refused, as by a disk that was mounted again read-only."""
    store._database.execute("PRAGMA query_only = ON")


def clock(store: RunStore) -> None:
    """The time of day goes back a year, and then runs ten times as fast."""
    real, at = time.time, time.time()
    time.time = lambda: at - 365 * 86400 + 10 * (real() - at)


FAULTS: dict[str, Callable[[RunStore], None]] = {
    "transaction": transaction,
    "read-only disk": read_only_disk,
    "clock": clock,
}


def arm(kind: str, n: int) -> None:
    """Let it happen after the Nth item or note has been written and before it is committed."""
    execute, written = RunStore._execute, [0]

    def counted(self: RunStore, sql: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        found = execute(self, sql, values)
        if sql.startswith(("INSERT INTO items", "UPDATE stages")):
            written[0] += 1
            if written[0] == n:
                FAULTS[kind](self)
        return found

    RunStore._execute = counted  # type: ignore[method-assign]


if __name__ == "__main__":
    before, words = sys.argv[1 : sys.argv.index("--")], sys.argv[sys.argv.index("--") + 1 :]
    if before:
        arm(before[0], int(before[1]))
    sys.exit(main(words))
