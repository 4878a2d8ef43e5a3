"""What many requests to one server know together: who waits, who gives up, and what the user is told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from functools import partial
from itertools import pairwise

import pytest

from agentq.policies import openai_client
from agentq.policies.patience import ALONE, BadAnswer, Failing, Fault, PromptFailing, Standing, Unavailable, patiently


class Clock:
    """Time that passes only in sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.slept = 1000.0, list[float]()
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(asyncio, "sleep", self.sleep)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def failing(error: Callable[[], Fault], standing: Standing, others: bool) -> Callable[[], Awaitable[str]]:
    """A request that always fails, while the server answers others or nobody."""

    async def ask() -> str:
        if others:
            standing.answered = time.monotonic()
        raise error()

    return ask


def told(standing: Standing, error: Callable[[], Fault], *, others: bool) -> str:
    return asyncio.run(patiently(failing(error, standing, others), who="it", patience_s=100, standing=standing))


@pytest.mark.parametrize("error", [lambda: Unavailable("HTTP 500"), lambda: BadAnswer("HTML", passing=True)])
def test_a_server_that_answers_nobody_is_waited_for_and_the_user_is_told(
    error: Callable[[], Fault], clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Failing, match=f"it must .* within 100 s; got {error()}"):
        told(Standing(), error, others=False)
    assert 100 <= clock.now - 1000 <= 110
    lines = capsys.readouterr().err.splitlines()
    assert (
        len(lines) in (2, 3)
        and lines[0].startswith("agentq: it has answered nothing for 3")
        and str(error()) in lines[0]
    )


def test_a_prompt_that_alone_fails_is_given_up_and_a_crowded_server_is_not(clock: Clock) -> None:
    with pytest.raises(PromptFailing, match=f"as it does others; got HTTP 500, {ALONE + 1} times"):
        told(Standing(), lambda: Unavailable("HTTP 500"), others=True)
    begun, standing, left = clock.now, Standing(), 200

    async def crowded() -> str:
        nonlocal left
        standing.answered, left = time.monotonic(), left - 1
        if left:
            raise Unavailable("HTTP 429", crowded=True)
        return "done"

    assert asyncio.run(patiently(crowded, who="it", patience_s=100, standing=standing)) == "done"
    assert clock.now - begun > 500  # far more than it may answer nobody


def test_a_server_with_too_many_requests_may_be_waited_for_longer(clock: Clock) -> None:
    for crowded, most_s in ((True, 100), (False, 10)):
        begun, ask = clock.now, failing(partial(Unavailable, "busy", crowded=crowded), Standing(), False)
        with pytest.raises(Failing, match=f"it must answer within {most_s} s; got busy"):
            asyncio.run(patiently(ask, who="it", patience_s=10, crowded_s=100))
        assert most_s <= clock.now - begun <= most_s + 10


def test_a_request_alone_in_flight_asks_whether_the_server_or_the_prompt_fails(clock: Clock) -> None:
    asked = []

    async def answers() -> None:
        asked.append(clock.now)

    async def fails() -> None:
        raise Unavailable("down")

    with pytest.raises(PromptFailing):
        told(Standing(answers), lambda: Unavailable("HTTP 500"), others=False)
    assert len(asked) >= ALONE - 1 and all(b - a >= 8 for a, b in pairwise(asked))
    with pytest.raises(Failing, match="within 100 s"):
        told(Standing(fails), lambda: Unavailable("HTTP 500"), others=False)


def test_all_requests_wait_as_long_as_one_was_told(clock: Clock) -> None:
    standing, found = Standing(), []

    async def closed() -> str:
        if not found:
            found.append("told")
            raise Unavailable("HTTP 429", after_s=20)
        return "done"

    async def ask() -> str:
        found.append(clock.now)
        return "done"

    asyncio.run(patiently(closed, who="it", patience_s=100, standing=standing))
    assert 20 < clock.slept[0] <= 20.25
    standing.closed_until = clock.now + 5
    asyncio.run(patiently(ask, who="it", patience_s=100, standing=standing))
    assert 5 <= clock.slept[-1] <= 5.25
    with pytest.raises(Failing, match="got HTTP 429, which asks for 3600 s more"):
        told(Standing(), lambda: Unavailable("HTTP 429", after_s=3600), others=False)


def test_retry_after_may_be_seconds_milliseconds_or_a_date() -> None:
    pause = openai_client._pause
    assert pause({"retry-after": "7.5"}) == 7.5 and pause({"retry-after-ms": "250", "retry-after": "1"}) == 0.25
    assert 55 < pause({"retry-after": formatdate(time.time() + 60)}) < 61
    assert pause({}) == pause({"retry-after": "soon"}) == pause({"retry-after": "-3"}) == 0.0
