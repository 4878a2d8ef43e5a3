"""Calls of environments from an event loop. Those that wait for another process are made in daemon threads, so that one
that hangs does not keep this process from ending."""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, ParamSpec, TypeVar

from agentq.envs.protocol import Env, is_blocking

E = TypeVar("E", bound=Env)
Result = TypeVar("Result")
Args = ParamSpec("Args")
_Call = tuple[Callable[[], Any], "Future[Any]"]


class CallThread:
    """One thread, which makes calls one after the other until `end`."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._last: Future[Any] | None = None
        self._thread = threading.Thread(target=_serve, args=(self._calls,), daemon=True)
        self._thread.start()

    def submit(self, method: Callable[[], Result]) -> Future[Result]:
        """Make the call after those before it."""
        self._last = done = Future[Result]()
        self._calls.put((method, done))
        return done

    def run(self, method: Callable[[], Result]) -> Result:
        """The result of the call, which is waited for. From within this thread it is made at once."""
        return method() if threading.current_thread() is self._thread else self.submit(method).result()

    @property
    def busy(self) -> bool:
        """Whether a call is under way. To other threads: one that is not waited for any more."""
        return threading.current_thread() is not self._thread and self._last is not None and not self._last.done()

    def end(self) -> None:
        """End the thread after the calls that it was given."""
        self._calls.put(None)


def _serve(calls: queue.SimpleQueue[_Call | None]) -> None:
    while (call := calls.get()) is not None:
        method, done = call
        if done.set_running_or_notify_cancel():
            try:
                done.set_result(method())
            except BaseException as error:  # for the caller, SystemExit too
                done.set_exception(error)
        del call, method, done  # nothing is kept while it waits


_idle: list[CallThread] = []
_left: dict[int, Future[Any]] = {}  # calls under way that were cancelled, by the id of their environment
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)  # a child has none of the threads


def _submit(method: Callable[[], Result]) -> Future[Result]:
    """Make the call in a thread that is idle, or in a new one."""
    try:
        thread = _idle.pop()
    except IndexError:
        thread = CallThread()
    done = thread.submit(method)
    done.add_done_callback(lambda _: _idle.append(thread))
    return done


async def call(env: Env, method: Callable[Args, Result], *args: Args.args, **kwargs: Args.kwargs) -> Result:
    """`method(*args)` of `env`, in a thread if it waits for another process, so other searches can continue.

    An environment with a `thread` of its own is called there. A call that is cancelled goes on without being waited
    for.
    """
    if not is_blocking(env):
        return method(*args, **kwargs)
    own: CallThread | None = getattr(env, "thread", None)
    done = (_submit if own is None else own.submit)(partial(method, *args, **kwargs))
    try:
        return await asyncio.wrap_future(done)
    except asyncio.CancelledError:
        if not done.done():
            _left[id(env)] = done
        raise


async def close(env: Env) -> None:
    """Close an environment; one that a cancelled call is still in, when that ends."""
    left = _left.pop(id(env), None)
    if left is None or left.done():
        await call(env, env.close)
    else:
        left.add_done_callback(lambda _: _let_go(env))


def _let_go(env: Env) -> None:
    with suppress(Exception):
        env.close()


@asynccontextmanager
async def session(make_env: Callable[[], E]) -> AsyncIterator[E]:
    """A session, closed at the end. An error of the work comes before one of `close`."""
    env = make_env()
    try:
        yield env
    except BaseException:
        with suppress(Exception):
            await close(env)
        raise
    await close(env)
