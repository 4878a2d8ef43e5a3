"""The compiled search core. Errors: ValueError for a wrong value, IndexError for an id that does not exist.

A node is a history; a node that is no root is also the action (edge) that leads to it, taken at its parent. Node ids
are global over the forest, in order of birth (parent < child); the children of a node are contiguous, best critic rank
first.

A rollout is *pending* at one node, and *in flight* on the whole path from there to the root, from `ask` until `tell` or
`cancel`. It counts as a visit worth 0 meanwhile (virtual loss 0). A call that raises has changed nothing. There is no
randomness: the same calls give the same forest. Calls release the GIL; two threads on one forest take turns.
"""

from collections.abc import Sequence
from os import PathLike
from typing import Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Ids: TypeAlias = NDArray[np.integer] | Sequence[int] | Sequence[np.integer]
Numbers: TypeAlias = NDArray[np.floating] | NDArray[np.integer] | Sequence[float] | Sequence[np.floating]

NO_NODE: Final[int]
"""2**32 - 1: the parent of a root, the first child of a leaf."""
TERMINAL: Final[int]
"""Bit of `flags`: the episode ends in this node."""
EXHAUSTED: Final[int]
"""Bit of `flags`: nothing is left to learn below; a terminal node once told, or a node whose children all are."""
OK: Final[int]
"""Status of `ask`: all n leaves were found."""
ALL_EXHAUSTED: Final[int]
"""Status of `ask`: the root is exhausted, no leaf came back."""
BLOCKED: Final[int]
"""Status of `ask`: selection met a leaf that is in flight, fewer than n leaves came back."""

def ucb1_score(mean_value: float, node_visits: int, edge_visits: int, c_exp: float) -> float:
    """UCB1 score of one edge (h, a); selection takes the edge with the largest.

        Q(h, a) + c_exp * sqrt( ln max(1, N(h)) / (1 + N(h, a)) )

    Args:
        mean_value: Q(h, a), in reward units.
        node_visits: N(h) = sum over a of N(h, a), at least 0; 0 counts as 1, for ln 0 is not finite (ours).
        edge_visits: N(h, a), at least 0.
        c_exp: exploration constant, at least 0, in reward units.

    Source: Putta et al. 2024, arXiv:2408.07199, eq. 7; the `1 +` is theirs.
    """

class Forest:
    """Many search trees in one arena.

    Args:
        selection: how a child is chosen. "ucb1" is `ucb1_score` over the rollouts started, in flight included:
            Q = W / max(1, N + in_flight), N(h) = the sum over all children. Ties: fewer started, then lower index.
        c_exp: exploration constant, finite, at least 0, in reward units.
        unvisited: "formula" scores an edge without visits like any other (Agent Q's 1 + N); "first" takes it first,
            lowest index first.
        exhaust: selection passes over exhausted nodes. Without it a terminal leaf may be asked again and again; the
            caller then tells the return it got the first time.
    """

    def __init__(
        self,
        *,
        selection: Literal["ucb1"] = "ucb1",
        c_exp: float = 1.0,
        unvisited: Literal["formula", "first"] = "formula",
        exhaust: bool = True,
    ) -> None: ...
    def add_trees(self, n: int) -> NDArray[np.uint32]:
        """Plants n trees, each a root alone; tree ids go on from the last. Returns the root nodes `[n]`."""

    def root(self, tree: int) -> int:
        """The root node of a tree."""

    def ask(
        self, trees: Ids, n: int = 1
    ) -> tuple[NDArray[np.int32], NDArray[np.uint32], NDArray[np.int32], NDArray[np.uint8]]:
        """Descends to up to n leaves of each tree listed and puts the path to each, root included, in flight.

        Returns tree, node and depth of each leaf `[M]`, those of one tree together in the order found, and a status
        for each tree listed: OK, ALL_EXHAUSTED or BLOCKED. A leaf that is already in flight ends its tree's batch.
        """

    def ask_one(self, tree: int) -> int:
        """One leaf of one tree, in flight, without arrays; where there is none, -ALL_EXHAUSTED or -BLOCKED."""

    def extend(self, nodes: Ids) -> None:
        """Moves one rollout pending at the parent of each node down to the node; entries are taken in order."""

    def expand(self, nodes: Ids, widths: Ids, critic_values: Numbers, logps: Numbers) -> NDArray[np.uint32]:
        """Gives each leaf its children; node i gets `widths[i]` of them, at least 1.

        `critic_values` and `logps` have one entry a child, node after node, best critic rank first; the first are
        finite, the second (nats) are only stored. A node must be a leaf and not terminal. Returns the first child of
        each node `[len(nodes)]`; the others follow it.
        """

    def expand_one(self, node: int, width: int) -> int:
        """Gives one leaf `width` children, at least 1, with critic values and logps 0; returns the first."""

    def set_terminal(self, nodes: Ids) -> None:
        """The episode ended in these leaves. With `exhaust` they are exhausted once they are told."""

    def tell(self, nodes: Ids, returns: Numbers) -> None:
        """Ends one rollout pending at each node: N += 1, W += return, in_flight -= 1 from there to the root.

        Returns are finite, in reward units. A node listed twice needs two pending rollouts.
        """

    def tell_one(self, node: int, value: float) -> None:
        """Ends one rollout pending at the node with this return."""

    def cancel(self, nodes: Ids) -> None:
        """Ends one rollout pending at each node as if it had never been asked."""

    def pairs(
        self,
        *,
        alpha: float,
        threshold: float,
        min_visits: int = 1,
        max_pairs_per_node: int = 0,
        trees: Ids | None = None,
    ) -> tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint32], NDArray[np.float64]]:
        """Preference pairs: (node, chosen child, rejected child, gap), parallel arrays.

            Q(h, a) = alpha * W(h, a) / N(h, a) + (1 - alpha) * critic_value(h, a),    gap = Q(chosen) - Q(rejected)

        Every pair of children with N >= min_visits each, gap >= threshold and gap > 0; nodes in order of id, within a
        node the largest gap first, ties by lower chosen, then lower rejected. `max_pairs_per_node` 0 keeps all;
        `trees` None takes all.

        Source: Putta et al. 2024, arXiv:2408.07199, eq. 10 and algorithm 1.
        """

    def path(self, node: int) -> NDArray[np.uint32]:
        """The nodes from the root to `node`, both included `[depth + 1]`."""

    def to_bytes(self) -> bytes:
        """A versioned snapshot with a checksum; what is in flight is saved as cancelled."""

    @staticmethod
    def from_bytes(data: bytes) -> Forest:
        """Raises ValueError for bytes that are no snapshot, are damaged, or were written by a newer agentq."""

    def save(self, path: str | PathLike[str]) -> None:
        """`to_bytes` to a file, written beside and renamed."""

    @staticmethod
    def load(path: str | PathLike[str]) -> Forest:
        """`from_bytes` of a file."""

    # Columns, by node id: read-only views without a copy. A view never dangles, but add_trees and expand may move the
    # forest to larger memory and leave an old view behind with the numbers of that moment: take it afresh after them.
    @property
    def parent(self) -> NDArray[np.uint32]:
        """NO_NODE for a root."""
    @property
    def tree(self) -> NDArray[np.int32]: ...
    @property
    def first_child(self) -> NDArray[np.uint32]:
        """NO_NODE for a leaf."""
    @property
    def child_count(self) -> NDArray[np.uint32]: ...
    @property
    def depth(self) -> NDArray[np.int32]:
        """Edges from the root."""
    @property
    def visit_count(self) -> NDArray[np.uint32]:
        """N: rollouts told through the node."""
    @property
    def value_sum(self) -> NDArray[np.float64]:
        """W: the sum of their returns."""
    @property
    def mean_value(self) -> NDArray[np.float64]:
        """W / N, 0 where N = 0. Computed: a copy."""
    @property
    def critic_value(self) -> NDArray[np.float32]: ...
    @property
    def logp(self) -> NDArray[np.float32]: ...
    @property
    def in_flight(self) -> NDArray[np.uint32]:
        """Rollouts through the node that were asked and neither told nor cancelled."""
    @property
    def flags(self) -> NDArray[np.uint8]:
        """TERMINAL and EXHAUSTED."""
    @property
    def num_nodes(self) -> int: ...
    @property
    def num_trees(self) -> int: ...
    @property
    def selection(self) -> Literal["ucb1"]: ...
    @property
    def c_exp(self) -> float: ...
    @property
    def unvisited(self) -> Literal["formula", "first"]: ...
    @property
    def exhaust(self) -> bool: ...
