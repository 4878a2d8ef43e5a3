"""Agent Q's search of one task: Monte-Carlo tree search with the policy's proposals, the critic's ranks, one reward.

One iteration (arXiv:2408.07199, section 5.1, Algorithm 1):

    1. select     descend from the root by UCB1 to a leaf                          (forest.ask)
    2. execute    restore the parent's page, take the leaf's action
    3. expand     sample K proposals there, drop duplicates, let the critic rank    (forest.expand)
    4. roll out   follow the policy's first sample, expanding each node on the way, until the episode ends
    5. back up    N and W of every node on the path                                 (forest.tell)

Ours, where the paper is silent: every node of a rollout joins the tree with its K proposals (its siblings are where the
next iterations branch off, the critic's first rank before the others). A rollout that the world broke is cancelled: N
and W know nothing of it, it uses up an iteration, and a node that broke `TRIES` times is not tried again.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agentq._core import ALL_EXHAUSTED, NO_NODE, Forest
from agentq.agent.actions import action_key, history_text
from agentq.critics.protocol import Critic, Judge
from agentq.envs.protocol import Env, can_restore
from agentq.errors import BudgetSpent
from agentq.policies.protocol import Policy
from agentq.search.faults import Broken, Resets, ask, broken_tree, take
from agentq.search.nodes import Node, record
from agentq.search.run import call, request_seed
from agentq.store.records import TreeRecord
from agentq.types import (
    REPLAY_MISMATCH,
    SESSION_LOST,
    EnvAction,
    History,
    Observation,
    Proposal,
    StepResult,
    Task,
)

TRIES = 2  # rollouts that may break at a node (ours)


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """`num_iterations` rollouts a tree; `stop_on_success` ends a tree at its first success (test-time search)."""

    num_iterations: int = 10
    num_proposals: int = 5
    temperature: float = 1.0
    c_exp: float = 1.0
    stop_on_success: bool = False
    seed: int = 0


def forest_for(settings: SearchSettings) -> Forest:
    """A forest that selects as the settings say."""
    return Forest(selection="ucb1", c_exp=settings.c_exp, exhaust=True)


class TreeSearch:
    """One task's tree and its environment session; without a critic all proposals of a node are worth the same.

    A judge's verdict takes the place of the environment's reward. With `start` the search begins there: the environment
    must show its observation, and be able to restore; it is not reset. `on_rollout` hears how each rollout ended, those
    that the world broke too.

    The tree lies in `forest`, which many searches of the same settings may share, and is dropped from it at the end;
    without one it has a forest of its own.
    """

    def __init__(
        self,
        env: Env,
        task: Task,
        policy: Policy,
        settings: SearchSettings,
        *,
        critic: Critic | None = None,
        judge: Judge | None = None,
        forest: Forest | None = None,
        start: History | None = None,
        on_rollout: Callable[[History, StepResult], None] = lambda history, result: None,
        resets: Resets | None = None,
    ) -> None:
        self.env, self.task, self.policy, self.settings = env, task, policy, settings
        self.critic, self.judge, self.start, self.on_rollout = critic, judge, start, on_rollout
        self.resets = resets or Resets()
        self.forest = forest_for(settings) if forest is None else forest
        (self.tree,) = self.forest.add_trees(1).tolist()
        self.root = self.forest.root(self.tree)
        self.nodes = {self.root: Node()}
        self.restorable = env if can_restore(env) else None
        if start is not None and self.restorable is None:
            raise ValueError(f"a search that begins on the way needs an environment that can restore; got {env.name}")
        self.position: int | None = None  # the node whose page the session shows
        self.counts = {
            "env_steps": 0,
            "prompt_tokens": 0,
            "generated_tokens": 0,
            "iterations": 0,
            "replay_mismatches": 0,
        }
        self.faults: Counter[str] = Counter()
        self.expansions = 0
        self.succeeded = False

    async def run(self) -> TreeRecord:
        """Search until iterations or budget are spent, the tree is exhausted, or (if asked to) a success is found.

        A task whose first page does not come has a record of a root alone, with the error kind.
        """
        start = time.perf_counter()
        try:
            await self._open()
        except Broken as fault:
            self.forest.drop([self.tree])
            return broken_tree(self.task, fault)
        for _ in range(self.settings.num_iterations):
            ticket, leaf = self.forest.ask_one(self.tree)
            if leaf == -ALL_EXHAUSTED:
                break
            try:
                await self._iterate(ticket, leaf)
            except BudgetSpent:
                break
            if self.succeeded and self.settings.stop_on_success:
                break
        return self._record(time.perf_counter() - start)

    async def _open(self) -> None:
        root = self.nodes[self.root]
        root.history = self.start or History.of(self.task, await self.resets.first_page(self.env, self.task))
        self.position = self.root
        root.snapshot = await self._snapshot()

    async def _iterate(self, ticket: int, leaf: int) -> None:
        try:
            node = await self._execute(leaf)
            while not node.ended and node.fault is None:
                leaf = await self._expand(ticket, leaf, node)
                node = await self._execute(leaf)
        except BaseException:
            self.forest.cancel([ticket])
            raise
        if node.fault is not None:
            self._break(ticket, node, node.fault)
            return
        self.forest.set_terminal([ticket])
        self.forest.tell_one(ticket, node.total)
        self.counts["iterations"] += 1
        if node.history is not None and node.result is not None:
            self.succeeded |= node.result.success
            self.on_rollout(node.history, node.result)

    def _break(self, ticket: int, node: Node, fault: Broken) -> None:
        """Take a rollout back that the world broke at `node`."""
        node.broke += 1
        self.faults[fault.kind] += 1
        if node.broke < TRIES:
            self.forest.cancel([ticket])
        else:
            self.forest.abandon([ticket])
        history = self.nodes[node.parent].history
        assert history is not None
        page = history.observation
        self.on_rollout(history, StepResult(page, truncated=True, error_kind=fault.kind, error_message=fault.message))

    async def _execute(self, index: int) -> Node:
        """Take the node's action at its parent's page, unless that has been done; `fault` says how the world failed."""
        node = self.nodes[index]
        if node.history is None:
            try:
                await self._act(index, node)
                node.fault = None
            except Broken as fault:
                self.position, node.fault = None, fault
        return node

    async def _act(self, index: int, node: Node) -> None:
        before = self.nodes[node.parent]
        assert before.history is not None and node.proposal is not None
        await self._go_to(node.parent)
        result = await self._step(node.proposal, before.history.observation)
        self.position = None if result.terminated or result.truncated else index
        history = before.history.then(history_text(node.proposal.action), result.observation)
        snapshot = None if self.position is None else await self._snapshot()
        if self.judge is not None and result.terminated:
            result = await self.judge.settle(history, result)
        node.history, node.snapshot, node.result = history, snapshot, result
        node.total = before.total + result.reward

    async def _step(self, proposal: Proposal, page: Observation) -> StepResult:
        """Take an action. Raises Broken where the world does not."""
        result = await call(self.env, take, self.env, proposal.action.env_action, page)
        self.counts["env_steps"] += 1
        if result.broken:
            raise Broken(result.error_kind or SESSION_LOST, result.error_message)
        return result

    async def _go_to(self, index: int) -> None:
        """Bring the session to the node's page: by snapshot, else by replay from reset, checked by fingerprints.

        Raises Broken where no way leads there. A failed restore shows at the next step.
        """
        if self.position == index:
            return
        target = self.nodes[index]
        if self.restorable is not None:
            await ask(self.env, self.restorable.restore, target.snapshot)
            target.restored = self.restorable.restored
            return
        target.restored = "failed"
        await self._replay(index)
        target.restored = "approximate"

    async def _replay(self, index: int) -> None:
        page = await self.resets.first_page(self.env, self.task)
        for step in self.forest.path(index):
            node = self.nodes[int(step)]
            assert node.history is not None
            if node.proposal is not None:
                page = (await self._step(node.proposal, page)).observation
            if page.fingerprint != node.history.observation.fingerprint:
                self.counts["replay_mismatches"] += 1
                raise Broken(REPLAY_MISMATCH, "a replay must reach the same page; it reached another")

    async def _snapshot(self) -> Any:
        return await ask(self.env, self.restorable.snapshot) if self.restorable is not None else None

    async def _expand(self, ticket: int, index: int, node: Node) -> int:
        """Give the node its children, best rank first, and go on with the one that the policy sampled first."""
        assert node.history is not None
        s = self.settings
        seed = request_seed(s.seed, self.task.seed, self.task.seed >> 32, 1 << 20, self.expansions)
        self.expansions += 1
        sampled = await self.policy.propose(node.history, s.num_proposals, seed=seed, temperature=s.temperature)
        self.counts["prompt_tokens"] += len(sampled[0].prompt_ids)
        self.counts["generated_tokens"] += sum(len(p.token_ids) for p in sampled)
        unique: dict[object, Proposal] = {}
        for proposal in sampled:
            unique.setdefault(action_key(proposal.action.env_action), proposal)
        proposals = list(unique.values())  # in sampled order
        values = [0.5] * len(proposals)
        if self.critic is not None and len(proposals) > 1:
            actions: list[EnvAction | None] = [p.action.env_action for p in proposals]
            values = await self.critic.rank(node.history, actions, seed=seed)
        order = sorted(range(len(proposals)), key=lambda i: -values[i])  # stable: equal values keep the sampled order
        values = [values[i] for i in order]
        logps = [proposals[i].action_logp for i in order]
        first = int(self.forest.expand([ticket], [len(order)], values, logps)[0])
        if first == NO_NODE:
            raise MemoryError(f"all trees in flight must fit {self.forest.max_bytes} bytes; they are full")
        for offset, i in enumerate(order):
            self.nodes[first + offset] = Node(index, proposals[i])
        rank = order.index(0)
        self.forest.extend([ticket], [rank])
        return first + rank

    def _record(self, seconds: float) -> TreeRecord:
        table = self.forest.table(self.tree)
        self.forest.drop([self.tree])
        nodes = [self.nodes[i] for i in table.pop("id").tolist()]
        found = {"seconds": seconds, "succeeded": bool(self.succeeded), "faults": dict(self.faults)}
        return record(self.task, nodes, table, {**self.counts, **found})
