"""The records of a search tree and an episode, and their conversion to bytes. No files or databases here.

Page texts and prompts go to content-addressed blobs, because the same page and the same history occur in many nodes and
trees; the data of a single action (its tokens, log-probabilities, text) is in the record itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from agentq.error_kinds import WORLD_FAULTS
from agentq.store.codec import BlobTable, Fetch, ValueTable, fetch_blobs, pack, unpack
from agentq.store.columns import (
    decode_observations,
    decode_proposals,
    encode_observations,
    encode_proposals,
    only,
    referred,
)
from agentq.types import (
    Command,
    Language,
    Observation,
    Proposal,
    Split,
    Step,
    StepResult,
    Task,
    Trajectory,
)

TERMINAL = 1  # flags bit 0: the episode ended in this node
EXHAUSTED = 2  # flags bit 1: nothing below is left to learn

COLUMNS = {
    "parent": "<i4",
    "depth": "<i4",
    "visit_count": "<u4",
    "value_sum": "<f8",
    "critic_value": "<f4",
    "flags": "|u1",
    "reward": "<f4",
    "success": "|b1",
}


@dataclass(eq=False)
class TreeRecord:
    """One finished search tree of `n` nodes; node 0 is the root and every parent comes before its children.

    A node other than the root is also the edge that leads to it, so a column's entry is that of the action taken at its
    parent. Columns, all `[n]`: `parent` int32 (-1 at the root), `depth` int32, `visit_count` N uint32, `value_sum` W
    float64, `critic_value` in [0, 1] float32, `flags` uint8 (`TERMINAL`, `EXHAUSTED`), `reward` float32, `success`
    bool. `proposal` is None at the root; `observation` is None where the action was never executed; `error_kind` is
    None where the step did not fail; `restored` says how search last went back to the page (see `Restorable.restored`),
    None if never. `info` holds counts: env_steps, prompt_tokens, generated_tokens, seconds; and `faults`, the number of
    rollouts that the world broke, by error kind. These were cancelled: N and W do not count them. The broken node keeps
    its kind.

    Raises:
        ValueError: if a column does not have one entry per node, or the parents are no tree in that order.
    """

    task: Task
    parent: np.ndarray
    depth: np.ndarray
    visit_count: np.ndarray
    value_sum: np.ndarray
    critic_value: np.ndarray
    flags: np.ndarray
    proposal: list[Proposal | None]
    observation: list[Observation | None]
    reward: np.ndarray
    success: np.ndarray
    error_kind: list[str | None]
    restored: list[str | None] = field(default_factory=list)
    info: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, dtype in COLUMNS.items():
            setattr(self, name, np.asarray(getattr(self, name)).astype(dtype, copy=False))
        n = len(self.parent)
        self.restored = self.restored or [None] * n
        for name in (*COLUMNS, "proposal", "observation", "error_kind", "restored"):
            if len(getattr(self, name)) != n:
                raise ValueError(f"{name} must have one entry per node ({n}); got {len(getattr(self, name))}")
        if n == 0 or self.parent[0] != -1:
            raise ValueError(f"parent must start with the root, -1; got {self.parent[:1].tolist()}")
        wrong = np.flatnonzero((self.parent[1:] < 0) | (self.parent[1:] >= np.arange(1, n)))
        if len(wrong):
            node = int(wrong[0]) + 1
            raise ValueError(f"a parent must come before its children; got {self.parent[node]} as that of node {node}")
        self._order = np.argsort(self.parent, kind="stable")
        self._first = np.searchsorted(self.parent[self._order], np.arange(n + 1))

    def __len__(self) -> int:
        return len(self.parent)

    def children(self, node: int) -> np.ndarray:
        """The children of `node`, in index order. If the forest made them, this is the critic's order, best first."""
        children: np.ndarray = self._order[self._first[node] : self._first[node + 1]]
        return children

    def path(self, node: int) -> list[int]:
        """Root .. `node`."""
        nodes = [node]
        while self.parent[nodes[-1]] >= 0:
            nodes.append(int(self.parent[nodes[-1]]))
        return nodes[::-1]

    @property
    def mean_value(self) -> np.ndarray:
        """`[n]` float64: W / N, 0 where N = 0."""
        mean: np.ndarray = self.value_sum / np.maximum(self.visit_count, 1)
        return mean

    @property
    def broken(self) -> np.ndarray:
        """`[n]` bool: the world failed at this action, or at the root's first page; see `error_kinds.WORLD_FAULTS`."""
        return np.array([kind in WORLD_FAULTS for kind in self.error_kind], dtype=bool)

    @property
    def fault(self) -> str | None:
        """Commonest error kind of the world's faults if these left no rollout to learn from, else None."""
        faults: dict[str, int] = self.info.get("faults", {})
        return max(faults, key=lambda kind: faults[kind]) if faults and not self.visit_count[0] else None


def encode_tree(tree: TreeRecord) -> tuple[bytes, dict[bytes, bytes]]:
    """A tree as record bytes, and the blobs it refers to (hash -> data).

    Raises:
        ValueError: if a proposal's arrays are not those of the `Proposal` contract.
    """
    values, blobs = ValueTable(), BlobTable()
    columns = {
        **{name: getattr(tree, name) for name in COLUMNS},
        **encode_proposals(tree.proposal, values, blobs),
        **encode_observations(tree.observation, values, blobs),
        "error_kind": values.column(tree.error_kind),
        "restored": values.column(tree.restored),
        "blobs": blobs.column(),
    }
    return pack({"task": asdict(tree.task), "info": tree.info, "values": list(values)}, columns), blobs.data


def decode_tree(data: bytes, fetch: Fetch, nodes: Sequence[int] | None = None) -> TreeRecord:
    """Inverse of `encode_tree`; nodes that share a prompt share its array.

    `nodes`: the only ones with a page and a proposal, whose blobs alone are fetched; None: all.
    """
    meta, columns = unpack(data)
    values, n = meta["values"], len(columns["parent"])
    if nodes is not None:
        columns |= only(columns, nodes)
    blobs = fetch_blobs(columns["blobs"], fetch, None if nodes is None else referred(columns))
    return TreeRecord(
        task=task_of(meta["task"]),
        proposal=decode_proposals(n, columns, values, blobs),
        observation=decode_observations(n, columns, values, blobs),
        error_kind=[values[i] for i in columns["error_kind"].tolist()],
        restored=[values[i] for i in columns["restored"].tolist()],
        info=meta["info"],
        **{name: columns[name] for name in COLUMNS},
    )


def encode_trajectory(trajectory: Trajectory) -> tuple[bytes, dict[bytes, bytes]]:
    """An episode as record bytes, and the blobs it refers to (hash -> data)."""
    values, blobs = ValueTable(), BlobTable()
    pages = [page for step in trajectory.steps for page in (step.observation, step.result.observation)]
    columns = {
        **encode_proposals([step.proposal for step in trajectory.steps], values, blobs),
        **encode_observations(pages, values, blobs),
        "blobs": blobs.column(),
    }
    meta = {
        "task": asdict(trajectory.task),
        "info": trajectory.info,
        "return_": float(trajectory.return_),
        "success": bool(trajectory.success),
        "results": [result_fields(step.result) for step in trajectory.steps],
        "values": list(values),
    }
    return pack(meta, columns), blobs.data


def decode_trajectory(data: bytes, fetch: Fetch) -> Trajectory:
    """Inverse of `encode_trajectory`."""
    meta, columns = unpack(data)
    values, blobs = meta["values"], fetch_blobs(columns["blobs"], fetch)
    n = len(meta["results"])
    proposals = decode_proposals(n, columns, values, blobs)
    pages = decode_observations(2 * n, columns, values, blobs)
    steps = []
    for i, fields in enumerate(meta["results"]):
        before, after, proposal = pages[2 * i], pages[2 * i + 1], proposals[i]
        if before is None or after is None or proposal is None:
            raise ValueError(f"step {i} must have two observations and a proposal")
        steps.append(Step(before, proposal, StepResult(after, **fields)))
    return Trajectory(task_of(meta["task"]), tuple(steps), meta["return_"], meta["success"], meta["info"])


def task_of(fields: dict[str, Any]) -> Task:
    commands = tuple(map(Command, fields.get("commands", ())))
    language = Language(fields.get("language", Language.WEB))
    named = {
        name: fields[name]
        for name in ("env", "seed", "instruction", "keeps_pages", "scenario", "tools")
        if name in fields
    }
    return Task(split=Split(fields["split"]), commands=commands, language=language, **named)


def result_fields(result: StepResult) -> dict[str, Any]:
    return {
        "reward": float(result.reward),
        "terminated": bool(result.terminated),
        "truncated": bool(result.truncated),
        "success": bool(result.success),
        "error_kind": result.error_kind,
        "error_message": result.error_message,
    }
