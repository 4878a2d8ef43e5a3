"""Other tree searches at the work of forest.py, as far as their own rules allow.

mctx accepts UCB1 and then does the same work. The others have different rules. They make S simulations with the same
values and widths, which is checked; their counts are their own. OpenSpiel's C++ search gets the tree as a game of its
own: pip's `pyspiel.Evaluator` cannot be subclassed, but extensive games can be loaded from text.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from itertools import count
from typing import Any

import numpy as np
from forest_workload import C_EXP, DEPTH, GOLDEN, Work, child_hash, root_hash, value_of


@cache
def _mctx_search(work: Work) -> Callable[[], Any]:
    """mctx's search, compiled for one shape of work, on one core."""
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
    import jax  # type: ignore[import-not-found]
    import jax.numpy as jnp  # type: ignore[import-not-found]
    import mctx  # type: ignore[import-not-found]

    def mixed(h: Any) -> Any:
        h = (h ^ (h >> 16)) * jnp.uint32(0x85EBCA6B)
        h = (h ^ (h >> 13)) * jnp.uint32(0xC2B2AE35)
        return h ^ (h >> 16)

    def value(h: Any) -> Any:
        return (h >> 8).astype(jnp.float32) / 2**24

    def step(params: Any, key: Any, action: Any, h: Any) -> Any:
        h = mixed(h + (action.astype(jnp.uint32) + 1) * jnp.uint32(GOLDEN))
        zeros = jnp.zeros(work.trees)
        logits = jnp.zeros((work.trees, work.width))
        return mctx.RecurrentFnOutput(reward=zeros, discount=zeros + 1, prior_logits=logits, value=value(h)), h

    def select(key: Any, tree: Any, node: Any, depth: Any = None) -> Any:
        n = tree.children_visits[node]
        scale = C_EXP * jnp.sqrt(jnp.log(tree.node_visits[node].astype(jnp.float32)))
        return jnp.argmax(tree.qvalues(node) * (n > 0) + scale / jnp.sqrt(1.0 + n)).astype(jnp.int32)

    def run(h: Any) -> Any:
        root = mctx.RootFnOutput(prior_logits=jnp.zeros((work.trees, work.width)), value=value(h), embedding=h)
        tree = mctx.search(
            (), jax.random.PRNGKey(0), root=root, recurrent_fn=step, root_action_selection_fn=select,
            interior_action_selection_fn=select, num_simulations=work.simulations - 1, max_depth=DEPTH,
        )  # fmt: skip
        nbytes.append(sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree)))
        return tree.children_visits[:, 0]

    nbytes: list[int] = []  # once, when it is traced

    compiled = jax.jit(run)
    roots = jnp.array([root_hash(tree) for tree in range(work.trees)], dtype=jnp.uint32)
    compiled(roots).block_until_ready()
    return lambda: (compiled(roots).block_until_ready(), nbytes[0])


def mctx_ucb1(work: Work) -> list[list[int]]:
    """mctx on the CPU, by the plain rules, one leaf of a tree at a time."""
    counts: list[list[int]] = _mctx_search(work)()[0].tolist()
    return counts


def mctx_bytes(work: Work) -> int:
    """Bytes of the arrays of mctx's tree."""
    return _mctx_search(work)()[1]  # type: ignore[no-any-return]


def nodes_of(root: Any) -> list[Any]:
    """All nodes below `root`, itself included; nodes have `children`."""
    found = [root]
    for node in found:
        found.extend(node.children or [])
    return found


def treequest(work: Work) -> list[tuple[int, float]]:
    """TreeQuest's StandardMCTS: one node per step, softmax priors, no depth limit. Expanding a node takes K steps."""
    import treequest as tq  # type: ignore[import-not-found]

    algorithm = tq.StandardMCTS(samples_per_action=work.width)
    state = algorithm.init_tree()

    def generate(parent: Any) -> tuple[int, float]:
        h = child_hash(root_hash(0) if parent is None else parent, 0)
        return h, value_of(h)

    for _ in range(work.simulations):
        state = algorithm.step(state, {"a": generate}, inplace=True)
    return algorithm.get_state_score_pairs(state)  # type: ignore[no-any-return]


def treequest_holds(pairs: list[tuple[int, float]], work: Work) -> bool:
    return len(pairs) == work.simulations and all(score == value_of(h) for h, score in pairs)


def openspiel(work: Work) -> Any:
    """OpenSpiel's Python MCTS on a game whose leaves' values are hashes: ln N / n, unvisited children first."""
    from open_spiel.python.algorithms import mcts  # type: ignore[import-not-found]

    class State:
        def __init__(self, h: int, depth: int) -> None:
            self.h, self.depth = h, depth

        def clone(self) -> State:
            return State(self.h, self.depth)

        def apply_action(self, action: int) -> None:
            self.h, self.depth = child_hash(self.h, action), self.depth + 1

        def legal_actions(self, player: int | None = None) -> list[int]:
            return list(range(work.width))

        def is_terminal(self) -> bool:
            return self.depth >= DEPTH

        def is_chance_node(self) -> bool:
            return False

        def current_player(self) -> int:
            return 0

        def returns(self) -> list[float]:
            return [value_of(self.h)]

        def __str__(self) -> str:
            return str(self.h)

    class Evaluator(mcts.Evaluator):  # type: ignore[misc]
        def evaluate(self, state: State) -> np.ndarray:
            return np.array([value_of(state.h)])

        def prior(self, state: State) -> list[tuple[int, float]]:
            return [(a, 1.0 / work.width) for a in range(work.width)]

    class Game:
        def num_players(self) -> int:
            return 1

        def max_utility(self) -> float:
            return 1.0

        def get_type(self) -> Any:
            import pyspiel  # type: ignore[import-not-found]

            return pyspiel.load_game("catch").get_type()

    bot = mcts.MCTSBot(Game(), C_EXP, work.simulations, Evaluator(), solve=False)
    return bot.mcts_search(State(root_hash(0), 0))


def openspiel_holds(root: Any, work: Work) -> bool:
    widths = {len(node.children) for node in nodes_of(root)}
    return root.explore_count == work.simulations and widths == {0, work.width}


GAME_DEPTH = 6


@cache
def _game(width: int) -> Any:
    """The tree of the work down to GAME_DEPTH as OpenSpiel's extensive game in C++: one player, values at the ends."""
    import pyspiel  # type: ignore[import-not-found]

    lines, actions = ['EFG 2 R "tree" { "1" "2" } ""'], " ".join(f'"{i}"' for i in range(width))
    ends, inner = count(1), count(1)

    def add(h: int, depth: int) -> None:
        if depth == GAME_DEPTH:
            lines.append(f't "" {next(ends)} "" {{ {value_of(h)} {-value_of(h)} }}')
            return
        lines.append(f'p "" 1 {next(inner)} "" {{ {actions} }} 0')
        for i in range(width):
            add(child_hash(h, i), depth + 1)

    add(root_hash(0), 0)
    return pyspiel.load_efg_game("\n".join(lines) + "\n")


def openspiel_native(work: Work) -> list[Any]:
    """OpenSpiel's C++ MCTSBot on the game, once per tree: ln N / n, one random rollout from a leaf that is no end."""
    import pyspiel

    game = _game(work.width)
    bot = pyspiel.MCTSBot(
        game, pyspiel.RandomRolloutEvaluator(1, 7), C_EXP, work.simulations, 4096, False, 7, False
    )  # MB, solve, seed, verbose
    return [bot.mcts_search(game.new_initial_state()) for _ in range(work.trees)]


def openspiel_native_holds(roots: list[Any], work: Work) -> bool:
    return all(root.explore_count == work.simulations and len(root.children) == work.width for root in roots)


def openspiel_game(simulations: int, game: str = "tic_tac_toe") -> Any:
    """OpenSpiel's C++ MCTSBot on a game, one random rollout per leaf; the root of its tree."""
    import pyspiel  # type: ignore[import-not-found]

    world = pyspiel.load_game(game)
    evaluator = pyspiel.RandomRolloutEvaluator(1, 7)
    bot = pyspiel.MCTSBot(world, evaluator, C_EXP, simulations, 4096, False, 7, False)  # MB, solve, seed, verbose
    return bot.mcts_search(world.new_initial_state())
