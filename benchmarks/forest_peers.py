"""Other tree searches at the work of forest.py, as far as their own rules allow."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from forest_workload import C_EXP, DEPTH, GOLDEN, Work, child_hash, root_hash, value_of


@cache
def _mctx_search(work: Work) -> Callable[[], Any]:
    """mctx's search, compiled for one shape of work."""
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
        return mctx.search(
            (), jax.random.PRNGKey(0), root=root, recurrent_fn=step, root_action_selection_fn=select,
            interior_action_selection_fn=select, num_simulations=work.simulations - 1, max_depth=DEPTH,
        ).children_visits[:, 0]  # fmt: skip

    compiled = jax.jit(run)
    roots = jnp.array([root_hash(tree) for tree in range(work.trees)], dtype=jnp.uint32)
    compiled(roots).block_until_ready()
    return lambda: compiled(roots).block_until_ready()


def mctx_ucb1(work: Work) -> list[list[int]]:
    """mctx on the CPU, by the plain rules, one leaf of a tree at a time."""
    counts: list[list[int]] = _mctx_search(work)().tolist()
    return counts


def treequest(work: Work) -> list[list[int]]:
    """TreeQuest's StandardMCTS: one node a step, softmax priors; at most its S * K nodes are comparable to ours."""
    import treequest as tq  # type: ignore[import-not-found]

    algorithm = tq.StandardMCTS(samples_per_action=work.width)
    state = algorithm.init_tree()

    def generate(parent: Any) -> tuple[int, float]:
        h = child_hash(root_hash(0) if parent is None else parent, 0)
        return h, value_of(h)

    for _ in range(work.simulations):
        state = algorithm.step(state, {"a": generate}, inplace=True)
    return []


def openspiel(work: Work) -> list[list[int]]:
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
    root = bot.mcts_search(State(root_hash(0), 0))
    return [[child.explore_count for child in sorted(root.children, key=lambda c: c.action)]]
