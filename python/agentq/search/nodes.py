"""What search knows of a node beside the forest's numbers, and the record that both become."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentq._core import EXHAUSTED
from agentq.search.faults import Broken
from agentq.store.records import TreeRecord
from agentq.types import History, Proposal, StepResult, Task


@dataclass(slots=True)
class Node:
    """Python's half of a forest node: texts and pages. `history` is None until the node's action has been executed.

    `broke`: how many rollouts the world broke here; `fault`: how, at the latest one.
    """

    parent: int = -1
    proposal: Proposal | None = None
    history: History | None = None
    snapshot: Any = None
    restored: str | None = None
    result: StepResult | None = None
    total: float = 0.0  # sum of rewards from the root
    broke: int = 0
    fault: Broken | None = None

    @property
    def ended(self) -> bool:
        return self.result is not None and (self.result.terminated or self.result.truncated)


def record(task: Task, nodes: Sequence[Node], table: Mapping[str, np.ndarray], info: dict[str, Any]) -> TreeRecord:
    """The record of a tree from its nodes and the forest's table of them, both in the same order.

    A node that broke has its fault's kind and no page; it is no end of an episode.
    """
    results, faults = [node.result for node in nodes], [node.fault for node in nodes]
    flags = table["flags"].copy()
    flags[[fault is not None for fault in faults]] &= EXHAUSTED
    return TreeRecord(
        task=task,
        parent=table["parent"],
        depth=table["depth"],
        visit_count=table["visit_count"],
        value_sum=table["value_sum"],
        critic_value=table["critic_value"],
        flags=flags,
        proposal=[node.proposal for node in nodes],
        observation=[node.history.observation if node.history else None for node in nodes],
        reward=np.array([r.reward if r else 0.0 for r in results], dtype=np.float32),
        success=np.array([bool(r and r.success) for r in results]),
        error_kind=[r.error_kind if r else f.kind if f else None for r, f in zip(results, faults, strict=True)],
        restored=[node.restored for node in nodes],
        info=info,
    )
