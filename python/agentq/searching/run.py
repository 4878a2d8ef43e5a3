"""Runs one coroutine per work item with bounded concurrency; waits for a coroutine."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def wait_for(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """`asyncio.run`. If a loop is already running, as in a notebook, it uses a thread with its own loop.

    An interrupt cancels the coroutine, waits for it to end, and is then raised.
    """
    results: list[Result] = []  # asyncio.run prints what its task returns into an error that signal drops
    begun: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = []

    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        begun.append((asyncio.get_running_loop(), task))
        results.append(await coroutine)

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(main())
        return results[0]
    with ThreadPoolExecutor(1) as thread:
        found = thread.submit(asyncio.run, main())
        try:
            found.result()
            return results[0]
        except BaseException:
            if begun and not found.done():
                loop, task = begun[0]
                loop.call_soon_threadsafe(task.cancel)
            raise


async def each(
    items: Iterable[Item],
    work: Callable[[Item], Awaitable[Result]],
    *,
    in_flight: int,
    on_done: Callable[[Result], None],
    settle: Callable[[], None] = lambda: None,
) -> None:
    """Run `work(item)` for every item, `in_flight` at a time, and call `on_done` in order of completion.

    `settle` is called soon after each `on_done`: once for all that end in one turn of the event loop after a wait.
    An exception in any item, or an interrupt, cancels the other items and is then raised. Cancelled items give their
    in-flight visits back. Results already passed to `on_done` remain valid.
    """
    if in_flight < 1:
        raise ValueError(f"in_flight must be at least 1; got {in_flight}")
    queue = iter(items)

    async def worker() -> None:
        for item in queue:
            await asyncio.sleep(0)  # lets others run and be cancelled, even if the policy never waits
            settle()
            on_done(await work(item))
        await asyncio.sleep(0)
        settle()

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(in_flight):
                group.create_task(worker())
    except BaseExceptionGroup as found:
        raise found.exceptions[0] from None


@contextmanager
def collected_rarely(in_flight: int) -> Iterator[None]:
    """Let at least ten times as many objects be made before the garbage collector visits all.

    Growing trees are all alive, so the number grows with the items in flight: at 1,024 trees, visits after ten times as
    many objects took a quarter of the driver's CPU time. Garbage in cycles waits in proportion to what is alive.
    """
    often = gc.get_threshold()
    gc.set_threshold(*often[:2], max(10, in_flight // 16) * often[2])
    try:
        yield
    finally:
        gc.set_threshold(*often)


def run_all(
    items: Iterable[Item],
    work: Callable[[Item], Awaitable[Result]],
    *,
    in_flight: int,
    on_done: Callable[[Result], None],
    settle: Callable[[], None] = lambda: None,
) -> None:
    """`each`, in a new event loop."""
    with collected_rarely(in_flight):
        wait_for(each(items, work, in_flight=in_flight, on_done=on_done, settle=settle))
