"""Small forests and what the tests look at in them."""

from __future__ import annotations

import numpy as np

from agentq._core import OK, Forest

COLUMNS = (
    *("parent", "tree", "first_child", "child_count", "depth", "visit_count"),
    *("value_sum", "mean_value", "critic_value", "logp", "in_flight", "flags"),
)


def columns(forest: Forest) -> dict[str, list[float]]:
    return {name: getattr(forest, name).tolist() for name in COLUMNS}


def fan(width: int = 3, **settings) -> Forest:
    """One tree: a root with `width` children, nodes 1 .. width; critic values fall linearly from 1 to 0."""
    forest = Forest(**settings)
    forest.add_trees(1)
    forest.expand([0], [width], np.linspace(1, 0, width), -np.arange(width))
    return forest


def visit(forest: Forest, node: int, value: float) -> None:
    """Tells one rollout at a child of root 0, whatever selection would have taken.

    Asks until the node is pending, then cancels the others.
    """
    asked: list[int] = []
    while node not in asked:
        _, leaves, _, status = forest.ask([0], 1)
        assert status[0] == OK, "a fan with c_exp 0 and fresh children hands out every child"
        asked += leaves.tolist()
    asked.remove(node)
    forest.cancel(asked)
    forest.tell([node], [value])
