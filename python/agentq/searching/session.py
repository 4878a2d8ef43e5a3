"""One environment session of a search: goes to a node's page and takes actions there. Does not know the forest."""

from __future__ import annotations

from collections import Counter
from typing import Any

from agentq.agent.actions import history_text
from agentq.critics.protocol import Judge
from agentq.envs.calls import call
from agentq.envs.protocol import Env, can_restore, is_blocking
from agentq.error_kinds import REPLAY_MISMATCH, SESSION_LOST
from agentq.errors import EnvError
from agentq.searching.faults import Broken, Resets, ask, of_the_world, take
from agentq.searching.nodes import Node
from agentq.searching.unreadable import ended_if_unreadable
from agentq.types import Observation, Proposal, StepResult, Task

TRIES = 2  # a node is given up after this many broken rollouts (ours)


class SearchSession:
    """An environment and the node whose page it shows. `counts` is shared with the search's other sessions."""

    def __init__(
        self,
        env: Env,
        task: Task,
        resets: Resets,
        counts: Counter[str],
        judge: Judge | None,
        max_unreadable: int = 0,
    ) -> None:
        self.env, self.task, self.resets, self.counts, self.judge = env, task, resets, counts, judge
        self.max_unreadable = max_unreadable
        self.position: Node | None = None
        self.restorable = env if can_restore(env) else None
        self.blocking = is_blocking(env)

    async def execute(self, node: Node) -> None:
        """Take the node's action at its parent's page, unless it is done already. A world fault is stored in `fault`.

        A node that broke `TRIES` times keeps its fault.
        """
        if node.history is not None or node.broke >= TRIES:
            return
        before = node.parent
        assert before is not None and before.history is not None and node.proposal is not None
        try:
            if self.position is not before:
                await self._go_to(before)
            page = before.history.observation
            if self.blocking:
                result, node.snapshot = await call(self.env, self._take, node.proposal, page)
            else:
                result, node.snapshot = self._take(node.proposal, page)
            self._count(result)
            history = before.history.then(history_text(node.proposal.action), result.observation)
            result = ended_if_unreadable(result, history, self.max_unreadable)
            self.position = None if result.terminated or result.truncated else node
            if self.judge is not None and result.terminated:
                result = await self.judge.settle(history, result)
        except Broken as fault:
            self.position, node.fault = None, fault
        else:
            node.history, node.result, node.total = history, result, before.total + result.reward
            node.fault = None

    async def snapshot(self) -> Any:
        """The session's present state; None if it cannot be restored."""
        return await ask(self.env, self.restorable.snapshot) if self.restorable is not None else None

    def _take(self, proposal: Proposal, page: Observation) -> tuple[StepResult, Any]:
        """Take an action. Returns its result and the state after it, None if that ended or cannot be restored."""
        result = take(self.env, proposal.action.env_action, page)
        if self.restorable is None or result.terminated or result.truncated or result.broken:
            return result, None
        try:
            return result, self.restorable.snapshot()
        except EnvError as error:
            return Broken(SESSION_LOST, of_the_world(error)).result(page), None

    def _count(self, result: StepResult) -> None:
        """Count a step. Raises Broken if the world failed."""
        self.counts["env_steps"] += 1
        if result.broken:
            raise Broken(result.error_kind or SESSION_LOST, result.error_message)

    async def _go_to(self, node: Node) -> None:
        """Show the node's page: by snapshot, else by replay, checked by fingerprints.

        Raises Broken if the page cannot be reached. A failed restore is detected at the next step.
        """
        if self.restorable is not None and node.snapshot is not None:
            await ask(self.env, self.restorable.restore, node.snapshot)
            node.restored = self.restorable.restored
            return
        node.restored = "failed"
        await self._replay(node)
        node.restored = "approximate"

    async def _replay(self, target: Node) -> None:
        """Repeat the actions that led to a node, from the nearest page with a snapshot, else from the first page."""
        path = target.path()
        known = [i for i, node in enumerate(path) if node.snapshot is not None]
        if self.restorable is not None and known:
            start = path[known[-1]]
            assert start.history is not None
            await ask(self.env, self.restorable.restore, start.snapshot)
            page, path = start.history.observation, path[known[-1] + 1 :]
        else:
            page = await self.resets.first_page(self.env, self.task)
        for node in path:
            assert node.history is not None
            if node.proposal is not None:
                result = await call(self.env, take, self.env, node.proposal.action.env_action, page)
                self._count(result)
                page = result.observation
            if page.fingerprint != node.history.observation.fingerprint:
                self.counts["replay_mismatches"] += 1
                raise Broken(REPLAY_MISMATCH, "a replay must reach the same page; it reached another")
            if node.snapshot is None:
                node.snapshot = await self.snapshot()
