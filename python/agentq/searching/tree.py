"""Agent Q's search of one task: Monte-Carlo tree search with the policy's proposals, the critic's ranks, one reward.

One iteration (arXiv:2408.07199, section 5.1, Algorithm 1):

    1. select     descend from the root by the selection rule (UCB1 in the paper)   (forest.ask)
    2. execute    restore the parent's page, take the leaf's action
    3. expand     sample K proposals there, drop duplicates, let the critic rank    (forest.expand)
    4. roll out   follow the policy's first sample, expanding each node on the way, until the episode ends
    5. back up    N and W of every node on the path                                 (forest.tell)

Ours, where the paper is silent: every node of a rollout joins the tree with its K proposals. Later iterations branch
off there, in the order of the critic's ranks. A rollout that the world broke is cancelled: it uses up an iteration, but
N and W do not count it. A node that broke `TRIES` times is not tried again.
With `leaves_in_flight` n, steps 1 and 5 handle n leaves at once; steps 2 to 4 run concurrently, one session per leaf.
New nodes join the forest in the order of the leaves once all rollouts have ended, so timing does not matter.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from agentq._core import NO_NODE
from agentq.agent.actions import action_key
from agentq.critics.protocol import Critic, Judge
from agentq.envs.calls import call, close
from agentq.envs.protocol import Env, can_fork, can_restore
from agentq.errors import BudgetSpent
from agentq.policies.protocol import Policy
from agentq.searching.faults import Broken, Resets, broken_tree
from agentq.searching.nodes import Node, ranked_children, record
from agentq.searching.partial import PartialTrees
from agentq.searching.selection import NEED_PRIORS, SearchSettings, forest_for, priors, taken_return
from agentq.searching.session import TRIES, SearchSession
from agentq.seeds import Stream, task_seed
from agentq.store.records import TreeRecord
from agentq.types import History, Proposal, StepResult, Task

COUNTS = ("env_steps", "prompt_tokens", "generated_tokens", "calls", "iterations", "replay_mismatches")


@dataclass(slots=True)
class _Rollout:
    """One rollout in flight. Its samples are numbered from `expansion` in steps of `stride`. `spent`: out of budget."""

    ticket: int
    path: list[Node]
    expansion: int
    stride: int
    sampled: int = 0
    spent: bool = False


class TreeSearch:
    """One task's tree and its environment sessions. Without a critic, alpha is 1, and siblings have one value.

    A judge's verdict replaces the environment's reward. With `start` the search begins there: the environment must show
    its observation and be able to restore, and it is not reset. `on_rollout` receives the end of each rollout, broken
    ones included. `make_env` makes the additional sessions of `leaves_in_flight`, which are closed at the end; without
    it they are forks of `env`. `partials` keeps the growing tree, from which a killed search resumes.

    Raises:
        ValueError: if the search cannot begin at `start`, or cannot have that many sessions.
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
        start: History | None = None,
        on_rollout: Callable[[History, StepResult], None] = lambda history, result: None,
        resets: Resets | None = None,
        make_env: Callable[[], Env] | None = None,
        partials: PartialTrees | None = None,
    ) -> None:
        self.task, self.policy, self.critic, self.judge, self.resets = task, policy, critic, judge, resets or Resets()
        self.start, self.on_rollout, self.make_env, self.partials = start, on_rollout, make_env, partials
        self.settings = settings = settings if critic is not None else replace(settings, alpha=1.0)
        if start is not None and not can_restore(env):
            raise ValueError(f"a search that begins on the way needs an environment that can restore; got {env.name}")
        if settings.leaves_in_flight > 1 and make_env is None and not can_fork(env):
            raise ValueError(f"several leaves in flight need make_env or an environment that can fork; got {env.name}")
        self.forest = forest_for(settings, task)
        (self.tree,) = self.forest.add_trees(1).tolist()
        self.root = Node(id=self.forest.root(self.tree))
        self.nodes = {self.forest.root(self.tree): self.root}
        self.counts: Counter[str] = Counter(dict.fromkeys(COUNTS, 0))
        self.sessions = [self._session(env)]
        self.faults, self.expansions, self.succeeded = Counter[str](), 0, False
        self.left = settings.num_iterations  # rollouts from the present root
        self.begun = time.perf_counter()  # minus the time that earlier processes took
        self.taken: list[tuple[int, float]] = []  # N and W of each action taken, see `searching.steps`
        self.ends: list[Node] = []  # where each rollout below the present root ended, in order

    async def run(self) -> TreeRecord:
        """Search until iterations or budget are spent, the tree is exhausted, or (if asked to) a success is found.

        A task without a first page has a record with only a root, which has the error kind.
        """
        try:
            await self.open()
        except Broken as fault:
            return broken_tree(self.task, fault)
        try:
            await self.grow()
        finally:
            await self.close()
        table = self.forest.table(self.tree)
        nodes = [self.nodes[i] for i in table.pop("id").tolist()]
        place = {node: i for i, node in enumerate(nodes)}
        tree = record(self.task, nodes, table, {**self.info(), "ends": [place[end] for end in self.ends]})
        for node in nodes:
            node.parent = None  # without cycles the nodes are freed now, not when the garbage collector finds them
        return tree

    def info(self) -> dict[str, object]:
        """Totals of the whole search, for the record's `info`."""
        seconds = time.perf_counter() - self.begun
        return {**self.counts, "seconds": seconds, "succeeded": self.succeeded, "faults": dict(self.faults)}

    async def open(self) -> None:
        """Show the first page. Raises Broken if it does not load."""
        session, self.begun = self.sessions[0], time.perf_counter()
        self.root.history = self.start
        if self.start is None:
            self.task, self.root.history = await self.resets.first(session.env, self.task)
        session.task, session.position = self.task, self.root
        self.root.snapshot = await session.snapshot()
        if self.partials is not None:
            self.partials.resume(self)

    async def grow(self, whole: bool = True) -> bool:
        """Make the `left` rollouts of the `whole` search, or of a step, or fewer as in `run`; False if over budget."""
        while self.left > 0 and not (self.succeeded and self.settings.stop_on_success):
            tickets, leaves, *_ = self.forest.ask([self.tree], min(self.left, self.settings.leaves_in_flight))
            if len(tickets) == 0:
                break
            self.left -= len(tickets)
            if not await self._batch(tickets.tolist(), leaves.tolist()):
                return False
            done = self.settings.share((self.settings.num_iterations - self.left) * whole, self.counts["calls"])
            self.resets.grew(self.task.seed, self.counts["iterations"], done)
            if self.partials is not None:
                self.partials.keep(self)
        return True

    async def close(self) -> None:
        """Close the sessions that the search made."""
        for session in self.sessions[1:]:
            await close(session.env)
        del self.sessions[1:]

    def _session(self, env: Env) -> SearchSession:
        return SearchSession(env, self.task, self.resets, self.counts, self.judge, self.settings.max_unreadable)

    async def _further_env(self) -> Env:
        if self.make_env is not None:
            return self.make_env()
        env = self.sessions[0].env
        assert can_fork(env)  # see __init__
        return await call(env, env.fork)

    async def _batch(self, tickets: list[int], leaves: list[int]) -> bool:
        """Roll out from each leaf concurrently, then add the results in leaf order; False if the budget is spent."""
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

        Otherwise the rule asks for a new child: the next untried one, else one more sample, which may repeat a child.
        """
        if not node.children:
            sampled, seed = await self._sample(node, rollout, self.settings.num_proposals)
            children, first = await ranked_children(node, sampled, self.critic, seed)
            if self.settings.selection in NEED_PRIORS:
                for child, prior in zip(children, priors([c.proposal for c in children if c.proposal]), strict=True):
                    child.prior = float(prior)
            node.children = children
            return first
        for child in node.children:
            if child.broke < TRIES and (child.id is None or self.forest.visits_started[child.id] == 0):
                return child
        (proposal,), _ = await self._sample(node, rollout, 1)
        known = {action_key(c.proposal.action.env_action): c for c in node.children if c.proposal is not None}
        key = action_key(proposal.action.env_action)
        if key not in known:
            node.children = [*node.children, known.setdefault(key, Node(node, proposal))]
        return known[key]

    async def _sample(self, node: Node, rollout: _Rollout, k: int) -> tuple[list[Proposal], int]:
        """The rollout's next sample and its seed. Raises BudgetSpent if it would take more than `max_calls`."""
        assert node.history is not None
        if 0 < self.settings.max_calls < self.counts["calls"] + k:
            raise BudgetSpent("the calls of the search are spent")
        self.counts["calls"] += k
        number = rollout.expansion + rollout.stride * rollout.sampled
        seed = task_seed(self.settings.seed, self.task, Stream.TREE, number)
        rollout.sampled += 1
        sampled = await self.policy.propose(node.history, k, seed=seed, temperature=self.settings.temperature)
        self.counts["prompt_tokens"] += len(sampled[0].prompt_ids)
        self.counts["generated_tokens"] += sum([len(p.token_ids) for p in sampled])
        return sampled, seed

    def _tell(self, rollout: _Rollout) -> None:
        """Add the rollout's nodes to the forest and back up its return; cancel the rollout if it was cut short."""
        ticket, node = rollout.ticket, rollout.path[-1]
        self._join(rollout)
        if rollout.spent:
            self.forest.cancel([ticket])
        elif node.fault is not None:
            self._break(ticket, node, node.fault)
        else:
            assert node.history is not None and node.result is not None
            taken = taken_return(self.settings.selection, self.task.env, node.total)
            self.forest.set_terminal([ticket])
            self.forest.tell_one(ticket, taken)
            self.ends.append(node)
            self.counts["iterations"] += 1
            self.succeeded |= node.won
            self.on_rollout(node.history, node.result)

    def _join(self, rollout: _Rollout) -> None:
        """Move the rollout along its path in the forest, adding the nodes that are missing."""
        tickets = [rollout.ticket]
        for node, child in pairwise(rollout.path):
            if node.children[0].id is None:
                self._expand(tickets, node)
            if child.id is None:
                new = self.forest.widen(tickets, [child.value])
                self._name([child], int(new[0]))
            else:
                self.forest.extend(tickets, [node.children.index(child)])

    def _expand(self, tickets: list[int], node: Node) -> None:
        shares = [child.prior for child in node.children] if self.settings.selection in NEED_PRIORS else None
        first = self.forest.expand(tickets, [len(node.children)], [child.value for child in node.children], shares)
        self._name(node.children, int(first[0]))

    def _name(self, nodes: Sequence[Node], first: int) -> None:
        if first == NO_NODE:
            raise MemoryError(f"a tree must fit {self.forest.max_bytes} bytes; it is full")
        for i, node in enumerate(nodes, first):
            node.id, self.nodes[i] = i, node

    def _break(self, ticket: int, node: Node, fault: Broken) -> None:
        """Cancel a rollout that the world broke at `node`."""
        if node.broke >= TRIES:  # it was given up before
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
