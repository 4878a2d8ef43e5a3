"""An episode that searches at each step, as AlphaZero acts: search, take the best first action, go on from there.

The part of the tree below the action taken is kept (`forest.reroot`), so that a step's rollouts add to those before it.
"""

from __future__ import annotations

import time

import numpy as np

from agentq.searching.faults import Broken, broken_tree
from agentq.searching.nodes import Node, record
from agentq.searching.tree import TreeSearch
from agentq.store.records import TERMINAL, TreeRecord


async def search_steps(search: TreeSearch) -> TreeRecord:
    """One episode of a new search: `num_iterations` rollouts before each step, none where a success is known already
    and the search stops at one.

    Returns:
        The path taken as a tree without branches: N and W of each action are those of when it was taken. `info` counts
        all rollouts. It succeeded if the path did.
    """
    begun = time.perf_counter()
    try:
        await search.open()
    except Broken as fault:
        search.forest.drop([search.tree])
        return broken_tree(search.task, fault)
    rows: list[tuple[int, float]] = []
    try:
        while not search.root.ended:
            going_on = await search.grow()
            if not rows:
                rows.append(_told(search, search.root))
            best = best_child(search)
            if best is None:
                break
            rows.append(_told(search, best))
            _take(search, best)
            if not going_on:
                break
    finally:
        await search.close()
    search.forest.drop([search.tree])
    return _record(search, rows, begun)


def best_child(search: TreeSearch) -> Node | None:
    """The root's child with the largest mean value, then the most rollouts, then the best rank; None without a rollout.

    Ours: AlphaZero takes the most visited. Here what was searched to its end is not visited again (decision 002), so
    that a success found at once has one visit and its failing siblings have more.
    """
    told = [(child, *_told(search, child)) for child in search.root.children if child.id is not None]
    tried = [(total / n, n, -rank, child) for rank, (child, n, total) in enumerate(told) if n > 0]
    return max(tried, key=lambda row: row[:3])[3] if tried else None


def _told(search: TreeSearch, node: Node) -> tuple[int, float]:
    """N and W of a node, nothing being in flight."""
    return int(search.forest.started[node.id]), float(search.forest.value_sum[node.id])


def _take(search: TreeSearch, node: Node) -> None:
    """Make the node the root."""
    assert node.id is not None
    old, new = search.forest.reroot(search.tree, node.id)
    kept = {n: search.nodes[o] for o, n in zip(old.tolist(), new.tolist(), strict=True)}
    for i, each in kept.items():
        each.id = i
    search.nodes, search.root = kept, node
    search.succeeded = any(each.result is not None and each.result.success for each in kept.values())


def _record(search: TreeSearch, rows: list[tuple[int, float]], begun: float) -> TreeRecord:
    path, n = search.root.path(), len(rows)
    columns = {
        "parent": np.arange(n) - 1,
        "depth": np.arange(n),
        "visit_count": np.array([row[0] for row in rows]),
        "value_sum": np.array([row[1] for row in rows]),
        "critic_value": np.array([node.value for node in path]),
        "flags": np.array([TERMINAL * node.ended for node in path]),
    }
    won = search.root.result is not None and search.root.result.success
    return record(search.task, path, columns, {**search.info(begun), "succeeded": bool(won)})
