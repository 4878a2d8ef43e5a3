"""The compiled search core.

Errors: ValueError for a wrong value, IndexError for a node or tree that does not exist, MemoryError if `max_bytes`
would be exceeded. A call that raises has changed nothing.

A node is a history. A node other than a root is also the action (edge), taken at its parent, that leads to it. Node ids
are below 2**31; only `reroot` and `from_bytes` change them, and not every number is a node. Children that `expand`
makes have consecutive ids, best critic rank first. Children that `widen` adds have other ids.

A rollout is *pending* at one node, and *in flight* on the whole path from there to the root, from `ask` until `tell` or
`cancel`. Meanwhile it counts as a visit worth 0 (virtual loss 0). A *ticket* names one rollout of one forest and is
valid once: after it is told, cancelled or dropped with its tree, it is refused. A ticket of another forest is refused
too, even if that forest is a copy. Tickets are below 2**63 and differ from run to run. A process repeats none before it
has given out 2**35, and accepts a ticket of another process with probability 2**-35. A forked process has a copy of
each forest, which accepts the tickets given before the fork.

All other randomness ("gumbel", "thompson_*") comes from `seed`: the same calls give the same forest. Two threads on one
forest take turns; long calls release the GIL.
"""

from collections.abc import Sequence
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Ids: TypeAlias = NDArray[np.integer] | Sequence[int] | Sequence[np.integer]
Numbers: TypeAlias = NDArray[np.floating] | NDArray[np.integer] | Sequence[float] | Sequence[np.floating]

NO_NODE: Final[int]  # 2**32 - 1: the parent of a root, the first child of a leaf
TERMINAL: Final[int]  # bit of `flags`: the episode ends at this node
EXHAUSTED: Final[int]
"""Bit of `flags`: nothing is left to learn below, because the node is terminal and told, or its children all are."""
OK: Final[int]  # status of `ask`: all n leaves were found
ALL_EXHAUSTED: Final[int]  # status of `ask`: the root is exhausted; no leaf was found
BLOCKED: Final[int]  # status of `ask`: selection met a leaf in flight; fewer than n leaves were found

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
    """Attention of the new tokens of rows over each row's own cache. Appends their keys and values to the cache.

        out[t, h] = sum_j softmax_j(scale * query[h, t] . key_j) value_j   over the row's keys j that t sees

    Args:
        query: `[groups * heads, T, size]`.
        key: `[heads, T, size]`; query head h reads key head h // groups.
        value: `[heads, T, size]`.
        states: one cache per row, `[2, heads, room, size]`, changed in place: keys, then values.
        starts: index of each row's first token among the T.
        stops: index one past each row's last token.
        lengths: number of keys per row, including the new ones, which come last.
        visible: per row `[stop - start, length]`, True where a token sees a key; None: itself and all earlier keys.
        scale: factor of the scores.

    Returns:
        `[T, groups * heads, size]`; tokens outside every row are not set.
    """

def draw_tokens(
    logits: NDArray[np.float32],
    allowed: NDArray[np.float32],
    uniforms: NDArray[np.float64],
    temperatures: NDArray[np.float64],
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Tokens drawn by inverting the cumulative distribution, and their log-probabilities at temperature 1.

    Args:
        logits: `[N, V]`.
        allowed: `[N, V]` the same logits, with minus infinity for forbidden tokens.
        uniforms: `[N, M]` in [0, 1).
        temperatures: `[N]` at least 0; 0 takes the likeliest token.

    Returns:
        Tokens `[N, M]` and log-probabilities `[N, M]` in nats.
    """

class Llama:
    """The Llama decoder in float32, computed by one thread.

    x += W_o attend(rope(W_q n(x)), rope(W_k n(x)), W_v n(x))        n: root mean square norm, times its weight
    x += W_down (silu(W_gate n(x)) * W_up n(x))
    """

    def __init__(
        self,
        layers: Sequence[tuple[NDArray[np.float32], ...]],
        norm: NDArray[np.float32],
        heads: int,
        key_heads: int,
        eps: float,
        scale: float,
    ) -> None:
        """Copy the weights.

        Args:
            layers: per layer its norm, qkv, o, the MLP's norm, gate_up and down. Matrices are `[out, in]`; those of
                several projections follow one another.
            norm: `[width]` weight of the last norm.
            heads: query heads, a multiple of `key_heads`.
            key_heads: heads of keys and values.
            eps: of the norms.
            scale: factor of the attention scores.
        """

    def decode(
        self,
        x: NDArray[np.float32],
        cos: NDArray[np.float32],
        sin: NDArray[np.float32],
        states: Sequence[NDArray[np.float32]],
        counts: Sequence[int],
        lengths: Sequence[int],
        opens: Sequence[int],
        visible: Sequence[NDArray[np.bool_] | None],
    ) -> NDArray[np.float32]:
        """Last hidden states of the tokens of rows that have a mask, and of the last token of other rows.

        Args:
            x: `[T, width]` embeddings, row by row; overwritten.
            cos: `[T, size]` of the tokens' positions; the two halves are equal.
            sin: `[T, size]` the same.
            states: one cache per row, `[layers, 2, key_heads, room, size]`. New keys and values are appended.
            counts: number of new tokens per row.
            lengths: number of keys per row, including the new ones, which come last.
            opens: number of keys per row that all its new tokens see.
            visible: per row `[count, length - open]`, True where a token sees a later key; None: itself and all
                earlier keys.

        Returns:
            `[N, width]`.
        """

def ucb1_score(mean_value: float, parent_visit_count: int, visit_count: int, c_exp: float) -> float:
    """UCB1 score of one edge (h, a); selection takes the edge with the largest.

        Q(h, a) + c_exp * sqrt( ln max(1, N(h)) / (1 + N(h, a)) )

    Args:
        mean_value: Q(h, a), in reward units.
        parent_visit_count: N(h) = sum over a of N(h, a), at least 0; 0 counts as 1, since ln 0 is not finite (ours).
        visit_count: N(h, a), at least 0.
        c_exp: exploration constant, at least 0, in reward units.

    Source: Putta et al. 2024, arXiv:2408.07199, eq. 7; the `1 +` is theirs.
    """

def seed_of(words: Sequence[int]) -> int:
    """A 64-bit seed from 32-bit words: `numpy.random.SeedSequence(words).generate_state(1, uint64)`."""

class Forest:
    """Many search trees in one arena.

    Args:
        selection: rule that chooses a child from Q(h, a) = alpha * W / N + (1 - alpha) * critic_value, the number of
            rollouts started n = N(h, a), and N(h), its sum over all children. Rollouts in flight count as started.
            W / N is 0 without visits. Ties: fewer started, then lower index.

            - "ucb1": Q + c_exp * sqrt(ln max(1, N(h)) / (1 + n)). Putta et al. 2024, arXiv:2408.07199, eq. 7.
            - "uct": Q + c_exp * sqrt(ln max(1, N(h)) / n), unvisited first. Kocsis and Szepesvari 2006, c_exp = 2 C_p.
            - "puct": Q + c_exp * P(a | h) * sqrt(max(1, N(h))) / (1 + n). Silver et al. 2017, AlphaGo Zero.
            - "best_first": chooses over the whole tree: the leaf with the largest critic_value that is not in flight,
              then the lowest id. Koh et al. 2024, arXiv:2407.01476, where a child's critic_value is its parent's value.
            - "gumbel": at the root, sequential halving of `num_simulations` rollouts over the `max_considered` children
              with the largest g + log P(a | h), g standard Gumbel; below, rollouts in proportion to the improved
              policy. `recommend` returns the action. Danihelka et al. 2022, with mctx's constants.
            - "thompson_gaussian", "thompson_beta": at each node a draw decides between a new child and the present
              ones, and then among the present ones. A rollout may therefore end at a node with children: `widen` it.
              AB-MCTS-A, Inoue et al. 2025, arXiv:2503.04412. Prior of a mean: normal inverse gamma (0, 1, 1, 0.1), or
              Beta(1/2, 1/2), for returns in [0, 1]. Ignores c_exp.
        c_exp: exploration constant, finite, at least 0, in reward units.
        alpha: share of W / N in Q for "ucb1", "uct" and "puct", in [0, 1]; 1 leaves the critic out. Putta et al. 2024,
            eq. 10. 1 for other rules.
        exhaust: selection skips exhausted nodes. Without it, a terminal leaf may be asked repeatedly; the caller then
            tells the same return again.
        seed: seed of the draws of "gumbel" and "thompson_*", in [0, 2**64).
        num_simulations, max_considered: settings of "gumbel", at least 1.
        gumbel_scale: factor of the noise at the root for "gumbel", at least 0; 0 for evaluation.
        max_bytes: memory limit for all trees, 4096 to 2**35. Reserves that much address space without using it.
    """

    def __init__(
        self,
        *,
        selection: Literal[
            "ucb1", "uct", "puct", "best_first", "gumbel", "thompson_gaussian", "thompson_beta"
        ] = "ucb1",
        c_exp: float = 1.0,
        alpha: float = 1.0,
        exhaust: bool = True,
        seed: int = 0,
        num_simulations: int = 0,
        max_considered: int = 16,
        gumbel_scale: float = 1.0,
        max_bytes: int = 2**33,
    ) -> None: ...
    def add_trees(self, n: int) -> NDArray[np.int32]:
        """Adds n trees, each with only a root. Returns their ids `[n]`, consecutive and never reused."""

    def drop(self, trees: Ids) -> None:
        """Deletes trees with their nodes and tickets. Their memory is reused or returned to the system."""

    def root(self, tree: int) -> int:
        """The root node of a tree."""

    def ask(
        self, trees: Ids, n: int = 1
    ) -> tuple[NDArray[np.uint64], NDArray[np.uint32], NDArray[np.int32], NDArray[np.int32], NDArray[np.uint8]]:
        """Descends to up to n leaves of each listed tree and puts the path to each, root included, in flight.

        Returns ticket, node, tree and depth of each leaf `[M]`, grouped by tree in the order found, and a status per
        listed tree: OK, ALL_EXHAUSTED or BLOCKED. A tree's batch ends at a leaf that is already in flight. A tree may
        be listed once.
        """

    def ask_one(self, tree: int) -> tuple[int, int] | None:
        """(ticket, node) of one leaf, without arrays; None if there is none; the status of `ask` says why."""

    def extend(self, tickets: Ids, ranks: Ids) -> NDArray[np.uint32]:
        """Moves each rollout from its node to that node's child of rank `ranks[i]`. Returns the children."""

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
            The first child of each leaf `[len(tickets)]`; the others have the next ids. NO_NODE if `max_bytes` leaves
            no room: the node stays a leaf and can be told like any other.
        """

    def expand_one(self, ticket: int, width: int) -> int | None:
        """`expand` for one leaf, without arrays or values. Returns the first child, or None if there is no room."""

    def widen(
        self,
        tickets: Ids,
        critic_values: Numbers | None = None,
        priors: Numbers | None = None,
    ) -> NDArray[np.uint32]:
        """Appends one child to the node of each ticket and moves the rollout there.

        The node may be a leaf or have children; it and its ancestors are no longer exhausted. A ticket may be listed
        once. One value per ticket; the default prior is 1 / children. Returns the new children; NO_NODE if `max_bytes`
        leaves no room: the rollout stays where it is.
        """

    def recommend(self, trees: Ids) -> NDArray[np.uint32]:
        """The child of each tree's root to take; NO_NODE if nothing has been told below the root.

        Children without a told return are skipped. The others are ordered by

            1. the largest return of an ended episode told below it, since the same actions lead there again
               (with `exhaust`)
            2. not exhausted before exhausted: below an exhausted child there is nothing better to find
            3. visit_count, then the mean value W / N, then the lower index

        With "gumbel", g + log P + sigma(Q) replaces the mean value.

        Source: 3. is AlphaZero's (Silver et al. 2017) and mctx's. Alone it fails when ended episodes are not visited
        again: a success found at once has one visit, and its failing siblings have more. 1. is the best line of
        single-player search (Schadd et al. 2008); in MCTS-Solver, too, a proven child wins (Winands et al. 2008).
        2. is ours.
        """

    def set_terminal(self, tickets: Ids) -> None:
        """Marks these leaves as ends of the episode. With `exhaust` they are exhausted once they are told."""

    def tell(self, tickets: Ids, returns: Numbers) -> None:
        """Ends rollouts: N += 1, W += return, in_flight -= 1 from their nodes to the root. Returns are finite."""

    def tell_one(self, ticket: int, value: float) -> None:
        """`tell` for one rollout, without arrays."""

    def cancel(self, tickets: Ids) -> None:
        """Ends rollouts as if they had never been asked."""

    def abandon(self, tickets: Ids) -> None:
        """`cancel`, then marks the leaves terminal and exhausted without a visit. They are never asked again.

        Raises ValueError for a node with children, and without `exhaust`.
        """

    def nodes_of(self, tickets: Ids) -> NDArray[np.uint32]:
        """The nodes where the rollouts are pending."""

    def reroot(self, tree: int, node: int) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """Makes `node` the root of its tree and deletes the rest. Nothing may be in flight in the tree.

        The kept nodes are compacted. Returns their old and new ids, parents first.
        """

    def children(self, node: int) -> NDArray[np.uint32]:
        """The children of a node, in order."""

    def table(self, trees: int | Ids | None = None) -> dict[str, NDArray[Any]]:
        """One tree, several or all (None) as columns `[n]`, tree after tree.

        Within a tree, parents come before children, and siblings are adjacent and in order. Columns: tree, id, parent
        (a row of this table; -1 for a root), depth, visit_count (N: told), in_flight, value_sum (W), critic_value,
        prior, flags (TERMINAL, EXHAUSTED).
        """

    def to_bytes(self) -> bytes:
        """A snapshot, versioned and with a checksum. Rollouts in flight are saved as cancelled."""

    @staticmethod
    def from_bytes(data: bytes) -> Forest:
        """The forest of `to_bytes`, laid out anew: nodes have other ids, and `table` lists them in the same order.

        Raises ValueError if the bytes are no snapshot, are damaged, hold a forest that no calls can have made, or were
        written by another version, or if the forest had nearly reached `max_bytes` and no longer fits.
        """

    # Read-only views indexed by node id, without a copy: later changes show. Rows that are not nodes are meaningless.
    value_sum: Final[NDArray[np.float64]]  # W: the sum of the returns told through a node
    visits_started: Final[NDArray[np.uint32]]  # visit_count + in_flight of a node
    trees: Final[NDArray[np.int32]]  # ids of all trees that have not been dropped
    num_nodes: Final[int]
    num_in_flight: Final[int]
    bytes_in_use: Final[int]  # memory of the trees not dropped, which `max_bytes` limits
    selection: Final[str]
    c_exp: Final[float]
    alpha: Final[float]
    exhaust: Final[bool]
    seed: Final[int]
    num_simulations: Final[int]
    max_considered: Final[int]
    gumbel_scale: Final[float]
    max_bytes: Final[int]

class Lockstep:
    """Rollouts of several trees that are answered together: one call tells, expands and asks, without tickets.

        while size := len(rows):
            ...  # fill in rows.values[:size] and rows.widths[:size]
            rows.step()

    The leaves are those of `ask`, `expand` (or `set_terminal`) and `tell`. The last rollouts are cancelled when the
    object and its arrays are deleted; until then, or until its last return is told, no tree can be dropped.

    Args:
        forest: its selection is "ucb1", "uct" or "puct"; critic values are 0 and priors 1 / width.
        trees: each once, and in one lockstep at a time.
        simulations: rollouts per tree, at least 1; fewer if it is exhausted before.
        n: largest number of leaves of a tree per step.
    """

    # One row per rollout: the first len(self) entries of len(trees) * n. The arrays stay the same.
    node: Final[NDArray[np.uint32]]  # the leaf
    parent: Final[NDArray[np.uint32]]  # NO_NODE for a root
    rank: Final[NDArray[np.uint32]]  # the leaf's index among its siblings
    depth: Final[NDArray[np.int32]]
    tree: Final[NDArray[np.int32]]
    values: Final[NDArray[np.float64]]  # to be filled in: the return
    widths: Final[NDArray[np.uint32]]  # to be filled in: number of children; 0 ends the episode

    def __init__(self, forest: Forest, trees: Ids, simulations: int, n: int = 1) -> None: ...
    def __len__(self) -> int:
        """Number of rollouts in flight here. 0: the search is over, or rollouts elsewhere block every tree."""

    def step(self) -> int:
        """Ends the rollouts and asks again. Returns len(self). A leaf without room under `max_bytes` stays a leaf."""

    def step_one(self, value: float, width: int) -> tuple[int, int, int, int] | None:
        """`step` for a single row, without arrays. Returns node, parent, rank and depth of the next leaf."""
