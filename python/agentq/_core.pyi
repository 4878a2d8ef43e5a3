"""The compiled search core.

Errors: ValueError for a wrong value, IndexError for a node or tree that does not exist, MemoryError for what would pass
`max_bytes`. A call that raises has changed nothing.

A node is a history; a node that is no root is also the action (edge) that leads to it, taken at its parent. Node ids
are below 2**31 and never change but by `reroot`; not every number is a node. The children that `expand` gives a node
have ids one after the other, best critic rank first; those that `widen` adds lie elsewhere.

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
from os import PathLike
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

def attend_rows(
    query: NDArray[np.float32],
    key: NDArray[np.float32],
    value: NDArray[np.float32],
    states: Sequence[NDArray[np.float32]],
    starts: Sequence[int],
    stops: Sequence[int],
    lengths: Sequence[int],
    visible: Sequence[NDArray[np.bool_] | None],
    scale: float,
) -> NDArray[np.float32]:
    """Attention of few new tokens per row, each row over its own cache, into which their keys and values are put.

        out[t, h] = sum_j softmax_j(scale * query[h, t] . key_j) value_j   over the keys j of its row that t sees

    Args:
        query: `[groups * heads, T, size]`.
        key: `[heads, T, size]`; query head h reads key head h // groups.
        value: `[heads, T, size]`.
        states: of each row, `[2, heads, room, size]`, changed in place: keys, then values.
        starts: of each row, its first token of the T.
        stops: one past its last token.
        lengths: how many keys it has with the new ones, which come last.
        visible: `[stop - start, length]`, which keys a token sees; None: all.
        scale: of the scores.

    Returns:
        `[T, groups * heads, size]`; tokens of no row are not set.
    """

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
        unvisited: "formula" scores an edge without visits like any other (Agent Q's 1 + N); "first" takes it first,
            lowest index first.
        exhaust: selection passes over exhausted nodes. Without it a terminal leaf may be asked again and again; the
            caller then tells the return it got the first time.
        backup: "mean": Q = W / max(1, n), W the sum of returns. "max": W and Q are the largest return told (0: none).
        discount: in (0, 1]; a return counts discount**d at d edges above the node it was told at.
        alpha: in [0, 1]; selection sees alpha * Q + (1 - alpha) * critic_value. Putta et al. 2024, eq. 10.
        squares: keep the sum of squared returns of every node, for its variance; 8 bytes more a node. Always with
            "thompson_gaussian".
        success_at: keep how many returns of every node were at least this, told at or below it; 4 bytes more a node.
        transpositions: Q of a child is that of its state (`set_states`), over all nodes of the tree that are
            this state; n and N(h) stay the edges' own. For "ucb1", "uct", "puct". Childs et al. 2008, UCT2.
        seed: of the draws of "gumbel" and "thompson_*", in [0, 2**64).
        num_simulations, max_considered: of "gumbel", at least 1.
        gumbel_scale: of "gumbel": the noise at the root times this, at least 0; 0 for evaluation.
        threads: that one call on many trees may use, the caller's among them; 1 to 1024. Changes nothing but time.
        max_bytes: most memory of the trees, from 4096 to 2**35. That much address space is reserved, not used.
    """

    def __init__(
        self,
        *,
        selection: Literal[
            "ucb1", "uct", "puct", "best_first", "gumbel", "thompson_gaussian", "thompson_beta"
        ] = "ucb1",
        c_exp: float = 1.0,
        unvisited: Literal["formula", "first"] = "formula",
        exhaust: bool = True,
        backup: Literal["mean", "max"] = "mean",
        discount: float = 1.0,
        alpha: float = 1.0,
        squares: bool = False,
        success_at: float | None = None,
        transpositions: bool = False,
        threads: int = 1,
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
        self, trees: Ids, n: int | Ids = 1
    ) -> tuple[NDArray[np.uint64], NDArray[np.uint32], NDArray[np.int32], NDArray[np.int32], NDArray[np.uint8]]:
        """Descends to up to n leaves of each tree listed and puts the path to each, root included, in flight.

        One n for all trees, at least 1, or one for each, at least 0.

        Returns ticket, node, tree and depth of each leaf `[M]`, those of one tree together in the order found, and a
        status for each tree listed: OK, ALL_EXHAUSTED or BLOCKED. A leaf that is already in flight ends its tree's
        batch. A tree is listed once.
        """

    def ask_one(self, tree: int) -> tuple[int, int]:
        """(ticket, node) of one leaf, without arrays; where there is none, (0, -ALL_EXHAUSTED) or (0, -BLOCKED)."""

    def extend(self, tickets: Ids, ranks: Ids | None = None) -> NDArray[np.uint32]:
        """Moves each rollout from its node to that node's child `ranks[i]`; None: the first. Returns the children."""

    def expand(
        self,
        tickets: Ids,
        widths: Ids,
        critic_values: Numbers | None = None,
        logps: Numbers | None = None,
        priors: Numbers | None = None,
    ) -> NDArray[np.uint32]:
        """Gives the leaf of each ticket its children, `widths[i]` of them, 1 to 65535.

        Args:
            critic_values: one a child, node after node, best critic rank first; finite. None: 0.
            logps: log pi_b(a | h) in nats, only stored. None: 0.
            priors: P(a | h) for "puct", finite. None: 1 / width.

        Returns:
            The first child of each `[len(tickets)]`; the others follow it. NO_NODE where `max_bytes` leaves no room:
            the node stays a leaf that can be told like any other.
        """

    def expand_one(self, ticket: int, width: int) -> int:
        """`expand` of one leaf, without arrays and values; returns the first child."""

    def widen(
        self,
        tickets: Ids,
        critic_values: Numbers | None = None,
        logps: Numbers | None = None,
        priors: Numbers | None = None,
    ) -> NDArray[np.uint32]:
        """Gives the node of each ticket one more child, its last, and moves the rollout there.

        The node may be a leaf or have children; it and those above it are exhausted no more. A ticket is listed once.
        One value a ticket; a prior's default is 1 / children. Returns the new children; NO_NODE where `max_bytes`
        leaves no room: the rollout stays.
        """

    def recommend(self, trees: Ids) -> NDArray[np.uint32]:
        """The child of each tree's root that the search has come to; NO_NODE where the root is a leaf.

        The one with the most rollouts, then the largest mean, then the lowest index; with "gumbel", of those with the
        most rollouts the largest g + log P + sigma(Q).
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

    def prune(self, node: int) -> None:
        """Cuts off what is below a node; its own numbers stay. Nothing may be in flight through it."""

    def reroot(self, tree: int, node: int) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """Makes `node` the root of its tree and drops the rest. Nothing may be in flight in it.

        Returns old and new ids of every node kept, parents first: what is kept moves together.
        """

    def merge(self, tree: int, other: int) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """Lays tree `other` over `tree`, which keeps its id, and drops it. Nothing may be in flight in either.

        Roots are laid on each other, then children whose states are the same (`set_states`); the other's remaining
        children come after the tree's own. N, W and what is beside them add up; critic values, logps and priors are
        the tree's own where both have some. Returns old and new ids of every node of both, parents first.
        """

    def set_states(self, nodes: Ids, keys: Ids) -> None:
        """Says which state each node is by a key in [0, 2**64), for example a hash of its page.

        Nodes of a tree with equal keys are one state, whose returns `states` adds up and `transpositions` selects by.
        A node is one state for good; saying it again changes nothing.
        """

    def states(self, tree: int) -> tuple[NDArray[np.uint64], NDArray[np.uint32], NDArray[np.float64]]:
        """Key, rollouts started (as `started`) and W of each state of a tree, in the order they came up.

        What was told of nodes that have been cut off since stays with their state.
        """

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

        Every pair of children with N >= min_visits each, gap >= threshold and gap > 0; trees in order, parents before
        children, within a node the largest gap first, ties by lower chosen, then lower rejected. `max_pairs_per_node`
        0 keeps all; `trees` None takes all. Time and memory grow with the children and the pairs returned. A call that
        would return more than 2**26 pairs raises ValueError.

        Source: Putta et al. 2024, arXiv:2408.07199, eq. 10 and algorithm 1.
        """

    def path(self, node: int) -> NDArray[np.uint32]:
        """The nodes from the root to `node`, both included `[depth + 1]`."""

    def children(self, node: int) -> NDArray[np.uint32]:
        """The children of a node, in order."""

    def table(self, trees: int | Ids | None = None) -> dict[str, NDArray[Any]]:
        """One tree, several or all (None) as columns `[n]`, tree after tree.

        In each tree parents come before children, the children of a node together and in order. tree, id, parent (a row
        of this table; -1 for a root), depth, visit_count (N: told), in_flight, value_sum (W), square_sum (W2, with
        `squares`; the variance of returns is W2 / N - (W / N)**2), own_count and own_sum (the part of N and W that
        was told at the node itself, not deeper; own_sum not with backup "max"), successes (with `success_at`), state
        (a row of `states`, -1 for none), critic_value, logp, prior, flags (TERMINAL, EXHAUSTED).
        """

    def to_bytes(self) -> bytes:
        """A whole snapshot: versioned, with a checksum; what is in flight is saved as cancelled. Ids stay the same."""

    @staticmethod
    def from_bytes(data: bytes) -> Forest:
        """The forest of `to_bytes`, or of a file that `save` wrote.

        A last record that is cut off or was never finished is left out: the forest is as it was saved before. Raises
        ValueError for bytes that are no snapshot, are damaged anywhere else, hold a forest that no calls can have made,
        or were written by another version.
        """

    def save(self, path: str | PathLike[str]) -> None:
        """Saves to a file, which has reached the disk when this returns; where nothing changed nothing is written.

        Where the file is what this forest loaded or saved last, and still as it was left (as long, the same last
        checksum), a record of what changed goes behind what is there: the pages of 256 cells and the trees that differ.
        Else, or if the file would become more than twice as long as a whole snapshot, or a column has been added (the
        first critic value, say), a whole one is written beside, as `path` + ".NUMBER.partial", and renamed. A kill or a
        power cut leaves the file as it was or as it is to be; a kill may leave the ".partial" file behind. One writer
        at a time.

        Raises OSError, also if there is anything but a regular file at `path`: a symbolic link is not followed. Raises
        ValueError if the path contains a null byte.
        """

    @staticmethod
    def load(path: str | PathLike[str]) -> Forest:
        """`from_bytes` of a regular file; saving there again writes what changed. Raises OSError too."""

    # By node id, rows that are no node have no meaning: read-only views without a copy, which see what comes after.
    @property
    def value_sum(self) -> NDArray[np.float64]:
        """W: the sum of the returns told through a node (with backup "max" the largest, -inf where there is none)."""
    @property
    def started(self) -> NDArray[np.uint32]:
        """Rollouts told through a node, and those in flight."""
    @property
    def trees(self) -> NDArray[np.int32]:
        """Ids of the trees that have not been dropped."""
    @property
    def num_nodes(self) -> int: ...
    @property
    def num_trees(self) -> int: ...
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
    def unvisited(self) -> str: ...
    @property
    def exhaust(self) -> bool: ...
    @property
    def backup(self) -> str: ...
    @property
    def discount(self) -> float: ...
    @property
    def alpha(self) -> float: ...
    @property
    def squares(self) -> bool: ...
    @property
    def success_at(self) -> float | None: ...
    @property
    def transpositions(self) -> bool: ...
    @property
    def threads(self) -> int: ...
    @threads.setter
    def threads(self, threads: int) -> None: ...
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
