"""Repeats requests to a server that does not answer, or whose answers cannot be read."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from agentq.errors import ModelError
from agentq.policies.usage import Usage

Result = TypeVar("Result")

FIRST_WAIT_S, LONGEST_WAIT_S = 0.25, 8.0  # between two attempts, doubled each time; ours
ATTEMPTS = 6  # for answers that can be read and do not fit: more would change nothing (ours)
ALONE = 12  # attempts that fail while the server answers others: then it is the prompt (ours)
ASKS_AFTER = 3  # failures of a request after which the server is asked something else (ours)
SAYS_EVERY_S = 30.0  # while no request is answered


class Fault(Exception):
    """A failed attempt. `kind`: the name under which it is counted, by default the message.

    Attributes:
        after_s: seconds to wait, as requested by the server.
        crowded: whether the server has too many requests.
        passing: whether the answer is none of the server's, such as a gateway's page.
    """

    after_s, crowded, passing = 0.0, False, False

    def __init__(self, why: str, *, kind: str = "") -> None:
        super().__init__(why)
        self.kind = kind or why


class Unavailable(Fault):
    """No answer now."""

    def __init__(self, why: str, after_s: float = 0.0, *, kind: str = "", crowded: bool = False) -> None:
        super().__init__(why, kind=kind)
        self.after_s, self.crowded = after_s, crowded


class BadAnswer(Fault):
    """An answer that does not fit the request."""

    def __init__(self, why: str, *, kind: str = "", passing: bool = False) -> None:
        super().__init__(why, kind=kind)
        self.passing = passing


class Failing(ModelError):
    """A server that does not answer, or not as it must."""


class PromptFailing(ModelError):
    """A prompt that a server does not answer, though it answers others."""


@dataclass(slots=True)
class Standing:
    """What the requests to one server know of it together.

    Attributes:
        check: a short request, which tells a server that is down from one that fails at a prompt.
        answered: when it has last answered any request, by `time.monotonic`.
        closed_until: when it wants to be asked again (Retry-After).
    """

    check: Callable[[], Awaitable[Any]] | None = None
    answered: float = float("-inf")
    closed_until: float = 0.0
    checked: float = 0.0
    told: float = 0.0

    async def ask_otherwise(self) -> None:
        """See whether the server answers `check`, at most every `LONGEST_WAIT_S`."""
        now = time.monotonic()
        if self.check is None or now - self.checked < LONGEST_WAIT_S:
            return
        self.checked = now
        try:
            await self.check()
        except (Fault, ModelError):
            return
        self.answered = time.monotonic()

    def tell(self, line: str) -> None:
        """Say on stderr what is waited for, at most every `SAYS_EVERY_S`."""
        if (now := time.monotonic()) - self.told >= SAYS_EVERY_S:
            self.told = now
            print(f"agentq: {line}", file=sys.stderr)


async def patiently(
    ask: Callable[[], Awaitable[Result]],
    *,
    who: str,
    patience_s: float,
    crowded_s: float = 0.0,
    usage: Usage | None = None,
    standing: Standing | None = None,
) -> Result:
    """The result of `ask`, which is repeated after `Unavailable` and `BadAnswer`. `usage` counts the failures.

    Raises:
        Failing: if the server answered no request for `patience_s` (`crowded_s`, if that is longer, while it says that
            it has too many), or gave one request `ATTEMPTS` answers that do not fit. The message names `who`.
        PromptFailing: if it answered others meanwhile, and failed at this request `ALONE` times.
    """
    usage, standing = usage or Usage(), standing or Standing()
    wait_s, bad_answers, alone, failed = FIRST_WAIT_S, 0, 0, 0
    since = before = float("inf")  # the first failure and the last one
    if (closed_s := standing.closed_until - time.monotonic()) > 0:
        await asyncio.sleep(closed_s + random.uniform(0, FIRST_WAIT_S))
    while True:
        try:
            found = await ask()
            standing.answered = time.monotonic()
            return found
        except (Unavailable, BadAnswer) as error:
            usage.faults[error.kind] += 1
            failed += 1
            bad = isinstance(error, BadAnswer)
            unfit = bad and not error.passing
            bad_answers += unfit
            if bad_answers == ATTEMPTS:
                raise Failing(f"{who} must give OpenAI's answers; got {error}, {ATTEMPTS} times") from error
            if failed > ASKS_AFTER and standing.answered < before and not unfit:
                await standing.ask_otherwise()
            now = time.monotonic()
            since = min(since, now)
            silent_s = now - max(since, standing.answered)
            limit_s = max(patience_s, crowded_s) if error.crowded else patience_s
            if silent_s + error.after_s >= limit_s:
                does = "give OpenAI's answers" if bad else "answer"
                asks = f", which asks for {error.after_s:.0f} s more" if error.after_s else ""
                raise Failing(f"{who} must {does} within {limit_s:g} s; got {error}{asks}") from error
            alone += standing.answered > before and not error.crowded
            if alone == ALONE:
                raise PromptFailing(
                    f"{who} must answer a prompt as it does others; got {error}, {failed} times"
                ) from error
            if silent_s > SAYS_EVERY_S:
                standing.tell(
                    f"{who} has answered nothing for {silent_s:.0f} s: {error}; agentq asks for {limit_s:g} s"
                )
            before, standing.closed_until = now, max(standing.closed_until, now + error.after_s)
        closed_s = max(0.0, standing.closed_until - time.monotonic())
        pause_s = closed_s + wait_s * random.uniform(0.5, 1)  # spreads the attempts of many requests
        usage.pause_s += pause_s
        await asyncio.sleep(pause_s)
        wait_s = min(2 * wait_s, LONGEST_WAIT_S)
