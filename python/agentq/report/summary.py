"""summary.json of a run: what each of its rungs measured."""

from __future__ import annotations

from pathlib import Path

from agentq.errors import StoreError
from agentq.evaluation.stats import RungResult
from agentq.store.files import read_json


def read_summary(path: Path) -> list[RungResult]:
    """The rungs of summary.json, a list of `RungResult.to_dict()`; none if it has not been written yet.

    Raises:
        StoreError: if it is something else.
    """
    if not path.exists():
        return []
    rows = read_json(path)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise StoreError(f"{path} must be a list of rungs; got {type(rows).__name__}")
    try:
        return [RungResult.from_dict(row) for row in rows]
    except ValueError as error:
        raise StoreError(f"{path}: {error}") from error
