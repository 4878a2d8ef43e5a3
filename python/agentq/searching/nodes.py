"""Search's data about a node beyond the forest's numbers, and the record made from both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np

from agentq._core import EXHAUSTED
from agentq.agent.actions import action_key
from agentq.critics.protocol import Critic
from agentq.searching.faults import Broken
from agentq.store.records import TreeRecord
from agentq.types import History, Proposal, StepResult, Task


@dataclass(slots=True, eq=False)
class Node:
    """Python's half of a forest node: texts and pages. `history` is None until the node's action has been executed.

    `id`: the node's id in the forest; None until the rollout that made it ends. `value`: the critic's value. `prior`:
    see `selection.priors`; set only if the rule needs it. `broke`: number of rollouts that the world broke here.
    `fault`: the latest fault.
    """

    parent: Node | None = None
    proposal: Proposal | None = None
    value: float = 0.5
    prior: float = 1.0
    id: int | None = None
    children: Sequence[Node] = ()  # best rank first, then in the order they were made
    history: History | None = None
    snapshot: Any = None
    restored: str | None = None
    result: StepResult | None = None
    total: float = 0.0  # sum of rewards from the episode's first page
    broke: int = 0
    fault: Broken | None = None

    @property
    def ended(self) -> bool:
        return self.result is not None and (self.result.terminated or self.result.truncated)

    @property
    def won(self) -> bool:
        """Whether the episode ended here with success, which is read at its end alone."""
        return self.ended and self.result is not None and self.result.success

    def path(self) -> list[Node]:
        """The nodes from the episode's first page to this one."""
        found = [self]
        while found[-1].parent is not None:
            found.append(found[-1].parent)
        return found[::-1]


async def ranked_children(
    node: Node, sampled: Sequence[Proposal], critic: Critic | None, seed: int
) -> tuple[list[Node], Node]:
    """The node's children made from samples, best rank first, and the child that was sampled first.

    Of equal actions, only the first sample is kept. Those sampled more often come first. A critic's ranks come before
    that order, which it keeps where it cannot tell.
    """
    assert node.history is not None
    keys = [action_key(proposal.action.env_action) for proposal in sampled]
    if len(set(keys)) == len(keys):
        children = [Node(node, proposal) for proposal in sampled]
        first = children[0]
    else:
        by_key: dict[tuple[str, str], Node] = {}
        for key, proposal in zip(keys, sampled, strict=True):
            if key not in by_key:
                by_key[key] = Node(node, proposal)
        first = by_key[keys[0]]
        children = [by_key[key] for key in sorted(by_key, key=keys.count, reverse=True)]  # equals keep their order
    if critic is None or len(children) == 1:
        return children, first
    actions = [child.proposal.action.env_action for child in children if child.proposal is not None]
    for child, value in zip(children, await critic.rank(node.history, actions, seed=seed), strict=True):
        child.value = value
    return sorted(children, key=attrgetter("value"), reverse=True), first  # equal values keep the order


def record(task: Task, nodes: Sequence[Node], table: Mapping[str, np.ndarray], info: dict[str, Any]) -> TreeRecord:
    """The record of a tree from its nodes and the forest's table of them, both in the same order.

    A broken node has its fault's kind and no page, and does not end an episode.
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
        success=np.array([node.won for node in nodes]),
        error_kind=[r.error_kind if r else f.kind if f else None for r, f in zip(results, faults, strict=True)],
        restored=[node.restored for node in nodes],
        info=info,
    )
