"""One task on a live site: search at test time within a budget, a judge for the reward, a person for what is final.

Search takes no step that looks final: such a step is held, and ends its episode. The judge says whether it may be what
the user asked for, and then the user is asked. With a yes it is carried out, once, and another search begins where it
led; with a no it is refused, and the search begins again. Nothing that was carried out is ever done a second time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from agentq.agent.actions import history_text, parse_action
from agentq.critics.judge import Judgement, OutcomeJudge
from agentq.critics.ranker import LLMRanker
from agentq.envs.browser.env import BrowserEnv
from agentq.envs.browser.guard import FinalStep, Guard
from agentq.envs.browser.pool import BrowserPool
from agentq.envs.browser.states import Snapshot
from agentq.envs.browser.website import Website
from agentq.policies.model import ModelPolicy
from agentq.policies.protocol import Engine
from agentq.report.examples import best_end
from agentq.search.run import call
from agentq.search.tree import SearchSettings, TreeSearch
from agentq.store.records import TreeRecord
from agentq.types import History, Split, StepResult, Task

NAME = "live"
UNKNOWN = ("browser_lost", "network", "blocked")  # how a step may fail after it was sent


class Outcome(StrEnum):
    """How a run ended."""

    DONE = "done"  # the judge says that the final page shows all of it
    WAITS = "waits"  # a step that the judge approves needs a yes, and nobody can be asked
    LOST = "lost"  # a step was allowed, and it is not known whether the site has taken it
    GONE = "gone"  # a page was not reached again
    NOT_FOUND = "not found"  # within the budget


@dataclass(frozen=True, slots=True)
class Solution:
    """What became of a run.

    `commands`: of the best episode, from the first page on; `findings`: the judge's rubric of its end, empty where no
    end was good; `carried_out`: the final steps that the user allowed; `waits`: the one that needs a yes.
    """

    outcome: Outcome
    commands: tuple[str, ...]
    findings: tuple[tuple[str, bool], ...] = ()
    carried_out: tuple[FinalStep, ...] = ()
    waits: FinalStep | None = None


@dataclass(frozen=True, slots=True)
class Watcher:
    """Who follows a run. `allows` is asked before a final step is carried out, None where nobody can be."""

    allows: Callable[[FinalStep], bool] | None
    on_rollout: Callable[[History, StepResult, Judgement | None], None] = lambda history, result, judgement: None
    on_tree: Callable[[TreeRecord], None] = lambda tree: None


def solve(
    goal: str,
    url: str,
    engine: Engine,
    pool: BrowserPool,
    watcher: Watcher,
    settings: SearchSettings,
    *,
    judge: Engine | None = None,
    allow: Sequence[str] = (),
    constrained: bool = False,
    judge_sees: bool = False,
) -> Solution:
    """Search for a way to `goal` that starts at `url`, until the judge finds one, or an engine's budget is spent.

    Args:
        goal: what the user wants.
        url: where every attempt begins; pages of its origin and those of `allow` may be opened.
        engine: proposes the actions and ranks them.
        pool: where the pages are opened.
        watcher: hears of rollouts and trees, and allows what is final.
        settings: of each search; each stops at its first success.
        judge: the engine that judges, by default `engine`.
        allow: further origins.
        constrained: see `ModelPolicy`.
        judge_sees: whether the judge is shown a screenshot, too.

    Raises:
        ConfigError: if `url` or an origin is none, the engine cannot be constrained, or the judge cannot see.
        EnvError: if the first page cannot be opened.
        MissingExtra: without a browser.
    """
    judging = OutcomeJudge(judge or engine, sees=judge_sees)
    env = BrowserEnv(Website(NAME, url, allow), pool, guard=Guard(), pictures=judge_sees)
    settings = replace(settings, stop_on_success=True)
    task = Task(NAME, 0, Split.TEST, goal)
    try:
        run = _Run(env, task, engine, judging, watcher, settings, constrained)
        return asyncio.run(run.solve())
    finally:
        env.close()


@dataclass
class _Run:
    """One run, and the `Judge` of its searches."""

    env: BrowserEnv
    task: Task
    engine: Engine
    judge: OutcomeJudge
    watcher: Watcher
    settings: SearchSettings
    constrained: bool
    judgement: Judgement | None = None  # of the latest rollout
    won: tuple[History, Judgement, Snapshot | None] | None = None  # of the latest search; the last: where it is held
    carried_out: list[FinalStep] = field(default_factory=list)

    async def solve(self) -> Solution:
        """See the module."""
        history = History.of(self.task, await call(self.env, self.env.reset, self.task))
        root = await call(self.env, self.env.snapshot)
        while True:
            tree = await self._search(history)
            if self.won is None:
                return self._ended(Outcome.NOT_FOUND, (*history.actions, *_best(tree)))
            end, judgement, held = self.won
            if held is None or held.held is None:
                return self._ended(Outcome.DONE, end.actions, judgement)
            if self.watcher.allows is None:
                return self._ended(Outcome.WAITS, end.actions, judgement, held.held)
            if not self.watcher.allows(held.held):
                self._refuse(held.held)
                await call(self.env, self.env.restore, root)
                if self.env.restored == "failed":
                    return self._ended(Outcome.GONE, end.actions)
                continue
            result = await call(self.env, self.env.carry_out, held)
            if result.error_kind == "replay_mismatch":
                return self._ended(Outcome.GONE, end.actions, judgement)
            self.carried_out.append(held.held)
            if result.error_kind in UNKNOWN:
                return self._ended(Outcome.LOST, end.actions, judgement)
            history, root = replace(end, observation=result.observation), await call(self.env, self.env.snapshot)

    async def settle(self, history: History, result: StepResult) -> StepResult:
        """See `critics.protocol.Judge.settle`."""
        held = self.env.held
        self.judgement = await self.judge.judge(history)
        if self.judgement.success:
            self.won = (history, self.judgement, held)
        return replace(result, reward=float(self.judgement.success), success=self.judgement.success)

    async def _search(self, history: History) -> TreeRecord:
        self.won = None
        search = TreeSearch(
            self.env,
            self.task,
            ModelPolicy(self.engine, constrained=self.constrained),
            self.settings,
            critic=LLMRanker(self.engine),
            judge=self,
            start=history,
            on_rollout=self._told,
        )
        tree = await search.run()
        self.watcher.on_tree(tree)
        return tree

    def _told(self, history: History, result: StepResult) -> None:
        judgement, self.judgement = self.judgement, None
        self.watcher.on_rollout(history, result, judgement)

    def _refuse(self, step: FinalStep) -> None:
        assert self.env.guard is not None
        self.env.guard.refused.add(step)

    def _ended(
        self,
        outcome: Outcome,
        actions: Sequence[str],
        judgement: Judgement | None = None,
        waits: FinalStep | None = None,
    ) -> Solution:
        findings = judgement.findings if judgement else ()
        return Solution(outcome, commands_of(actions), findings, tuple(self.carried_out), waits)


def commands_of(actions: Sequence[str]) -> tuple[str, ...]:
    """The commands in the texts of composite actions."""
    return tuple(str(parse_action(text).env_action or "unreadable") for text in actions)


def _best(tree: TreeRecord) -> list[str]:
    """The texts of the actions on the path to a tree's best end."""
    proposals = [tree.proposal[node] for node in tree.path(best_end(tree))]
    return [history_text(proposal.action) for proposal in proposals if proposal is not None]
