"""The forest and its twin side by side, and small forests by hand."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np

from agentq._core import NO_NODE, Forest
from tests.reference.mcts import Node, ReferenceForest


class Twins:
    """Every call goes to both; what comes back must agree. Trees are numbers, tickets are the forest's."""

    def __init__(self, **settings: Any) -> None:
        self.forest = Forest(**settings)
        self.reference = ReferenceForest(**{k: v for k, v in settings.items() if k != "max_bytes"})
        self.roots: dict[int, Node] = {}
        self.planted = 0
        self.tickets: dict[int, list[Node]] = {}  # in flight
        self.ids: dict[Node, int] = self.reference.ids

    def node(self, ticket: int) -> Node:
        return self.tickets[ticket][0]

    def add_trees(self, n: int) -> None:
        assert self.forest.add_trees(n).tolist() == [self.planted + i for i in range(n)]
        for _ in range(n):
            self.roots[self.planted] = root = self.reference.born(None)
            root.tree = self.planted
            self.ids[root] = self.forest.root(self.planted)
            self.planted += 1

    def ask(self, trees: Sequence[int], n: int = 1) -> list[int]:
        tickets, nodes, asked, depths, status = (a.tolist() for a in self.forest.ask(list(trees), n))
        want = [self.reference.ask(self.roots[tree], n) for tree in trees]
        assert status == [why for _, why in want]
        leaves = [(tree, t) for tree, (found, _) in zip(trees, want, strict=True) for t in found]
        assert asked == [tree for tree, _ in leaves]
        assert nodes == [self.ids[t[0]] for _, t in leaves]
        assert depths == [len(t[0].path()) - 1 for _, t in leaves]
        assert not set(tickets) & set(self.tickets)
        self.tickets |= dict(zip(tickets, (t for _, t in leaves), strict=True))
        return tickets

    def expand(self, tickets: Sequence[int], rows: Sequence[Sequence[tuple[float, float]]]) -> None:
        """Each leaf gets a child per row: (critic value, prior)."""
        flat = np.array([row for rows_ in rows for row in rows_], np.float32).reshape(-1, 2)
        first = self.forest.expand(list(tickets), [len(r) for r in rows], flat[:, 0], flat[:, 1])
        for ticket, rows_, block in zip(tickets, rows, first.tolist(), strict=True):
            columns = np.array(rows_, np.float32).T.astype(float).tolist()
            self.reference.expand(self.tickets[ticket], *columns)
            children = self.node(ticket).children
            self.ids |= {child: block + i for i, child in enumerate(children)}
            assert self.forest.children(self.ids[self.node(ticket)]).tolist() == [self.ids[c] for c in children]

    def widen(self, ticket: int, values: tuple[float, float]) -> None:
        critic, prior = np.array(values, np.float32)
        (child,) = self.forest.widen([ticket], [critic], [prior]).tolist()
        node = self.node(ticket)
        self.reference.widen(self.tickets[ticket], float(critic), float(prior))
        self.ids[self.node(ticket)] = child
        assert self.forest.nodes_of([ticket])[0] == child
        assert self.forest.children(self.ids[node]).tolist() == [self.ids[c] for c in node.children]

    def extend(self, ticket: int, rank: int) -> None:
        (moved,) = self.forest.extend([ticket], [rank]).tolist()
        self.reference.extend(self.tickets[ticket], rank)
        assert moved == self.ids[self.node(ticket)] == self.forest.nodes_of([ticket])[0]

    def set_terminal(self, ticket: int) -> None:
        self.forest.set_terminal([ticket])
        self.node(ticket).terminal = True

    def tell(self, tickets: Sequence[int], values: Sequence[float]) -> None:
        self.forest.tell(list(tickets), list(values))
        for ticket, value in zip(tickets, values, strict=True):
            self.reference.tell(self.tickets.pop(ticket), value)

    def cancel(self, tickets: Sequence[int]) -> None:
        self.forest.cancel(list(tickets))
        for ticket in tickets:
            self.reference.cancel(self.tickets.pop(ticket))

    def drop(self, tree: int) -> list[int]:
        """Returns the tickets that are now stale."""
        self.forest.drop([tree])
        root = self.roots.pop(tree)
        stale = [ticket for ticket, (node,) in self.tickets.items() if node.path()[-1] is root]
        for ticket in stale:
            del self.tickets[ticket]
        return stale

    def reroot(self, tree: int, node: Node) -> None:
        old, new = (a.tolist() for a in self.forest.reroot(tree, self.ids[node]))
        node.parent, node.tree, node.reroots = None, tree, self.roots[tree].reroots + 1
        node.base = sum(child.visits_started() for child in node.children)
        moved = dict(zip(old, new, strict=True))
        assert sorted(old) == sorted(self.ids[n] for n in node.below())
        self.ids |= {n: moved[self.ids[n]] for n in node.below()}
        self.roots[tree] = node

    def loaded(self) -> Twins:
        """The same with the forest out of its snapshot, nothing being in flight."""
        other = copy(self)
        other.forest = Forest.from_bytes(self.forest.to_bytes())
        other.ids = {}
        for tree, root in self.roots.items():
            other.ids |= dict(zip(root.below(), other.forest.table(tree)["id"].tolist(), strict=True))
        return other

    def check(self) -> None:
        """Tables, counts and recommendations of both."""
        forest = self.forest
        assert forest.trees.tolist() == sorted(self.roots)
        assert forest.num_nodes == sum(len(root.below()) for root in self.roots.values())
        for tree, root in self.roots.items():
            table = forest.table(tree)
            assert table["id"].tolist() == [self.ids[node] for node in root.below()]
            for name, want in self.reference.table(root).items():
                np.testing.assert_array_equal(table[name], want, err_msg=name)
            best = self.reference.recommend(root)
            assert forest.recommend([tree]).tolist() == [NO_NODE if best is None else self.ids[best]]
            started = table["visit_count"] + table["in_flight"]
            np.testing.assert_array_equal(forest.visits_started[table["id"]], started)


def state(forest: Forest) -> tuple[bytes, list[list[int]]]:
    """All that can be seen of a forest, what is in flight included."""
    return forest.to_bytes(), [forest.table(tree)["in_flight"].tolist() for tree in forest.trees]


def fan(width: int = 3, **settings: Any) -> Forest:
    """Tree 0: a root with `width` children; critic values fall linearly from 1 to 0. Nothing is in flight or told."""
    forest = Forest(**settings)
    forest.add_trees(1)
    tickets = forest.ask([0])[0]
    forest.expand(tickets, [width], np.linspace(1, 0, width))
    forest.cancel(tickets)
    return forest


def child(forest: Forest, rank: int) -> int:
    """The id of a child of root 0."""
    return int(forest.children(forest.root(0))[rank])


def visit(forest: Forest, rank: int, value: float) -> None:
    """Tells one rollout at a child of root 0, whatever selection would have taken: asks until it is in flight."""
    asked: dict[int, int] = {}
    while child(forest, rank) not in asked:
        tickets, nodes, *_ = forest.ask([0], 1)
        assert len(tickets), "a fan with c_exp 0 and fresh children hands out every child"
        asked[int(nodes[0])] = int(tickets[0])
    forest.tell([asked.pop(child(forest, rank))], [value])
    forest.cancel(list(asked.values()))
