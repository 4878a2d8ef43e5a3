"""A slow, obvious twin of agentq._core.Forest: one Python object a node, nothing cached, no checks of arguments.

Written from the definitions, not from the C++: what can be derived (depth, exhaustion, what is pending) is derived.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

NO_NODE = 2**32 - 1


@dataclass
class Node:
    """One history."""

    id: int
    tree: int
    parent: Node | None
    critic_value: float = 0.0
    logp: float = 0.0
    children: list[Node] = field(default_factory=list)
    returns: list[float] = field(default_factory=list)  # of every rollout told through the node
    in_flight: int = 0
    terminal: bool = False
    told_terminal: bool = False

    def path(self) -> list[Node]:
        """The node, its parent, ... the root."""
        return [self] if self.parent is None else [self, *self.parent.path()]

    def exhausted(self) -> bool:
        """Terminal and told, or all children are."""
        return self.told_terminal or (bool(self.children) and all(child.exhausted() for child in self.children))

    def started(self) -> int:
        """N and what is in flight."""
        return len(self.returns) + self.in_flight

    def value_sum(self) -> float:
        """W, added up in the order told."""
        total = 0.0
        for value in self.returns:
            total += value
        return total


class ReferenceForest:
    """The face of agentq._core.Forest."""

    def __init__(self, *, c_exp: float = 1.0, unvisited: str = "formula", exhaust: bool = True) -> None:
        self.c_exp, self.unvisited, self.exhaust = c_exp, unvisited, exhaust
        self.nodes: list[Node] = []
        self.roots: list[Node] = []

    def _new(self, tree: int, parent: Node | None, critic_value: float = 0.0, logp: float = 0.0) -> Node:
        node = Node(len(self.nodes), tree, parent, critic_value, logp)
        self.nodes.append(node)
        return node

    def add_trees(self, n: int) -> np.ndarray:
        roots = [self._new(len(self.roots) + i, None) for i in range(n)]
        self.roots += roots
        return np.array([root.id for root in roots], dtype=np.uint32)

    def _score(self, node: Node, child: Node) -> float:
        visits_here = sum(sibling.started() for sibling in node.children)
        mean = child.value_sum() * (1 / max(1, child.started()))
        return mean + self.c_exp * math.sqrt(math.log(max(1, visits_here))) * (1 / math.sqrt(1 + child.started()))

    def _select(self, node: Node) -> Node:
        open_children = [child for child in node.children if not (self.exhaust and child.exhausted())]
        fresh = [child for child in open_children if child.started() == 0]
        if self.unvisited == "first" and fresh:
            return fresh[0]
        return max(open_children, key=lambda child: (self._score(node, child), -child.started(), -child.id))

    def ask(self, trees: list[int], n: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        leaves: list[Node] = []
        status = []
        for tree in trees:
            status.append(self._ask_tree(self.roots[tree], n, leaves))
        return (
            np.array([leaf.tree for leaf in leaves], dtype=np.int32),
            np.array([leaf.id for leaf in leaves], dtype=np.uint32),
            np.array([len(leaf.path()) - 1 for leaf in leaves], dtype=np.int32),
            np.array(status, dtype=np.uint8),
        )

    def _ask_tree(self, root: Node, n: int, leaves: list[Node]) -> int:
        for _ in range(n):
            if self.exhaust and root.exhausted():
                return 1
            node = root
            while node.children:
                node = self._select(node)
            if node.in_flight:
                return 2
            leaves.append(node)
            for step in node.path():
                step.in_flight += 1
        return 0

    def extend(self, nodes: list[int]) -> None:
        for node in nodes:
            self.nodes[node].in_flight += 1

    def expand(self, nodes: list[int], widths: list[int], critic_values: list[float], logps: list[float]) -> np.ndarray:
        given = iter(zip(critic_values, logps, strict=True))
        for index, width in zip(nodes, widths, strict=True):
            node = self.nodes[index]
            node.children = [self._new(node.tree, node, *next(given)) for _ in range(width)]
        return np.array([self.nodes[index].children[0].id for index in nodes], dtype=np.uint32)

    def set_terminal(self, nodes: list[int]) -> None:
        for node in nodes:
            self.nodes[node].terminal = True

    def tell(self, nodes: list[int], returns: list[float]) -> None:
        for index, value in zip(nodes, returns, strict=True):
            node = self.nodes[index]
            node.told_terminal = node.told_terminal or node.terminal
            for step in node.path():
                step.returns.append(value)
                step.in_flight -= 1

    def cancel(self, nodes: list[int]) -> None:
        for node in nodes:
            for step in self.nodes[node].path():
                step.in_flight -= 1

    def pairs(
        self, *, alpha: float, threshold: float, min_visits: int = 1, max_pairs_per_node: int = 0
    ) -> list[tuple[int, int, int, float]]:
        """(node, chosen, rejected, gap) in the order of the compiled forest."""

        def blended(node: Node) -> float:
            mean = node.value_sum() / len(node.returns) if node.returns else 0.0
            return alpha * mean + (1 - alpha) * node.critic_value

        found = []
        for node in self.nodes:
            explored = [child for child in node.children if len(child.returns) >= min_visits]
            here = []
            for a, b in combinations(explored, 2):
                better, worse = (a, b) if blended(a) > blended(b) else (b, a)
                gap = blended(better) - blended(worse)
                if gap > 0 and gap >= threshold:
                    here.append((node.id, better.id, worse.id, gap))
            here.sort(key=lambda pair: (-pair[3], pair[1], pair[2]))
            found += here[:max_pairs_per_node] if max_pairs_per_node else here
        return found

    def columns(self) -> dict[str, list[float]]:
        """Every column of the compiled forest, by name."""
        flags: list[float] = [n.terminal + 2 * (self.exhaust and n.exhausted()) for n in self.nodes]
        return {
            "parent": [NO_NODE if n.parent is None else n.parent.id for n in self.nodes],
            "tree": [n.tree for n in self.nodes],
            "first_child": [n.children[0].id if n.children else NO_NODE for n in self.nodes],
            "child_count": [len(n.children) for n in self.nodes],
            "depth": [len(n.path()) - 1 for n in self.nodes],
            "visit_count": [len(n.returns) for n in self.nodes],
            "value_sum": [n.value_sum() for n in self.nodes],
            "mean_value": [n.value_sum() / len(n.returns) if n.returns else 0.0 for n in self.nodes],
            "critic_value": [n.critic_value for n in self.nodes],
            "logp": [n.logp for n in self.nodes],
            "in_flight": [n.in_flight for n in self.nodes],
            "flags": flags,
        }
