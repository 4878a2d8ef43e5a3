"""Renaming and forgetting stages of a run, and what all stages know of its tasks."""

from __future__ import annotations

from contextlib import suppress

from agentq.errors import StoreError
from agentq.store.codec import unpack
from agentq.store.database import damage_named
from agentq.store.records import task_of
from agentq.store.run import RunStore
from agentq.types import Task


def rename_stage(store: RunStore, stage: str, new: str) -> None:
    """Give a stage, with its items and its note, another name. `new` must not be a stage yet."""
    with store.transaction():
        store._execute("UPDATE stages SET name = ? WHERE name = ?", (new, stage))


def drop_stage(store: RunStore, stage: str) -> None:
    """Forget a stage with its items and its note; blobs stay."""
    with store.transaction():
        store._execute("DELETE FROM items WHERE stage IN (SELECT id FROM stages WHERE name = ?)", (stage,))
        store._execute("DELETE FROM stages WHERE name = ?", (stage,))


def known_tasks(store: RunStore, seeds: range) -> dict[int, Task]:
    """Those of the tasks with these seeds of which the run has a record that can be read, by seed.

    A task that was recorded without an instruction is not known: its environment did not start when it was asked.
    """
    between = "SELECT seed, min(rowid) FROM items WHERE seed >= ? AND seed < ? GROUP BY seed"
    found = {}
    for seed, row in store._execute(between, (seeds.start, seeds.stop)):
        ((record,),) = store._execute("SELECT record FROM items WHERE rowid = ?", (row,))
        with suppress(StoreError, ValueError, TypeError, IndexError), damage_named(store.path / "run.sqlite"):
            task = task_of(unpack(record)[0]["task"])
            if task.instruction:
                found[seed] = task
    return found
