"""An event loop in a thread of its own. Runs end and begin their loops; connections and engines outlive them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class Background:
    """Runs coroutines of any other thread, from any event loop or none, until it is closed."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    async def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Wait for `work` in a coroutine; what cancels the caller cancels the work."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Wait for `work` in a thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        """Cancel what still runs and end the thread. Once is enough, twice does no harm."""
        if self._loop.is_closed():
            return
        self.wait(self._cancel())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _cancel(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._loop.shutdown_asyncgens()
        await asyncio.sleep(0)  # connections that were closed end in the next round
