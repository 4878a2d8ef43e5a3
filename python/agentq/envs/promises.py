"""What every environment promises: built-in, in a browser, behind a server, or your own.

A promise is a function of a `Case` that raises AssertionError with what is broken. `check_env` checks all promises on
one task; `agentq.envs.check` draws tasks and actions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, fields

from agentq.envs.browser.budget import MAX_TOKENS, fit
from agentq.envs.calls import call, session
from agentq.envs.explore import refused
from agentq.envs.page import first_difference
from agentq.envs.protocol import ROUNDING, Env, can_fork, can_restore
from agentq.error_kinds import WORLD_FAULTS
from agentq.errors import EnvError
from agentq.types import Command, EnvAction, Observation, StepResult, Task

OPTIONAL = "optional: "
_STOP = EnvAction(Command.STOP)


class NotOffered(Exception):
    """The environment does not promise this, which is optional; the message says what that means."""


class Advised(Exception):
    """What search can live with, and the message says what it costs."""


class SessionPool:
    """Sessions that promises take in turn, as search does: to open one may start a browser or a server.

    `limit`: number of sessions that there are; None for any number.
    """

    def __init__(self, make: Callable[[], Env], limit: int | None = None) -> None:
        self.make, self.limit = make, limit
        self._idle: list[Env] = []
        self._most = 0

    @contextmanager
    def take(self, n: int, *, new: int = 0) -> Iterator[list[Env]]:
        """`n` sessions; the first `new` of them are unused. After an exception they are closed.

        Never are more open than were taken at once, since a server may have few.

        Raises:
            NotOffered: if there are fewer.
        """
        if self.limit is not None and n > self.limit:
            raise NotOffered(f"it takes {n} sessions at once; the server has {self.limit} (--sessions)")
        self._most = max(self._most, n)
        with ExitStack() as taken:
            envs = list[Env]()
            while len(self._idle) > self._most - new:
                self._idle.pop().close()
            for i in range(n):
                envs.append(self._idle.pop() if self._idle and i >= new else self.make())
                taken.callback(envs[-1].close)
            yield envs
            taken.pop_all()
        self._idle += envs

    def close(self) -> None:
        """Close the idle sessions."""
        while self._idle:
            self._idle.pop().close()


@dataclass(frozen=True, slots=True)
class Case:
    """A task, and actions that do not end its episode. `end`: the one after them that does, if the walk ended."""

    sessions: SessionPool
    task: Task
    actions: list[EnvAction]
    end: EnvAction | None = None
    accepted: int = 0  # actions without an error kind, with the end

    @property
    def walk(self) -> list[EnvAction]:
        """The actions, with the end if there is one. A task of one step has nothing but an end."""
        return self.actions if self.end is None else [*self.actions, self.end]


def repeats(case: Case) -> None:
    """Equal resets and actions give equal pages and results, in every session."""
    with case.sessions.take(2, new=1) as (env, twin):
        _expect_env_error(env, "step before reset")
        _same(env.reset(case.task), twin.reset(case.task), "reset is not deterministic")
        for action in case.walk:
            _same(env.step(action), twin.step(action), f"{action} is not deterministic")
        _same(env.reset(case.task), twin.reset(case.task), "a second reset gives another page")


def _same(told: Observation | StepResult, again: Observation | StepResult, broken: str) -> None:
    """Raise AssertionError with what is `broken` and the first difference, unless both are equal."""
    if told != again:
        raise AssertionError(f"{broken}: {_difference(told, again)}")


def _difference(told: Observation | StepResult, again: Observation | StepResult) -> str:
    """The first line in which the pages differ, else the first field."""
    pages = [each.observation if isinstance(each, StepResult) else each for each in (told, again)]
    if said := first_difference(*(f"{page.text}\nurl {page.url}" for page in pages)):
        return said
    both = [(field.name, getattr(told, field.name), getattr(again, field.name)) for field in fields(told)]
    name, was, now = next(each for each in both if each[1] != each[2])
    return f"{name} {str(was)[:80]} is now {str(now)[:80]}"


def restores(case: Case) -> None:
    """Every state can be restored from its snapshot, in reverse order and in another session."""
    actions = case.walk
    with case.sessions.take(2) as (env, other):
        if not can_restore(env) or not can_restore(other):
            raise NotOffered(f"{OPTIONAL}search replays the way to a page from reset")
        tokens, pages, results = [], [env.reset(case.task)], list[StepResult]()
        for action in actions:
            tokens.append(env.snapshot())
            results.append(env.step(action))
            pages.append(results[-1].observation)
        for i in reversed(range(len(actions))):
            for session in (env, other):
                restored = session.restore(tokens[i])
                if restored.fingerprint != pages[i].fingerprint:
                    _same(pages[i], restored, f"restore {i} gives another page")
                _same(results[i], session.step(actions[i]), f"a step after restore {i} differs")


def forks(case: Case) -> None:
    """A fork has the state of its origin, and neither affects the other."""
    with case.sessions.take(1) as (env,):
        if not can_fork(env):
            raise NotOffered(f"{OPTIONAL}tree_grpo, tree_rl, tree_po and arpo_entropy cannot use it")
        env.reset(case.task)
        token, fork = env.snapshot(), env.fork()
        fork.step(None)
        assert env.restore(token) == fork.restore(token), "a fork differs from its origin"
        for action in case.actions:
            _same(env.step(action), fork.step(action), f"{action} differs in a fork")
            assert env.restore(token) == fork.restore(token), "forks disturb each other"
        fork.close()


def counts(case: Case) -> None:
    """An unreadable action is data and costs a step; max_steps truncate the episode, without a reward."""
    with case.sessions.take(1) as (env,):
        env.reset(case.task)
        unreadable, used = env.step(None), 1
        assert unreadable.error_kind is not None and not unreadable.terminated, "an unreadable action must be data"
        while not unreadable.truncated:
            assert used < env.max_steps, "unreadable actions must cost steps"
            unreadable, used = env.step(None), used + 1
        assert used == env.max_steps and unreadable.reward == 0.0, "max_steps must truncate with reward 0"


def ends(case: Case) -> None:
    """STOP ends the episode; a step after the end raises EnvError."""
    with case.sessions.take(1) as (env,):
        env.reset(case.task)
        assert env.step(_STOP).terminated, "STOP must end the episode"
        _expect_env_error(env, "step after the end")


def refuses(case: Case) -> None:
    """An action on what does not exist, such as a missing element, returns an error_kind and is no success."""
    action = refused(case.task)
    if action is None:
        raise NotOffered(f"{OPTIONAL}a world of text may answer anything")
    with case.sessions.take(1) as (env,):
        env.reset(case.task)
        result = env.step(action)
        assert not result.success, f"{action} returned a success"
        if result.error_kind is None:
            kind = "no_such_element" if action.command is Command.CLICK else "action_failed"
            raise Advised(
                f"{action} returned none, so the agent is not told and reports do not count it: "
                f"return {{'text': page, 'error_kind': '{kind}'}}"
            )


def pays(case: Case) -> None:
    """An episode's return is in [0, 1]; success comes with its end."""
    with case.sessions.take(1) as (env,):
        env.reset(case.task)
        total = 0.0
        for action in (*case.walk, _STOP):
            result = env.step(action)
            total += result.reward
            over = result.terminated or result.truncated
            assert over or not result.success, f"{action} is a success, and the episode goes on"
            if over:
                break
        assert -ROUNDING <= total <= 1 + ROUNDING, f"a return must be in [0, 1]; got {total:g}"


def fits(case: Case) -> None:
    """Instruction and pages are not empty, and no page exceeds the token budget of an observation."""
    assert case.task.instruction, f"seed {case.task.seed} must have an instruction"
    with case.sessions.take(1) as (env,):
        pages = [env.reset(case.task)]
        _check_page(env, pages[0].text)
        for action in case.actions:
            _check_page(env, env.step(action).observation.text)


def answers_in_a_loop(case: Case) -> None:
    """Its calls work within an event loop, from which search makes them."""

    case.sessions.close()

    async def walk() -> None:
        async with session(case.sessions.make) as env:
            assert await call(env, env.reset, case.task), "reset must give a page"
            for action in case.walk:
                result = await call(env, env.step, action)
                assert result.error_kind not in WORLD_FAULTS, f"{action}: {result.error_kind}: {result.error_message}"

    asyncio.run(walk())


def _check_page(env: Env, text: str) -> None:
    assert text.strip(), "a page must not be empty"
    cut = getattr(env, "cut", 0) or fit(text.split("\n"), MAX_TOKENS)[1]
    assert not cut, f"a page must fit {MAX_TOKENS} tokens; {cut} lines were cut"


def _expect_env_error(env: Env, when: str) -> None:
    try:
        env.step(None)
    except EnvError:
        return
    raise AssertionError(f"{when} must raise EnvError")


CORE: tuple[Callable[[Case], None], ...] = (repeats, restores, forks, counts, ends)  # what search relies on
PROMISES = (*CORE, refuses, pays, fits, answers_in_a_loop)
NEEDS_MOVES = (repeats, restores, forks, pays)  # tell nothing of a world in which no action does anything


def check_env(make: Callable[[], Env], task: Task, actions: list[EnvAction]) -> None:
    """Raises AssertionError naming the broken promise. `actions` must not end the episode."""
    with closing(SessionPool(make)) as sessions:
        for promise in CORE:
            with suppress(NotOffered):
                promise(Case(sessions, task, actions))
