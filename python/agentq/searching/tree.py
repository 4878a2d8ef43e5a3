"""Agent Q's search of one task: Monte-Carlo tree search with the policy's proposals, the critic's ranks, one reward.

One iteration (arXiv:2408.07199, section 5.1, Algorithm 1):

    1. select     descend from the root by the selection rule (UCB1 in the paper)   (forest.ask)
    2. execute    restore the parent's page, take the leaf's action
    3. expand     sample K proposals there, drop duplicates, let the critic rank    (forest.expand)
    4. roll out   follow the policy's first sample, expanding each node on the way, until the episode ends
    5. back up    N and W of every node on the path                                 (forest.tell)

Ours, where the paper is silent: every node of a rollout joins the tree with its K proposals, where later iterations
branch off, the critic's first rank first. A rollout that the world broke is cancelled: it uses up an iteration, and N
and W do not count it. A node that broke `TRIES` times is not tried again.
With `leaves_in_flight` n, steps 1 and 5 handle n leaves at once; steps 2 to 4 run concurrently, one session per leaf.
New nodes join the forest in the order of the leaves once all rollouts have ended, so timing does not matter.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from agentq._core import NO_NODE, Forest
from agentq.agent.actions import action_key
from agentq.critics.protocol import Critic, Judge
from agentq.envs.protocol import Env, can_fork, can_restore
from agentq.errors import BudgetSpent
from agentq.policies.protocol import Policy
from agentq.searching.faults import Broken, Resets, broken_tree
from agentq.searching.nodes import Node, ranked_children, record
from agentq.searching.run import call
from agentq.searching.selection import NEED_PRIORS, SearchSettings, check_forest, forest_for, priors
from agentq.searching.session import TRIES, SearchSession
from agentq.seeds import Stream, task_seed
from agentq.store.records import TreeRecord
from agentq.types import History, Proposal, StepResult, Task

COUNTS = ("env_steps", "prompt_tokens", "generated_tokens", "iterations", "replay_mismatches")


@dataclass(slots=True)
class _Rollout:
    """One rollout in flight. Its samples have every `stride`-th number from `expansion` on; `spent`: out of budget."""

    ticket: int
    path: list[Node]
    expansion: int
    stride: int
    sampled: int = 0
    spent: bool = False


class TreeSearch:
    """One task's tree and its environment sessions; without a critic all proposals of a node are worth the same.

    A judge's verdict takes the place of the environment's reward. With `start` the search begins there: the environment
    must show its observation, and be able to restore; it is not reset. `on_rollout` hears how each rollout ended, those
    that the world broke too. `make_env` makes the further sessions of `leaves_in_flight`, closed at the end; without it
    they are forks of `env`.

    The tree lies in `forest`, which many searches of the same settings may share, and is dropped from it at the end;
    without one it has a forest of its own.

    Raises:
        ValueError: if the search cannot serve the forest, begin at `start`, or have so many sessions.
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
        make_env: Callable[[], Env] | None = None,
    ) -> None:
        self.task, self.policy, self.settings, self.critic = task, policy, settings, critic
        self.judge, self.start, self.on_rollout, self.make_env = judge, start, on_rollout, make_env
        self.resets = resets or Resets()
        if start is not None and not can_restore(env):
            raise ValueError(f"a search that begins on the way needs an environment that can restore; got {env.name}")
        if settings.leaves_in_flight > 1 and make_env is None and not can_fork(env):
            raise ValueError(f"several leaves in flight need make_env or an environment that can fork; got {env.name}")
        if forest is not None:
            check_forest(forest, settings)
        self.forest = forest_for(settings, task) if forest is None else forest
        (self.tree,) = self.forest.add_trees(1).tolist()
        self.root = Node(id=self.forest.root(self.tree))
        self.nodes = {self.forest.root(self.tree): self.root}
        self.counts: Counter[str] = Counter(dict.fromkeys(COUNTS, 0))
        self.sessions = [self._session(env)]
        self.faults: Counter[str] = Counter()
        self.expansions = 0
        self.succeeded = False

    async def run(self) -> TreeRecord:
        """Search until iterations or budget are spent, the tree is exhausted, or (if asked to) a success is found.

        A task whose first page does not come has a record of a root alone, with the error kind.
        """
        begun = time.perf_counter()
        try:
            await self.open()
        except Broken as fault:
            self.forest.drop([self.tree])
            return broken_tree(self.task, fault)
        try:
            await self.grow()
        finally:
            await self.close()
        table = self.forest.table(self.tree)
        self.forest.drop([self.tree])
        nodes = [self.nodes[i] for i in table.pop("id").tolist()]
        return record(self.task, nodes, table, self.info(begun))

    def info(self, begun: float) -> dict[str, object]:
        """Of the record, for a search that began at `begun` on the clock."""
        found = {"seconds": time.perf_counter() - begun, "succeeded": self.succeeded, "faults": dict(self.faults)}
        return {**self.counts, **found}

    async def open(self) -> None:
        """Show the first page. Raises Broken where it does not come."""
        session = self.sessions[0]
        self.root.history = self.start or History.of(self.task, await self.resets.first_page(session.env, self.task))
        session.position = self.root
        self.root.snapshot = await session.snapshot()

    async def grow(self) -> bool:
        """`num_iterations` more rollouts from the present root, or fewer, see `run`; False if the budget is spent."""
        s, left = self.settings, self.settings.num_iterations
        while left > 0 and not (self.succeeded and s.stop_on_success):
            tickets, leaves, *_ = self.forest.ask([self.tree], min(left, s.leaves_in_flight))
            if len(tickets) == 0:
                break
            left -= len(tickets)
            if not await self._batch(tickets.tolist(), leaves.tolist()):
                return False
        return True

    async def close(self) -> None:
        """Close the sessions that the search made."""
        for session in self.sessions[1:]:
            await call(session.env, session.env.close)
        del self.sessions[1:]

    def _session(self, env: Env) -> SearchSession:
        return SearchSession(env, self.task, self.resets, self.counts, self.judge)

    async def _further_env(self) -> Env:
        if self.make_env is not None:
            return self.make_env()
        env = self.sessions[0].env
        assert can_fork(env)  # see __init__
        return await call(env, env.fork)

    async def _batch(self, tickets: list[int], leaves: list[int]) -> bool:
        """Roll out from each leaf, side by side, then add what came out in their order; False: the budget is spent."""
        n = len(tickets)
        batch = [
            _Rollout(ticket, [self.nodes[leaf]], self.expansions + i, n)
            for i, (ticket, leaf) in enumerate(zip(tickets, leaves, strict=True))
        ]
        try:
            while len(self.sessions) < n:
                self.sessions.append(self._session(await self._further_env()))
            if n == 1:
                await self._roll_out(self.sessions[0], batch[0])
            else:
                async with asyncio.TaskGroup() as group:
                    for session, rollout in zip(self.sessions, batch, strict=False):
                        group.create_task(self._roll_out(session, rollout))
        except BaseException as error:
            self.forest.cancel(tickets)
            if isinstance(error, BaseExceptionGroup):
                raise error.exceptions[0] from None
            raise
        self.expansions += n * max(rollout.sampled for rollout in batch)
        for rollout in batch:
            self._tell(rollout)
        return not any(rollout.spent for rollout in batch)

    async def _roll_out(self, session: SearchSession, rollout: _Rollout) -> None:
        """Follow the policy from the rollout's node to the end of the episode, or to where the world broke it."""
        node = rollout.path[-1]
        try:
            await session.execute(node)
            while not node.ended and node.fault is None:
                node = await self._next(node, rollout)
                rollout.path.append(node)
                await session.execute(node)
        except BudgetSpent:
            rollout.spent = True

    async def _next(self, node: Node, rollout: _Rollout) -> Node:
        """The next node of the rollout: for a node without children, the policy's first sample.

        Otherwise the rule wants a new child: the next untried one, else one more sample, which may repeat a child.
        """
        if not node.children:
            seed = self._seed(rollout)
            sampled = await self._sample(node, rollout, self.settings.num_proposals)
            children, first = await ranked_children(node, sampled, self.critic, seed)
            if self.settings.selection in NEED_PRIORS:
                for child, prior in zip(children, priors([c.proposal for c in children if c.proposal]), strict=True):
                    child.prior = float(prior)
            node.children = children
            return first
        for child in node.children:
            if child.broke < TRIES and (child.id is None or self.forest.started[child.id] == 0):
                return child
        (proposal,) = await self._sample(node, rollout, 1)
        known = {action_key(c.proposal.action.env_action): c for c in node.children if c.proposal is not None}
        key = action_key(proposal.action.env_action)
        if key not in known:
            node.children.append(known.setdefault(key, Node(node, proposal)))
        return known[key]

    def _seed(self, rollout: _Rollout) -> int:
        """Seed of the rollout's next sample."""
        number = rollout.expansion + rollout.stride * rollout.sampled
        return task_seed(self.settings.seed, self.task, Stream.TREE, number)

    async def _sample(self, node: Node, rollout: _Rollout, k: int) -> list[Proposal]:
        assert node.history is not None
        seed = self._seed(rollout)
        rollout.sampled += 1
        sampled = await self.policy.propose(node.history, k, seed=seed, temperature=self.settings.temperature)
        self.counts["prompt_tokens"] += len(sampled[0].prompt_ids)
        self.counts["generated_tokens"] += sum(len(p.token_ids) for p in sampled)
        return sampled

    def _tell(self, rollout: _Rollout) -> None:
        """Add the rollout's nodes to the forest and back its return up; cancel it if it was cut short."""
        ticket, node = rollout.ticket, rollout.path[-1]
        self._join(rollout)
        if rollout.spent:
            self.forest.cancel([ticket])
        elif node.fault is not None:
            self._break(ticket, node, node.fault)
        else:
            assert node.history is not None and node.result is not None
            self.forest.set_terminal([ticket])
            self.forest.tell_one(ticket, node.total)
            self.counts["iterations"] += 1
            self.succeeded |= bool(node.result.success)
            self.on_rollout(node.history, node.result)

    def _join(self, rollout: _Rollout) -> None:
        """Move the rollout in the forest along its path, which grows the nodes that are not there yet."""
        tickets = [rollout.ticket]
        for node, child in pairwise(rollout.path):
            if node.children[0].id is None:
                self._expand(tickets, node)
            if child.id is None:
                assert child.proposal is not None
                new = self.forest.widen(tickets, [child.value], [child.proposal.action_logp])
                self._name([child], int(new[0]))
            else:
                self.forest.extend(tickets, [node.children.index(child)])

    def _expand(self, tickets: list[int], node: Node) -> None:
        proposals = [child.proposal for child in node.children if child.proposal is not None]
        first = self.forest.expand(
            tickets,
            [len(proposals)],
            [child.value for child in node.children],
            [p.action_logp for p in proposals],
            [child.prior for child in node.children] if self.settings.selection in NEED_PRIORS else None,
        )
        self._name(node.children, int(first[0]))

    def _name(self, nodes: list[Node], first: int) -> None:
        if first == NO_NODE:
            raise MemoryError(f"all trees in flight must fit {self.forest.max_bytes} bytes; they are full")
        for i, node in enumerate(nodes, first):
            node.id, self.nodes[i] = i, node

    def _break(self, ticket: int, node: Node, fault: Broken) -> None:
        """Take a rollout back that the world broke at `node`."""
        if node.broke >= TRIES:  # it has been given up before
            self.forest.cancel([ticket])
            return
        node.broke += 1
        self.faults[fault.kind] += 1
        if node.broke < TRIES:
            self.forest.cancel([ticket])
        else:
            self.forest.abandon([ticket])
        assert node.parent is not None and node.parent.history is not None
        self.on_rollout(node.parent.history, fault.result(node.parent.history.observation))
