"""llm-reasoners and LiTS, made for language models, at the work of forest.py with policies that cost nothing."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from forest_peers import nodes_of
from forest_workload import C_EXP, DEPTH, Work, child_hash, root_hash, value_of


@cache
def _llm_reasoners() -> tuple[type, Any, Any]:
    """Its search without rollouts, its world (a state is a hash and a depth), and its questions about actions."""
    from reasoners import SearchConfig, WorldModel  # type: ignore[import-not-found]
    from reasoners.algorithm import MCTS  # type: ignore[import-not-found]

    class World(WorldModel):  # type: ignore[misc]
        def init_state(self) -> tuple[int, int]:
            return root_hash(0), 0

        def step(self, state: tuple[int, int], action: int) -> tuple[tuple[int, int], dict[str, Any]]:
            return (child_hash(state[0], action), state[1] + 1), {}

        def is_terminal(self, state: tuple[int, int]) -> bool:
            return False

    class Search(MCTS):  # type: ignore[misc]
        def _simulate(self, path: Any) -> None:
            """A leaf is worth its own value."""

    class Config(SearchConfig):  # type: ignore[misc]
        def __init__(self, width: int) -> None:
            super().__init__()
            self.width = width

        def get_actions(self, state: tuple[int, int]) -> range:
            return range(self.width if state[1] < DEPTH else 0)

        def fast_reward(self, state: tuple[int, int], action: int) -> tuple[float, dict[str, Any]]:
            return 0.0, {}

        def reward(self, state: tuple[int, int], action: int, **details: Any) -> tuple[float, dict[str, Any]]:
            return value_of(child_hash(state[0], action)), {}

    return Search, World, Config


def llm_reasoners(work: Work) -> Any:
    """llm-reasoners' MCTS by its own rule, ln N / max(1, n); a visit is worth the leaf's value, not the path's sum."""
    search_type, world, config = _llm_reasoners()
    search = search_type(
        w_exp=C_EXP, depth_limit=DEPTH + 1, n_iters=work.simulations, cum_reward=lambda rewards: rewards[-1],
        output_strategy="last_iter",
    )  # fmt: skip
    search(world(), config(work.width))
    return search.root


def llm_reasoners_holds(root: Any, work: Work) -> bool:
    expanded = [node for node in nodes_of(root) if node.state and node.depth < DEPTH]
    return len(root.cum_rewards) == work.simulations and {len(node.children) for node in expanded} == {work.width}


@cache
def _lits() -> tuple[type, Any]:
    """Its MCTS without rollouts, and one object that is its policy, its world and its reward model."""
    from lits.agents.tree.mcts import MCTSSearch  # type: ignore[import-not-found]

    class Step:
        def __init__(self, rank: int) -> None:
            self.rank = rank

        def get_action(self) -> int:
            return self.rank

    class Search(MCTSSearch):  # type: ignore[misc]
        def _do_simulate(self, *args: Any, **kwargs: Any) -> tuple[bool, list[Any]]:
            return False, []  # a leaf is worth its own value

    class World:
        requires_transition_before_evaluate = False

        def __init__(self, width: int) -> None:
            self.n_actions = width

        def init_state(self, **_: Any) -> int:
            return root_hash(0)

        def get_actions(self, state: int, n_actions: int, **_: Any) -> list[Step]:
            return [Step(rank) for rank in range(n_actions)]

        def step(self, state: int, step: Step, **_: Any) -> tuple[int, dict[str, Any]]:
            return child_hash(state, step.rank), {}

        def is_terminal(self, state: int, *_: Any, **__: Any) -> bool:
            return False

        def fast_reward(self, *_: Any, **__: Any) -> tuple[float, dict[str, Any]]:
            return 0.0, {}

        def reward(self, state: int, action: int, **_: Any) -> float:
            return value_of(child_hash(state, action))

    return Search, World


def lits(work: Work) -> Any:
    """LiTS' MCTS by its own rule, ln max(2, N) / n, unvisited first; a visit is worth the leaf's value."""
    search_type, world_type = _lits()
    from lits.agents.tree.mcts import MCTSConfig

    config = MCTSConfig(
        w_exp=C_EXP, n_iters=work.simulations, n_actions=work.width, max_steps=DEPTH, cross_rollout_q_func=np.mean,
        terminate_on_terminal_node=False, backprop_broadcast_mode="terminal",
    )  # fmt: skip
    world = world_type(work.width)
    return search_type(config, world, world, world).run("", 0).root


def lits_holds(root: Any, work: Work) -> bool:
    widths = {len(node.children) for node in nodes_of(root) if node.state is not None and node.depth < DEPTH}
    return root.visit_count == work.simulations and widths == {work.width}
