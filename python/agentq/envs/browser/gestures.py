"""What takes more than one event of Playwright's mouse or keyboard. The events are the browser's own, as a person's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

_MOVES = 8  # on the way: pages look at how far the mouse went, and over what

Spot = dict[str, float]


async def drag(mouse: Any, start: Spot, end: Callable[[], Awaitable[Spot]]) -> None:
    """Press at `start`, move to `end()`, which may scroll it into view, and let go, whatever happens between."""
    await mouse.move(start["x"], start["y"])
    await mouse.down()
    try:
        there = await end()
        await mouse.move(there["x"], there["y"], steps=_MOVES)
    finally:
        await mouse.up()


async def press(keyboard: Any, key: str, times: int) -> None:
    """Press a key, or a chord such as Control+A, on what has the focus."""
    for _ in range(times):
        await keyboard.press(key)
