"""The compiled search core.

Errors: ValueError for a wrong value, IndexError for a node or tree that does not exist, MemoryError for what would pass
`max_bytes`. A call that raises has changed nothing.

A node is a history; a node that is no root is also the action (edge) that leads to it, taken at its parent. Node ids
are below 2**31 and never change but by `reroot` and `from_bytes`; not every number is a node. Children that `expand`
makes have ids one after the other, best critic rank first; those that `widen` adds lie elsewhere.

A rollout is *pending* at one node, and *in flight* on the whole path from there to the root, from `ask` until `tell` or
`cancel`. It counts as a visit worth 0 meanwhile (virtual loss 0). A *ticket* names one rollout of one forest and is
good once: told, cancelled or dropped with its tree, it is refused, whatever lies in its place by then. A ticket of
another forest is refused too, even of a copy. Tickets are below 2**63 and differ from run to run: a process repeats
none before 2**35 have been given, and accepts one of another process with a probability of 2**-35. A forked process
has a copy of each forest, which accepts the tickets given before the fork.

What else is random ("gumbel", "thompson_*") comes from `seed` alone: the same calls give the same forest. Two threads
on one forest take turns; long calls release the GIL.
"""

from collections.abc import Sequence
from typing import Any, Final, Literal, TypeAlias

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

def ucb1_score(mean_value: float, parent_visit_count: int, visit_count: int, c_exp: float) -> float:
    """UCB1 score of one edge (h, a); selection takes the edge with the largest.

        Q(h, a) + c_exp * sqrt( ln max(1, N(h)) / (1 + N(h, a)) )

    Args:
        mean_value: Q(h, a), in reward units.
        parent_visit_count: N(h) = sum over a of N(h, a), at least 0; 0 counts as 1, for ln 0 is not finite (ours).
        visit_count: N(h, a), at least 0.
        c_exp: exploration constant, at least 0, in reward units.

    Source: Putta et al. 2024, arXiv:2408.07199, eq. 7; the `1 +` is theirs.
    """

class Forest:
    """Many search trees in one arena.

    Args:
        selection: how a child is chosen, from Q, the rollouts started n = N(h, a) and N(h) = their sum over all
            children. Rollouts in flight are started ones. Ties: fewer started, then lower index.

            - "ucb1": Q + c_exp * sqrt(ln max(1, N(h)) / (1 + n)). Putta et al. 2024, arXiv:2408.07199, eq. 7.
            - "uct": Q + c_exp * sqrt(ln max(1, N(h)) / n), unvisited first. Kocsis and Szepesvari 2006, c_exp = 2 C_p.
            - "puct": Q + c_exp * P(a | h) * sqrt(max(1, N(h))) / (1 + n). Silver et al. 2017, AlphaGo Zero.
            - "best_first": no rule of a node; the leaf of the tree with the largest critic_value that is not in flight,
              then the lowest id. Koh et al. 2024, arXiv:2407.01476: a child's critic_value is its parent's value there.
            - "gumbel": at the root sequential halving of `num_simulations` rollouts over the `max_considered` children
              with the largest g + log P(a | h), g standard Gumbel; below, rollouts in proportion to the improved
              policy. Ask `recommend` for the action. Danihelka et al. 2022, with mctx's constants.
            - "thompson_gaussian", "thompson_beta": at each node a draw decides between a new child and those there are,
              and then between these. A rollout may so end at a node that has children: give it one more by `widen`.
              AB-MCTS-A, Inoue et al. 2025, arXiv:2503.04412. Prior of a mean: normal inverse gamma (0, 1, 1, 0.1), or
              Beta(1/2, 1/2), for returns in [0, 1]. Needs no c_exp.
        c_exp: exploration constant, finite, at least 0, in reward units.
        exhaust: selection passes over exhausted nodes. Without it a terminal leaf may be asked again and again; the
            caller then tells the return it got the first time.
        seed: of the draws of "gumbel" and "thompson_*", in [0, 2**64).
        num_simulations, max_considered: of "gumbel", at least 1.
        gumbel_scale: of "gumbel": the noise at the root times this, at least 0; 0 for evaluation.
        max_bytes: most memory of the trees, from 4096 to 2**35. That much address space is reserved, not used.
    """

    def __init__(
        self,
        *,
        selection: Literal[
            "ucb1", "uct", "puct", "best_first", "gumbel", "thompson_gaussian", "thompson_beta"
        ] = "ucb1",
        c_exp: float = 1.0,
        exhaust: bool = True,
        seed: int = 0,
        num_simulations: int = 0,
        max_considered: int = 16,
        gumbel_scale: float = 1.0,
        max_bytes: int = 2**33,
    ) -> None: ...
    def add_trees(self, n: int) -> NDArray[np.int32]:
        """Plants n trees, each a root alone. Returns their ids `[n]`: on from the last, never reused."""

    def drop(self, trees: Ids) -> None:
        """Gives trees up: nodes and tickets are no more, memory is used again or given back to the system."""

    def root(self, tree: int) -> int:
        """The root node of a tree."""

    def ask(
        self, trees: Ids, n: int = 1
    ) -> tuple[NDArray[np.uint64], NDArray[np.uint32], NDArray[np.int32], NDArray[np.int32], NDArray[np.uint8]]:
        """Descends to up to n leaves of each tree listed and puts the path to each, root included, in flight.

        Returns ticket, node, tree and depth of each leaf `[M]`, those of one tree together in the order found, and a
        status for each tree listed: OK, ALL_EXHAUSTED or BLOCKED. A leaf that is already in flight ends its tree's
        batch. A tree is listed once.
        """

    def ask_one(self, tree: int) -> tuple[int, int] | None:
        """(ticket, node) of one leaf, without arrays; None where there is none, and the status of `ask` says why."""

    def extend(self, tickets: Ids, ranks: Ids) -> NDArray[np.uint32]:
        """Moves each rollout from its node to that node's child `ranks[i]`. Returns the children."""

    def expand(
        self,
        tickets: Ids,
        widths: Ids,
        critic_values: Numbers | None = None,
        priors: Numbers | None = None,
    ) -> NDArray[np.uint32]:
        """Gives the leaf of each ticket its children, `widths[i]` of them, 1 to 65535.

        Args:
            critic_values: one per child, node after node, best critic rank first; finite. None: 0.
            priors: P(a | h) for "puct" and "gumbel", finite. None: 1 / width.

        Returns:
            The first child of each `[len(tickets)]`; the others follow it. NO_NODE where `max_bytes` leaves no room:
            the node stays a leaf that can be told like any other.
        """

    def expand_one(self, ticket: int, width: int) -> int | None:
        """`expand` of one leaf, without arrays and values; returns the first child, None where there is no room."""

    def widen(
        self,
        tickets: Ids,
        critic_values: Numbers | None = None,
        priors: Numbers | None = None,
    ) -> NDArray[np.uint32]:
        """Gives the node of each ticket one more child, its last, and moves the rollout there.

        The node may be a leaf or have children; it and those above it are exhausted no more. A ticket is listed once.
        One value per ticket; a prior's default is 1 / children. Returns the new children; NO_NODE where `max_bytes`
        leaves no room: the rollout stays.
        """

    def recommend(self, trees: Ids) -> NDArray[np.uint32]:
        """The child of each tree's root to take; NO_NODE where nothing has been told of any.

        Of the children told of, the first in the order of

            1. the largest return of an ended episode told below it, since the same actions lead there again
               (with `exhaust`)
            2. not exhausted before exhausted: of the latter nothing better is left to find
            3. visit_count, then the mean value W / N, then the lower index

        With "gumbel", the largest g + log P + sigma(Q) in place of the mean value.

        Source: 3. is AlphaZero's (Silver et al. 2017) and mctx's. It is wrong where what has ended is not visited
        again: a success found at once has one visit, its failing siblings have more. 1. is the best line of
        single-player search (Schadd et al. 2008); that a proven child wins is also MCTS-Solver's (Winands et al. 2008).
        2. is ours.
        """

    def set_terminal(self, tickets: Ids) -> None:
        """The episode ended in these leaves. With `exhaust` they are exhausted once they are told."""

    def tell(self, tickets: Ids, returns: Numbers) -> None:
        """Ends rollouts: N += 1, W += return, in_flight -= 1 from their nodes to the root. Returns are finite."""

    def tell_one(self, ticket: int, value: float) -> None:
        """`tell` of one rollout, without arrays."""

    def cancel(self, tickets: Ids) -> None:
        """Ends rollouts as if they had never been asked."""

    def abandon(self, tickets: Ids) -> None:
        """`cancel`, and closes the leaves: terminal and exhausted without a visit, they are never asked again.

        Raises ValueError for a node with children, and without `exhaust`.
        """

    def nodes_of(self, tickets: Ids) -> NDArray[np.uint32]:
        """Where the rollouts are pending."""

    def reroot(self, tree: int, node: int) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """Makes `node` the root of its tree and drops the rest. Nothing may be in flight in it.

        Returns old and new ids of every node kept, parents first: what is kept moves together.
        """

    def children(self, node: int) -> NDArray[np.uint32]:
        """The children of a node, in order."""

    def table(self, trees: int | Ids | None = None) -> dict[str, NDArray[Any]]:
        """One tree, several or all (None) as columns `[n]`, tree after tree.

        In each tree parents come before children, the children of a node together and in order. tree, id, parent (a row
        of this table; -1 for a root), depth, visit_count (N: told), in_flight, value_sum (W), critic_value, prior,
        flags (TERMINAL, EXHAUSTED).
        """

    def to_bytes(self) -> bytes:
        """A snapshot: versioned, with a checksum; what is in flight is saved as cancelled."""

    @staticmethod
    def from_bytes(data: bytes) -> Forest:
        """The forest of `to_bytes`, laid anew: nodes have other ids, and `table` lists them in the same order.

        One that had nearly reached `max_bytes` may not fit anew, which is a ValueError.

        Raises ValueError for bytes that are no snapshot, are damaged, hold a forest that no calls can have made, or
        were written by another version.
        """

    # By node id, rows that are no node have no meaning: read-only views without a copy, which see what comes after.
    @property
    def value_sum(self) -> NDArray[np.float64]:
        """W: the sum of the returns told through a node."""
    @property
    def visits_started(self) -> NDArray[np.uint32]:
        """visit_count + in_flight of a node."""
    @property
    def trees(self) -> NDArray[np.int32]:
        """Ids of the trees that have not been dropped."""
    @property
    def num_nodes(self) -> int: ...
    @property
    def num_in_flight(self) -> int: ...
    @property
    def bytes_in_use(self) -> int:
        """What counts against `max_bytes`: the memory of trees not dropped."""
    @property
    def selection(self) -> str: ...
    @property
    def c_exp(self) -> float: ...
    @property
    def exhaust(self) -> bool: ...
    @property
    def seed(self) -> int: ...
    @property
    def num_simulations(self) -> int: ...
    @property
    def max_considered(self) -> int: ...
    @property
    def gumbel_scale(self) -> float: ...
    @property
    def max_bytes(self) -> int: ...
