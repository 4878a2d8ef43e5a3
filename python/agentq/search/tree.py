"""Agent Q's search of one task: Monte-Carlo tree search with the policy's proposals, the critic's ranks, one reward.

One iteration (arXiv:2408.07199, section 5.1, Algorithm 1):

    1. select     descend from the root by UCB1 to a leaf                          (forest.ask)
    2. execute    restore the parent's page, take the leaf's action
    3. expand     sample K proposals there, drop duplicates, let the critic rank    (forest.expand)
    4. roll out   follow the policy's first sample, expanding each node on the way, until the episode ends
    5. back up    N and W of every node on the path                                 (forest.tell)

Ours, where the paper is silent: every node of a rollout joins the tree with its K proposals (its siblings are where the
next iterations branch off, the critic's first rank before the others).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentq._core import ALL_EXHAUSTED, NO_NODE, Forest
from agentq.agent.actions import action_key, history_text
from agentq.critics.protocol import Critic, Judge
from agentq.envs.protocol import Ability, Env
from agentq.errors import BudgetSpent
from agentq.policies.protocol import Policy
from agentq.search.run import call, request_seed
from agentq.store.records import TreeRecord
from agentq.types import EnvAction, History, Observation, Proposal, StepResult, Task


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """`num_iterations` rollouts a tree; `stop_on_success` ends a tree at its first success (test-time search)."""

    num_iterations: int = 10
    num_proposals: int = 5
    temperature: float = 1.0
    c_exp: float = 1.0
    stop_on_success: bool = False
    seed: int = 0


@dataclass(slots=True)
class _Node:
    """Python's half of a forest node: texts and pages. `history` is None until the node's action has been executed."""

    parent: int = -1
    proposal: Proposal | None = None
    history: History | None = None
    snapshot: Any = None
    restored: str | None = None
    result: StepResult | None = None
    total: float = 0.0  # sum of rewards from the root

    @property
    def ended(self) -> bool:
        return self.result is not None and (
            self.result.terminated or self.result.truncated or self.result.error_kind == "replay_mismatch"
        )


def forest_for(settings: SearchSettings) -> Forest:
    """A forest that selects as the settings say."""
    return Forest(selection="ucb1", c_exp=settings.c_exp, exhaust=True)


class TreeSearch:
    """One task's tree and its environment session; without a critic all proposals of a node are worth the same.

    A judge's verdict takes the place of the environment's reward. With `start` the search begins there: the environment
    must show its observation, and be able to restore; it is not reset. `on_rollout` hears how each rollout ended.

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
    ) -> None:
        self.env, self.task, self.policy, self.settings = env, task, policy, settings
        self.critic, self.judge, self.start, self.on_rollout = critic, judge, start, on_rollout
        self.forest = forest_for(settings) if forest is None else forest
        (self.tree,) = self.forest.add_trees(1).tolist()
        self.root = self.forest.root(self.tree)
        self.nodes = {self.root: _Node()}
        self.can_restore = Ability.RESTORE in env.abilities
        if start is not None and not self.can_restore:
            raise ValueError(f"a search that begins on the way needs an environment that can restore; got {env.name}")
        self.position: int | None = None  # the node whose page the session shows
        self.counts = {
            "env_steps": 0,
            "prompt_tokens": 0,
            "generated_tokens": 0,
            "iterations": 0,
            "replay_mismatches": 0,
        }
        self.expansions = 0
        self.succeeded = False

    async def run(self) -> TreeRecord:
        """Search until iterations or budget are spent, the tree is exhausted, or (if asked to) a success is found."""
        start = time.perf_counter()
        await self._open()
        for _ in range(self.settings.num_iterations):
            ticket, leaf = self.forest.ask_one(self.tree)
            if leaf == -ALL_EXHAUSTED:
                break
            try:
                await self._iterate(ticket, leaf)
            except BudgetSpent:
                break
            self.counts["iterations"] += 1
            if self.succeeded and self.settings.stop_on_success:
                break
        return self._record(time.perf_counter() - start)

    async def _open(self) -> None:
        root = self.nodes[self.root]
        root.history = self.start or History.of(self.task, await call(self.env, self.env.reset, self.task))
        self.position = self.root
        await self._save(self.root)

    async def _iterate(self, ticket: int, leaf: int) -> None:
        try:
            while not (node := await self._execute(leaf)).ended:
                leaf = await self._expand(ticket, leaf, node)
        except BaseException:
            self.forest.cancel([ticket])
            raise
        self.forest.set_terminal([ticket])
        self.forest.tell_one(ticket, node.total)
        if node.history is not None and node.result is not None:
            self.succeeded |= node.result.success
            self.on_rollout(node.history, node.result)

    async def _execute(self, index: int) -> _Node:
        """Take the node's action at its parent's page, unless that has been done."""
        node = self.nodes[index]
        if node.history is not None:
            return node
        before = self.nodes[node.parent]
        assert before.history is not None and node.proposal is not None
        if not await self._go_to(node.parent):
            node.history = before.history
            node.result = StepResult(before.history.observation, truncated=True, error_kind="replay_mismatch")
            return node
        result = await call(self.env, self.env.step, node.proposal.action.env_action)
        self.counts["env_steps"] += 1
        self.position = None if result.terminated or result.truncated else index
        node.history = before.history.then(history_text(node.proposal.action), result.observation)
        if self.judge is not None and result.terminated:
            result = await self.judge.settle(node.history, result)
        node.result, node.total = result, before.total + result.reward
        await self._save(index)
        return node

    async def _go_to(self, index: int) -> bool:
        """Bring the session to the node's page: by snapshot, else by replay from reset, checked by fingerprints."""
        if self.position == index:
            return True
        target = self.nodes[index]
        if self.can_restore:
            await call(self.env, self.env.restore, target.snapshot)
            target.restored = self.env.restored
            return True
        reached = await self._replay(index)
        target.restored = "approximate" if reached else "failed"
        return reached

    async def _replay(self, index: int) -> bool:
        observation = await call(self.env, self.env.reset, self.task)
        for step in self.forest.path(index):
            node = self.nodes[int(step)]
            assert node.history is not None
            if node.proposal is not None:
                result = await call(self.env, self.env.step, node.proposal.action.env_action)
                observation = result.observation
                self.counts["env_steps"] += 1
            if observation.fingerprint != node.history.observation.fingerprint:
                self.counts["replay_mismatches"] += 1
                self.position = None
                return False
        return True

    async def _save(self, index: int) -> None:
        if self.can_restore and not self.nodes[index].ended:
            self.nodes[index].snapshot = await call(self.env, self.env.snapshot)

    async def _expand(self, ticket: int, index: int, node: _Node) -> int:
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
            self.nodes[first + offset] = _Node(index, proposals[i])
        rank = order.index(0)
        self.forest.extend([ticket], [rank])
        return first + rank

    def _record(self, seconds: float) -> TreeRecord:
        table = self.forest.table(self.tree)
        self.forest.drop([self.tree])
        nodes = [self.nodes[i] for i in table.pop("id").tolist()]
        results = [node.result for node in nodes]
        observations: list[Observation | None] = [n.history.observation if n.history else None for n in nodes]
        return TreeRecord(
            task=self.task,
            parent=table["parent"],
            depth=table["depth"],
            visit_count=table["visit_count"],
            value_sum=table["value_sum"],
            critic_value=table["critic_value"],
            flags=table["flags"],
            proposal=[node.proposal for node in nodes],
            observation=observations,
            reward=np.array([r.reward if r else 0.0 for r in results], dtype=np.float32),
            success=np.array([bool(r and r.success) for r in results]),
            error_kind=[r.error_kind if r else None for r in results],
            restored=[node.restored for node in nodes],
            info={**self.counts, "seconds": seconds, "succeeded": bool(self.succeeded)},
        )
