"""Repeats requests to a server that does not answer, or whose answers cannot be read."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from agentq.errors import ModelError
from agentq.policies.usage import Usage

Result = TypeVar("Result")

FIRST_WAIT_S, LONGEST_WAIT_S = 0.25, 8.0  # between two attempts, doubled each time; ours
ATTEMPTS = 4  # for answers that cannot be read: more would change nothing


class Fault(Exception):
    """A failed attempt. `kind`: the name under which it is counted, by default the message."""

    def __init__(self, why: str, *, kind: str = "") -> None:
        super().__init__(why)
        self.kind = kind or why


class Unavailable(Fault):
    """No answer now. `after_s`: seconds to wait, as requested by the server."""

    def __init__(self, why: str, after_s: float = 0.0, *, kind: str = "") -> None:
        super().__init__(why, kind=kind)
        self.after_s = after_s


class BadAnswer(Fault):
    """An answer that does not fit the request."""


class Failing(ModelError):
    """A server that does not answer, or not as it must."""


async def patiently(
    ask: Callable[[], Awaitable[Result]], *, who: str, patience_s: float, usage: Usage | None = None
) -> Result:
    """The result of `ask`, which is repeated after `Unavailable` and `BadAnswer`. `usage` counts the failures.

    Raises:
        Failing: if the server was unavailable for `patience_s` or gave `ATTEMPTS` bad answers to one request. The
            message names `who`.
    """
    usage = Usage() if usage is None else usage
    wait_s, bad_answers, since = FIRST_WAIT_S, 0, None
    while True:
        after_s = 0.0
        try:
            return await ask()
        except Unavailable as error:
            usage.faults[error.kind] += 1
            after_s, since = error.after_s, time.monotonic() if since is None else since
            if time.monotonic() + after_s - since > patience_s:
                raise Failing(f"{who} must answer within {patience_s:g} s; got {error}") from error
        except BadAnswer as error:
            usage.faults[error.kind] += 1
            bad_answers += 1
            if bad_answers == ATTEMPTS:
                raise Failing(f"{who} must give OpenAI's answers; got {error}, {ATTEMPTS} times") from error
        pause_s = max(after_s, wait_s * random.uniform(0.5, 1))  # spreads the attempts of many requests
        usage.pause_s += pause_s
        await asyncio.sleep(pause_s)
        wait_s = min(2 * wait_s, LONGEST_WAIT_S)
