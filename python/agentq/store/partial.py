"""A search tree between two rollouts as a record: what a search needs to go on in another process. Owns no file."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from agentq.store.codec import BlobTable, Fetch, ValueTable, fetch_blobs, pack, unpack
from agentq.store.columns import decode_observations, decode_proposals, encode_observations, encode_proposals
from agentq.store.records import result_fields, task_of
from agentq.types import Observation, Proposal, StepResult, Task


@dataclass(eq=False)
class PartialTree:
    """A tree that is being searched.

    `forest` is its snapshot. The lists have one entry per node, in the search's order: `observation` and `result` are
    None where the action has not been executed, `result` and `proposal` at the first page. `state` is the search's own,
    plain JSON values.
    """

    task: Task
    forest: bytes
    proposal: list[Proposal | None]
    observation: list[Observation | None]
    result: list[StepResult | None]
    state: dict[str, Any]


def encode_partial(tree: PartialTree) -> tuple[bytes, dict[bytes, bytes]]:
    """A tree as record bytes, and the blobs it refers to (hash -> data)."""
    values, blobs = ValueTable(), BlobTable()
    columns = {
        "forest": np.frombuffer(tree.forest, np.uint8),
        **encode_proposals(tree.proposal, values, blobs),
        **encode_observations(tree.observation, values, blobs),
        "blobs": blobs.column(),
    }
    meta = {
        "task": asdict(tree.task),
        "state": tree.state,
        "results": [None if result is None else result_fields(result) for result in tree.result],
        "values": list(values),
    }
    return pack(meta, columns), blobs.data


def decode_partial(data: bytes, fetch: Fetch) -> PartialTree:
    """Inverse of `encode_partial`."""
    meta, columns = unpack(data)
    values, blobs = meta["values"], fetch_blobs(columns["blobs"], fetch)
    n = len(meta["results"])
    pages = decode_observations(n, columns, values, blobs)
    results = [
        None if fields is None or page is None else StepResult(page, **fields)
        for page, fields in zip(pages, meta["results"], strict=True)
    ]
    return PartialTree(
        task=task_of(meta["task"]),
        forest=columns["forest"].tobytes(),
        proposal=decode_proposals(n, columns, values, blobs),
        observation=pages,
        result=results,
        state=meta["state"],
    )
