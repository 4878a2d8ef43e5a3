"""Resuming a killed search: a growing tree is kept in the run store between rollouts.

The store keeps the forest's snapshot and Python's data about the nodes. Environment sessions end with their process.
The next process replays a node's path when it returns to the node, checks it by fingerprints, and takes a new snapshot.
The resulting tree is the same as without the kill, except for `restored` and the environment steps of replays. The cost
of rollouts since the last write is not counted.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Protocol

from agentq._core import Forest
from agentq.agent.actions import history_text
from agentq.errors import StoreError
from agentq.searching.faults import Broken
from agentq.searching.nodes import Node, record
from agentq.searching.selection import check_forest
from agentq.store.partial import PartialTree
from agentq.store.records import TreeRecord
from agentq.types import History

if TYPE_CHECKING:
    from agentq.searching.tree import TreeSearch

EVERY_S = 10.0  # least number of seconds between two writes of a tree
SHARE = 20  # after a write of t seconds, the next one waits at least SHARE * t seconds


class KeepsPartials(Protocol):
    """Keeps growing trees by stage and task seed, as a `RunStore` does."""

    def partial(self, stage: str, seed: int) -> PartialTree | None: ...
    def set_partial(self, stage: str, tree: PartialTree) -> None: ...
    def drop_partial(self, stage: str, seed: int) -> None: ...


class PartialTrees:
    """Keeps the growing trees of a stage. Each search has its own instance."""

    def __init__(self, store: KeepsPartials, stage: str) -> None:
        self.store, self.stage = store, stage
        self._next = time.monotonic() + EVERY_S

    def keep(self, search: TreeSearch) -> None:
        """Write the tree, unless it was written recently. Nothing may be in flight."""
        begun = time.monotonic()
        if begun < self._next:
            return
        self.store.set_partial(self.stage, _partial(search))
        now = time.monotonic()
        self._next = now + max(EVERY_S, SHARE * (now - begun))

    def resume(self, search: TreeSearch) -> None:
        """Restore the kept tree into a search that shows its first page.

        A tree that is damaged or belongs to another search is dropped with a line on stderr, and searched anew.
        """
        seed = search.task.seed
        try:
            tree = self.store.partial(self.stage, seed)
            if tree is not None:
                _put_back(search, tree)
        except (StoreError, ValueError, TypeError, KeyError, IndexError) as error:
            self.store.drop_partial(self.stage, seed)
            line = str(error).partition("\n")[0]
            print(f"agentq: task {seed} of {self.stage} is searched anew; its half-grown tree: {line}", file=sys.stderr)


def tree_so_far(tree: PartialTree) -> TreeRecord:
    """What a kept tree would be if its search ended now."""
    forest, state = Forest.from_bytes(tree.forest), tree.state
    (root,) = forest.trees.tolist()
    table, above = forest.table(root), state["above"]
    del table["id"]
    nodes = _nodes(tree, [*range(-1, above), *(table["parent"][1:] + above).tolist()], above)[above:]
    info = {**state["counts"], "faults": state["faults"], "ends": [end - above for end in state["ends"]]}
    return record(tree.task, nodes, table, info)


def _owner(search: TreeSearch) -> dict[str, Any]:
    """The settings and task that a kept tree must match, as plain JSON values."""
    settings = asdict(search.settings)
    return {**settings, "policy_version": search.policy.version, "critic": type(search.critic).__name__}


def _partial(search: TreeSearch) -> PartialTree:
    table = search.forest.table(search.tree)
    above = search.root.path()[:-1]
    nodes = [*above, *(search.nodes[i] for i in table["id"].tolist())]
    place = {node: i for i, node in enumerate(nodes)}
    return PartialTree(
        task=search.task,
        forest=search.forest.to_bytes(),
        proposal=[node.proposal for node in nodes],
        observation=[node.history.observation if node.history else None for node in nodes],
        result=[node.result for node in nodes],
        state={
            "owner": _owner(search),
            "above": len(above),
            "value": [node.value for node in nodes],
            "restored": [node.restored for node in nodes],
            "broke": [node.broke for node in nodes],
            "fault": [(node.fault.kind, node.fault.message) if node.fault else None for node in nodes],
            "counts": dict(search.counts),
            "faults": dict(search.faults),
            "expansions": search.expansions,
            "left": search.left,
            "succeeded": search.succeeded,
            "taken": search.taken,
            "ends": [place[end] for end in search.ends],
            "seconds": time.perf_counter() - search.begun,
        },
    )


def _put_back(search: TreeSearch, tree: PartialTree) -> None:
    """Restore the tree. Raises ValueError, changing nothing, if it does not belong to this search."""
    state, owner = tree.state, _owner(search)
    if tree.task != search.task:
        raise ValueError(f"its task must be the same; got '{tree.task.instruction[:80]}'")
    for name in owner:
        if state["owner"].get(name) != owner[name]:
            raise ValueError(f"its {name} must be {owner[name]!r}; got {state['owner'].get(name)!r}")
    forest = Forest.from_bytes(tree.forest)
    check_forest(forest, search.settings, search.task)
    (root,) = forest.trees.tolist()
    table, above = forest.table(root), state["above"]
    parents = [*range(-1, above), *(table["parent"][1:] + above).tolist()]
    if len(parents) != len(tree.proposal):
        raise ValueError(f"its lists must have one entry per node ({len(parents)}); got {len(tree.proposal)}")
    nodes = _nodes(tree, parents, above)
    first, shown = nodes[0].history, search.root.history
    if first is None or shown is None:
        raise ValueError("a kept tree must have a first page; got none")
    if first.observation.fingerprint != shown.observation.fingerprint:
        raise ValueError("its first page must be the one that the task has now; it is another")
    nodes[0].snapshot = search.root.snapshot
    for node, i in zip(nodes[above:], table["id"].tolist(), strict=True):
        node.id = i
    search.sessions[0].position = nodes[0]
    search.forest, search.tree, search.root = forest, root, nodes[above]
    search.nodes = {node.id: node for node in nodes[above:] if node.id is not None}
    search.counts.update(state["counts"])
    search.faults = Counter(state["faults"])
    search.expansions, search.left, search.succeeded = state["expansions"], state["left"], state["succeeded"]
    search.taken = [(n, total) for n, total in state["taken"]]
    search.ends = [nodes[i] for i in state["ends"]]
    search.begun -= state["seconds"]


def _nodes(tree: PartialTree, parents: list[int], above: int) -> list[Node]:
    """The nodes. Those above the present root come first; their only children are on the path."""
    state, nodes = tree.state, list[Node]()
    rows = zip(parents, tree.proposal, tree.observation, tree.result, strict=True)
    for i, (up, proposal, page, result) in enumerate(rows):
        parent = nodes[up] if up >= 0 else None
        node = Node(parent, proposal, state["value"][i], result=result, restored=state["restored"][i])
        node.broke = state["broke"][i]
        node.fault = Broken(*state["fault"][i]) if state["fault"][i] else None
        if parent is not None and i > above:
            parent.children = [*parent.children, node]
        if page is not None and parent is None:
            node.history = History.of(tree.task, page)
        elif page is not None and parent is not None:
            if parent.history is None or proposal is None or result is None:
                raise ValueError(f"node {i} must come after its parent, with its action and result")
            node.history = parent.history.then(history_text(proposal.action), page)
            node.total = parent.total + result.reward
        nodes.append(node)
    return nodes
