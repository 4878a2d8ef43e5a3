"""Runs one coroutine a work item, a bounded number at once, and hands results over as they come; calls environments."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from agentq.envs.protocol import Env, is_blocking

Item = TypeVar("Item")
Result = TypeVar("Result")
Args = ParamSpec("Args")


async def call(env: Env, method: Callable[Args, Result], *args: Args.args, **kwargs: Args.kwargs) -> Result:
    """`method(*args)` of `env`; in a thread where it waits for another process, so that other searches go on."""
    if is_blocking(env):
        return await asyncio.to_thread(method, *args, **kwargs)
    return method(*args, **kwargs)


def run_all(
    items: Iterable[Item],
    work: Callable[[Item], Awaitable[Result]],
    *,
    in_flight: int,
    calls: int = 1,
    on_done: Callable[[Result], None],
) -> None:
    """Run `work(item)` for every item, `in_flight` at a time; `on_done` is called in order of completion.

    `calls`: environments that an item may call at once.

    An exception in any item, or an interrupt, cancels the others (each gives its in-flight visits back) and is raised
    after; what `on_done` got before is done.
    """
    if in_flight < 1:
        raise ValueError(f"in_flight must be at least 1; got {in_flight}")

    async def main() -> None:
        queue = iter(items)
        threads = ThreadPoolExecutor(in_flight * calls + 1)  # those of the environments, and the model's
        asyncio.get_running_loop().set_default_executor(threads)

        async def worker() -> None:
            for item in queue:
                await asyncio.sleep(0)  # a policy that never waits would let no other go on, nor be cancelled
                on_done(await work(item))

        async with asyncio.TaskGroup() as group:
            for _ in range(in_flight):
                group.create_task(worker())

    try:
        asyncio.run(main())
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
