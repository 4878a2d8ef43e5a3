"""Rollouts of one task that share prefixes: some start at the root, others continue from the middle of earlier ones.

A `Branching` chooses where to continue: at random (Tree-GRPO), or where the agent became unsure after a page (ARPO).
The rollouts of a wave run concurrently. The seed determines waves and numbers, so timing does not affect the result.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from agentq.agent.actions import history_text
from agentq.credit.trees import rollout_sums
from agentq.envs.calls import call, close, session
from agentq.envs.protocol import Env, Forkable, can_fork
from agentq.error_kinds import SESSION_LOST
from agentq.errors import ConfigError
from agentq.policies.protocol import Policy
from agentq.searching.faults import Broken, Resets, ask, broken_tree, take
from agentq.searching.rollout import RolloutSettings
from agentq.searching.unreadable import ended_if_unreadable
from agentq.seeds import Stream, task_seed
from agentq.store.records import TERMINAL, TreeRecord
from agentq.types import History, Proposal, StepResult, Task

ENTROPY_TOKENS = 20  # number of an action's first tokens that are averaged, as in ARPO's released code


@dataclass(slots=True)
class BranchNode:
    """A history reached, with the environment's state there; `result` is None at the root."""

    history: History
    state: Any
    parent: int = -1
    depth: int = 0
    tree: int = 0  # number of its tree's first rollout
    proposal: Proposal | None = None
    result: StepResult | None = None
    restored: str | None = None

    @property
    def broken(self) -> bool:
        return self.result is not None and self.result.broken

    @property
    def ended(self) -> bool:
        return self.result is not None and (self.result.terminated or self.result.truncated or self.result.broken)

    @property
    def won(self) -> bool:
        """Whether the episode ended here with success, which is read at its end alone."""
        return self.ended and not self.broken and self.result is not None and self.result.success


@dataclass(slots=True)
class Grown:
    """The tree so far: nodes, every parent before its children, and the node each rollout ended at, in order.

    Rollouts that the world broke have no end; `faults` counts them by kind. `lost`: nodes of retried attempts.
    """

    nodes: list[BranchNode]
    ends: list[int] = field(default_factory=list)
    started: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    lost: list[BranchNode] = field(default_factory=list)

    def path(self, node: int) -> list[int]:
        """The nodes below the root on the way to `node`."""
        found: list[int] = []
        while node > 0:
            found.append(node)
            node = self.nodes[node].parent
        return found[::-1]


Place = tuple[int, int]  # the node to continue from (0 is the root), and the rollout's tree
Branching = Callable[[Grown, int, np.random.Generator], list[Place]]
"""Chooses the next wave's places from (the tree so far, the number of rollouts left, a generator). Places beyond the
rollouts left are ignored. If there are no places, the remaining rollouts start at the root, each in a new tree."""


async def branched(
    env: Env,
    task: Task,
    policy: Policy,
    settings: RolloutSettings,
    *,
    initial: int,
    total: int,
    branching: Branching,
    resets: Resets | None = None,
) -> TreeRecord:
    """`total` rollouts of `task`, the first `initial` from the root; `info` has their ends and first rollouts (trees).

    A rollout that the world broke is retried once with the same seeds. If it breaks again, it has no end, and the node
    that broke has no page. A task without a first page has a record with only a root.

    Raises:
        ConfigError: if the environment cannot fork and restore, or not 1 <= initial <= total.
    """
    if not can_fork(env):
        raise ConfigError(f"branching needs an environment that can fork and restore; got {env.name}")
    if not 1 <= initial <= total:
        raise ConfigError(f"initial must be in [1, {total}]; got {initial}")
    try:
        task, first = await (resets or Resets()).first(env, task)
        grown = Grown([BranchNode(first, await ask(env, env.snapshot))])
    except Broken as fault:
        return broken_tree(task, fault)
    try:
        await _grow(env, grown, task, policy, settings, initial, total, branching)
    except Broken as fault:
        grown.faults[fault.kind] += 1
    return _record(task, grown)


async def _grow(
    env: Forkable,
    grown: Grown,
    task: Task,
    policy: Policy,
    settings: RolloutSettings,
    initial: int,
    total: int,
    branching: Branching,
) -> None:
    """Run the rollouts wave by wave. Raises Broken if the environment can no longer fork."""
    rng = np.random.default_rng([settings.seed & 0xFFFFFFFF, task.seed])
    wave = [(0, i) for i in range(initial)]
    while wave:
        forks = await _forks(env, len(wave))
        chains = await asyncio.gather(
            *(
                _roll_out(fork, grown, n, task, policy, settings, grown.started + i)
                for i, (fork, (n, _)) in enumerate(zip(forks, wave, strict=True))
            )
        )
        for place, chain in zip(wave, chains, strict=True):
            _add(grown, place, chain)
        grown.started += len(wave)
        fresh = [(0, i) for i in range(grown.started, total)]
        wave = branching(grown, len(fresh), rng)[: len(fresh)] or fresh


async def _forks(env: Forkable, n: int) -> list[Forkable]:
    """`n` forks. If one fails, those before it are closed."""
    forks: list[Forkable] = []
    try:
        while len(forks) < n:
            forks.append(await ask(env, env.fork))
    except BaseException:
        for fork in forks:
            with suppress(Exception):
                await close(fork)
        raise
    return forks


def at_random(trees: int) -> Branching:
    """Tree-GRPO's expansion: one wave from random nodes of each of `trees` trees, including roots but not ends.

    Source: Ji et al. 2025, arXiv:2509.21240; drawn with replacement, as in the released code.
    """
    return partial(_at_random, trees)


def _at_random(trees: int, grown: Grown, left: int, rng: np.random.Generator) -> list[Place]:
    inner = [[i for i, n in enumerate(grown.nodes) if i and n.tree == t and not n.ended] for t in range(trees)]
    return [(int(rng.choice([0, *inner[i % trees]])), i % trees) for i in range(left)]


def where_unsure(grown: Grown, left: int, rng: np.random.Generator) -> list[Place]:
    """ARPO's rule: a second continuation after each page where the agent was less sure than at the task's start.

        P = alpha + beta * (H_t - H_0) > tau, which with the paper's alpha = tau = 0.5 is H_t > H_0

    H_t is the entropy of the first tokens of the action after the page. Ours: it is estimated by the mean of -log p
    over the sampled tokens, whose expectation is the entropy and which needs no more data from the engine. Earlier
    turns come first. A node branches once.

    Source: Dong et al. 2025, arXiv:2507.19849.
    """
    children = np.bincount([n.parent for n in grown.nodes[1:]], minlength=len(grown.nodes))
    found = set()
    for end in grown.ends:
        path = grown.path(end)
        unsure = [_uncertainty(grown.nodes[i]) for i in path]
        found |= {grown.nodes[i].parent for i, h in zip(path[1:], unsure[1:], strict=True) if h > unsure[0]}
    places = sorted((n for n in found if children[n] == 1), key=lambda n: (grown.nodes[n].depth, n))
    return [(n, grown.nodes[n].tree) for n in places[:left]]


def _uncertainty(node: BranchNode) -> float:
    assert node.proposal is not None
    return -float(node.proposal.logps[:ENTROPY_TOKENS].mean())


async def _roll_out(
    env: Forkable, grown: Grown, start: int, task: Task, policy: Policy, settings: RolloutSettings, number: int
) -> list[BranchNode]:
    """A rollout from a node to its end, in a separate environment; retried once if the world breaks it."""
    async with session(lambda: env):
        chain = await _attempt(env, grown.nodes[start], task, policy, settings, number)
        if chain[-1].broken:
            grown.lost += chain
            chain = await _attempt(env, grown.nodes[start], task, policy, settings, number)
    return chain


async def _attempt(
    env: Forkable, start: BranchNode, task: Task, policy: Policy, settings: RolloutSettings, number: int
) -> list[BranchNode]:
    chain: list[BranchNode] = []
    node = start
    while not node.ended:
        seed = task_seed(settings.seed, task, Stream.BRANCH, number, len(chain))
        (proposal,) = await policy.propose(node.history, 1, seed=seed, temperature=settings.temperature)
        page, state = node.history.observation, None
        try:
            if node is start:
                await ask(env, env.restore, start.state)
                start.restored = env.restored
            result = await call(env, take, env, proposal.action.env_action, page)
            if not (result.terminated or result.truncated or result.broken):
                state = await ask(env, env.snapshot)
        except Broken as fault:
            result = fault.result(page)
        history = node.history.then(history_text(proposal.action), result.observation)
        result = ended_if_unreadable(result, history, settings.max_unreadable)
        node = BranchNode(history, state, depth=node.depth + 1, proposal=proposal, result=result)
        chain.append(node)
    return chain


def _add(grown: Grown, place: Place, chain: list[BranchNode]) -> None:
    parent, tree = place
    for node in chain:
        node.parent, node.tree = parent, tree
        parent = len(grown.nodes)
        grown.nodes.append(node)
    last = chain[-1].result
    if last is not None and last.broken:
        grown.faults[last.error_kind or SESSION_LOST] += 1
    else:
        grown.ends.append(parent)


def _record(task: Task, grown: Grown) -> TreeRecord:
    nodes, ends = grown.nodes, grown.ends
    reward = np.array([n.result.reward if n.result else 0.0 for n in nodes])
    returns = [float(sum(reward[i] for i in grown.path(end))) for end in ends]
    parent = np.array([n.parent for n in nodes])
    count, total = rollout_sums(parent, ends, returns)
    made = [n.proposal for n in (*nodes, *grown.lost) if n.proposal is not None]
    return TreeRecord(
        task=task,
        parent=parent,
        depth=np.array([n.depth for n in nodes]),
        visit_count=count,
        value_sum=total,
        critic_value=np.full(len(nodes), 0.5),
        flags=np.array([TERMINAL if n.ended and not n.broken else 0 for n in nodes]),
        proposal=[n.proposal for n in nodes],
        observation=[None if n.broken else n.history.observation for n in nodes],
        reward=reward,
        success=np.array([n.won for n in nodes]),
        error_kind=[n.result.error_kind if n.result else None for n in nodes],
        restored=[n.restored for n in nodes],
        info={
            "env_steps": len(made),
            "prompt_tokens": sum(len(p.prompt_ids) for p in made),
            "generated_tokens": sum(len(p.token_ids) for p in made),
            "succeeded": any(n.won for n in nodes),
            "faults": dict(grown.faults),
            "ends": ends,
            "trees": [nodes[end].tree for end in ends],
            "returns": returns,
        },
    )
