"""One task on a live site: search within a budget, a judge for the reward, and a user who allows requests.

During search, no request is sent that may change the site: a step that would send one is held and ends its episode. The
judge decides whether the held step may be what the user wants, or is a right step on the way, such as a login. If so,
the step is repeated up to the request. The user is told which it is, and asked about exactly this request. After a yes
it is sent once, and another search begins on the resulting page. After a no it is refused, and the search begins again.
An allowed request is never sent twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from agentq.agent.actions import history_text, parse_action
from agentq.critics.judge import Judgement, OutcomeJudge
from agentq.critics.protocol import Critic
from agentq.envs.browser.budget import MAX_TOKENS
from agentq.envs.browser.env import BrowserEnv
from agentq.envs.browser.guard import Allows, FinalStep, Guard
from agentq.envs.browser.pool import BrowserPool
from agentq.envs.browser.rules import read_rules
from agentq.envs.browser.secret import Secret
from agentq.envs.browser.website import Website
from agentq.envs.calls import call
from agentq.envs.protocol import Restorable
from agentq.evaluation.outcomes import best_end
from agentq.policies.protocol import Policy
from agentq.searching.selection import SearchSettings
from agentq.searching.tree import TreeSearch
from agentq.store.records import TreeRecord
from agentq.types import BROWSER_COMMANDS, History, Language, Split, StepResult, Task

NAME = "live"
UNKNOWN = ("browser_lost", "network", "blocked")  # failures of a step that may have been sent


class Outcome(StrEnum):
    """Outcome of a run."""

    DONE = "done"  # the judge finds everything on the final page
    WAITS = "waits"  # a step that the judge approves needs a yes, and no user can be asked
    LOST = "lost"  # a step was allowed, but it is unknown whether the site accepted it
    GONE = "gone"  # a page was not reached again
    NOT_FOUND = "not found"  # not found within the budget


@dataclass(frozen=True, slots=True)
class Solution:
    """The result of a run.

    `commands`: of the best episode. `findings`: the judge's rubric for its end; empty if no end was good.
    `carried_out`: the steps that the user allowed. `waits`: the step that needs a yes. `counts`: of requests, see
    `gate.COUNTS`. `tried`: how often requests were blocked, by the rules that would allow them.
    """

    outcome: Outcome
    commands: tuple[str, ...]
    findings: tuple[tuple[str, bool], ...] = ()
    carried_out: tuple[FinalStep, ...] = ()
    waits: FinalStep | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    tried: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Watcher:
    """Callbacks of a run. `allows` is called before a request is sent; None if no user can be asked."""

    allows: Callable[[FinalStep], bool] | None
    on_rollout: Callable[[History, StepResult, Judgement | None], None] = lambda history, result, judgement: None
    on_tree: Callable[[TreeRecord], None] = lambda tree: None


def solve(
    goal: str,
    url: str,
    policy: Policy,
    pool: BrowserPool,
    watcher: Watcher,
    settings: SearchSettings,
    *,
    critic: Critic | None,
    judge: OutcomeJudge,
    allow: Sequence[str] = (),
    allow_requests: Sequence[str] = (),
    block_requests: Sequence[str] = (),
    secrets: Mapping[str, Secret] | None = None,
    storage: Mapping[str, Any] | None = None,
    uploads: Path | None = None,
    page_tokens: int = MAX_TOKENS,
    marks: bool = False,
) -> Solution:
    """Search for a way from `url` to `goal`, until the judge approves one or an engine's budget is spent.

    Args:
        goal: what the user wants.
        url: first page of every attempt; pages of its origin and of `allow` may be opened.
        policy: proposes the actions.
        pool: opens the pages.
        watcher: gets rollouts and trees, and allows requests.
        settings: settings of each search, which stops at its first success.
        critic: ranks the actions; None: they keep the order in which they were sampled.
        judge: judges the ends of rollouts.
        allow: further origins.
        secrets: values that the agent may type without knowing them, by name; see `Secret`.
        storage: cookies and storage that each attempt begins with, as Playwright's `storage_state` writes them.
        uploads: folder whose files may be uploaded.
        page_tokens: bound on the text of an observation.
        marks: whether policy and critic see each page as a screenshot with numbered marks.
        allow_requests: rules such as `POST https://diner.test/search` for requests that are sent without asking.
        block_requests: rules for requests that are neither sent nor asked about: a step continues without them.

    Raises:
        ConfigError: if `url`, an origin or a rule is invalid.
        EnvError: if the first page cannot be opened.
        MissingExtra: without a browser.
    """
    site = site_of(url, allow, allow_requests, block_requests, storage=storage, uploads=uploads)
    guard = Guard(allow_requests, block_requests)
    env = BrowserEnv(site, pool, page_tokens, secrets=secrets, guard=guard, pictures=judge.sees)
    env.marks = marks
    if secrets:
        goal += f" ( you may type {' , '.join(f'<secret:{name}>' for name in secrets)} )"
    settings = replace(settings, stop_on_success=True)
    task = Task(NAME, 0, Split.TEST, goal, BROWSER_COMMANDS)
    try:
        run = LiveRun(env, task, policy, critic, judge, watcher, settings)
        return asyncio.run(run.solve())
    finally:
        env.close()


def site_of(
    url: str,
    allow: Sequence[str] = (),
    allow_requests: Sequence[str] = (),
    block_requests: Sequence[str] = (),
    *,
    storage: Mapping[str, Any] | None = None,
    uploads: Path | None = None,
) -> Website:
    """The site of a run, see `solve`. Raises ConfigError for an invalid address, origin or rule."""
    site = Website(NAME, url, allow, storage=storage, uploads=uploads)
    read_rules(allow_requests, site.allow, "--allow-request")
    read_rules(block_requests, site.allow, "--block-request")
    return site


class Held(Protocol):
    """A state whose last step needs the user's yes, if it has one."""

    @property
    def held(self) -> FinalStep | None: ...


class LiveEnv(Restorable, Protocol):
    """An Env that holds steps with effects."""

    @property
    def guard(self) -> Guard | None: ...

    @property
    def held(self) -> Any:
        """The present state, a `Held`, if its last step is held."""
        ...

    def carry_out(self, held: Any, allows: Allows) -> StepResult:
        """Do the step that is held; see `BrowserEnv.carry_out`."""
        ...


@dataclass
class LiveRun:
    """One run, and the `Judge` of its searches."""

    env: LiveEnv
    task: Task
    policy: Policy
    critic: Critic | None
    judge: OutcomeJudge
    watcher: Watcher
    settings: SearchSettings
    judgement: Judgement | None = None  # judgement of the latest rollout
    won: tuple[History, Judgement, Held | None] | None = None  # by the latest search, with its held state
    towards: bool = False  # it is a step on the way

    @property
    def guard(self) -> Guard:
        """The guard of the environment."""
        assert self.env.guard is not None
        return self.env.guard

    async def solve(self) -> Solution:
        """Search, ask and send in turn, as described in the module docstring."""
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
            sent = len(self.guard.sent)
            asked, result = await self._carry_out(held)
            if result.error_kind == "replay_mismatch" or not asked:
                return self._ended(Outcome.GONE, end.actions, judgement)
            if len(self.guard.sent) > sent:
                if result.error_kind in UNKNOWN:
                    return self._ended(Outcome.LOST, end.actions, judgement)
                history = replace(end, observation=result.observation)
                root = await call(self.env, self.env.snapshot)
                continue
            self.guard.refused.add(held.held)
            await call(self.env, self.env.restore, root)
            if self.env.restored == "failed":
                return self._ended(Outcome.GONE, end.actions)

    async def _carry_out(self, held: Held) -> tuple[int, StepResult]:
        """Do a held step until the user refuses a request. Returns the number of questions and the result."""
        loop, asked = asyncio.get_running_loop(), 0

        async def ask(step: FinalStep) -> bool:
            assert self.watcher.allows is not None
            return self.watcher.allows(replace(step, towards=self.towards))

        def allows(step: FinalStep) -> bool:  # called in the environment's thread; asks in the loop's
            nonlocal asked
            asked += 1
            return asyncio.run_coroutine_threadsafe(ask(step), loop).result()

        result = await call(self.env, self.env.carry_out, held, allows)
        return asked, result

    async def settle(self, history: History, result: StepResult) -> StepResult:
        """See `critics.protocol.Judge.settle`."""
        held = self.env.held
        self.judgement, self.towards = await self.judge.judge(history), False
        if held is not None and not self.judgement.success and (step := await self.judge.step(history)).success:
            self.judgement, self.towards = step, True
        if self.judgement.success:
            self.won = (history, self.judgement, held)
        return replace(result, reward=float(self.judgement.success), success=self.judgement.success)

    async def _search(self, history: History) -> TreeRecord:
        self.won = None
        search = TreeSearch(
            self.env,
            self.task,
            self.policy,
            self.settings,
            critic=self.critic,
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

    def _ended(
        self,
        outcome: Outcome,
        actions: Sequence[str],
        judgement: Judgement | None = None,
        waits: FinalStep | None = None,
    ) -> Solution:
        findings = judgement.findings if judgement else ()
        self.env.close()  # reports the last counts
        guard, commands = self.guard, commands_of(actions, self.task.language)
        return Solution(outcome, commands, findings, tuple(guard.sent), waits, dict(guard.counts), dict(guard.tried))


def commands_of(actions: Sequence[str], language: Language = Language.WEB) -> tuple[str, ...]:
    """The commands in the texts of composite actions."""
    return tuple(str(parse_action(text, language=language).env_action or "unreadable") for text in actions)


def _best(tree: TreeRecord) -> list[str]:
    """The action texts on the path to a tree's best end."""
    proposals = [tree.proposal[node] for node in tree.path(best_end(tree))]
    return [history_text(proposal.action) for proposal in proposals if proposal is not None]
