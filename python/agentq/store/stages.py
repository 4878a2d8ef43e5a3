"""Renaming and forgetting stages of a run, what all stages know of its tasks, and what of a stage is whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from agentq.errors import StoreError
from agentq.store.codec import UNREADABLE, Fetch, unpack
from agentq.store.records import TreeRecord, decode_trajectory, decode_tree, task_of
from agentq.store.run import TRAJECTORY, TREE, RunStore
from agentq.types import Task, Trajectory

T = TypeVar("T")


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
        with suppress(*UNREADABLE):
            task = task_of(unpack(record)[0]["task"])
            if task.instruction:
                found[seed] = task
    return found


def whole_trees(store: RunStore, stage: str, lost: list[str]) -> Iterator[TreeRecord]:
    """`RunStore.trees` without the damaged ones; `lost` gets a message about each of these."""
    return _whole(store, stage, TREE, decode_tree, lost)


def whole_trajectories(store: RunStore, stage: str, lost: list[str]) -> Iterator[Trajectory]:
    """`RunStore.trajectories` without the damaged ones; `lost` gets a message about each of these."""
    return _whole(store, stage, TRAJECTORY, decode_trajectory, lost)


def _whole(store: RunStore, stage: str, kind: str, decode: Callable[[bytes, Fetch], T], lost: list[str]) -> Iterator[T]:
    for key in store._keys(stage, kind):
        try:
            found = [*store._records(stage, kind, decode, key)]
        except StoreError as error:
            lost.append(str(error))
            continue
        yield from found


def whole_note(store: RunStore, stage: str, lost: list[str]) -> dict[str, Any]:
    """`RunStore.note`, empty if there is none. If it is damaged, it is empty, and `lost` gets a message."""
    return or_empty(lambda: store.note(stage) or {}, {}, lost, f"the note of {stage}: ")


def or_empty(read: Callable[[], T], empty: T, lost: list[str], what: str = "") -> T:
    """What is read; if it is damaged, `empty`, and `lost` gets the message, after `what`."""
    try:
        return read()
    except StoreError as error:
        lost.append(f"{what}{error}")
        return empty


def in_order(key: str) -> tuple[int, ...]:
    """Sorts the keys of trees and episodes: by the task's seed, then by the attempt."""
    return tuple(int(part) if part.isdigit() else 0 for part in key.split("/"))


def left_out(lost: Sequence[str]) -> str:
    """One line about what is damaged; empty if nothing is."""
    if len(lost) < 2:
        return "".join(f"left out: {message}" for message in lost)
    return f"{len(lost)} damaged parts are left out; the first: {lost[0]}"
