"""An episode that searches at each step, as AlphaZero acts: search, take the best first action, continue from there.

The subtree below the action taken is kept (`forest.reroot`), so each step's rollouts add to earlier ones.
"""

from __future__ import annotations

import numpy as np

from agentq._core import NO_NODE
from agentq.searching.faults import Broken, broken_tree
from agentq.searching.nodes import Node, record
from agentq.searching.tree import TreeSearch
from agentq.store.records import TERMINAL, TreeRecord


async def search_steps(search: TreeSearch) -> TreeRecord:
    """One episode of a search: `num_iterations` rollouts before each step, then the action that `recommend` names.

    A search that stops on success makes no more rollouts once it knows a success. Where the budget is spent, the
    episode goes on along the tree that it has.

    Returns:
        The path taken as a tree without branches. N and W of each action are from the moment it was taken. `info`
        counts all rollouts. The tree succeeded if the path did.
    """
    try:
        await search.open()
    except Broken as fault:
        return broken_tree(search.task, fault)
    try:
        within_budget = True
        while not search.root.ended:
            within_budget = within_budget and await search.grow(whole=False)
            if not search.taken:
                search.taken.append(_told(search, search.root))
            (best,) = search.forest.recommend([search.tree]).tolist()
            if best == NO_NODE:
                break
            search.taken.append(_told(search, search.nodes[best]))
            _take(search, search.nodes[best])
    finally:
        await search.close()
    return _record(search)


def _told(search: TreeSearch, node: Node) -> tuple[int, float]:
    """N and W of a node. Nothing may be in flight."""
    return int(search.forest.visits_started[node.id]), float(search.forest.value_sum[node.id])


def _take(search: TreeSearch, node: Node) -> None:
    """Make the node the root."""
    assert node.id is not None
    old, new = search.forest.reroot(search.tree, node.id)
    kept = {n: search.nodes[o] for o, n in zip(old.tolist(), new.tolist(), strict=True)}
    for i, each in kept.items():
        each.id = i
    search.nodes, search.root, search.left = kept, node, search.settings.num_iterations
    below = set(kept.values())
    search.ends = [end for end in search.ends if end in below]
    search.succeeded = any(each.won for each in kept.values())


def _record(search: TreeSearch) -> TreeRecord:
    path, rows = search.root.path(), search.taken
    n = len(rows)
    columns = {
        "parent": np.arange(n) - 1,
        "depth": np.arange(n),
        "visit_count": np.array([row[0] for row in rows]),
        "value_sum": np.array([row[1] for row in rows]),
        "critic_value": np.array([node.value for node in path]),
        "flags": np.array([TERMINAL * node.ended for node in path]),
    }
    return record(search.task, path, columns, search.info())
