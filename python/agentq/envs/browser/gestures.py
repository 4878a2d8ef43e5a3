"""What a call does to the elements of a page: events of the browser's own mouse and keyboard, or verbs of page.js."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from agentq.envs.browser.context import Refusal, WatchedContext
from agentq.envs.browser.frames import Frame
from agentq.envs.browser.origins import origin_of
from agentq.envs.browser.secret import names

_MOVES = 8  # steps of a drag: pages look at how far the mouse went, and over what
_REST_S = 0.1  # longer than a browser takes to tell what a drag is over

Spot = dict[str, float]
Fill = list[list[Any]]
"""[element id, verb of page.js, value] for each control."""


async def perform(context: WatchedContext, command: str, element: int, value: Any) -> None:
    """Use the mouse or the keyboard, or do the verb `command` of page.js. Raises Refusal."""
    tab = context.shown()
    match command:
        case "click":
            await tab.click(await spot_of(context, element))
        case "hover":
            spot = await spot_of(context, element)
            await tab.page.mouse.move(spot["x"], spot["y"])
        case "drag":
            spot = await spot_of(context, element)
            await _drag(tab.page.mouse, spot, partial(_drag_end, context, spot, value), context.settings.full)
        case "press":
            await press(context, *value)
        case _:
            await _do_verb(context, command, element, value)


async def press(context: WatchedContext, key: str, times: int) -> None:
    """Press a key on what has the focus; a letter with modifiers as without Shift."""
    *held, last = key.split("+") if len(key) > 1 else [key]
    if held and "Shift" not in held and len(last) == 1:
        last = last.lower()
    for _ in range(times):
        await context.shown().page.keyboard.press("+".join([*held, last]))


async def fill_in(context: WatchedContext, fill: Fill) -> None:
    """Put values into controls. Raises Refusal."""
    await asyncio.gather(*(_do_verb(context, verb, element, value) for element, verb, value in fill))


async def _do_verb(context: WatchedContext, verb: str, element: int, value: Any) -> None:
    frame, key = find_element(context, element)
    if isinstance(value, str):
        value = await revealed(context, value, frame, key)

    async def done(value: Any) -> Any:
        return await context.shown().evaluate(f"agentq.act({json.dumps(verb)}, {key}, {json.dumps(value)})", frame)

    said = await done(value)
    if isinstance(said, dict) and said["now"] is not None and context.secrets.mask(said["now"]) == value[1]:
        said = await done([value[0], said["now"]])  # the agent knows the label by the name of a secret in it
    match said:
        case True:
            return
        case dict():
            raise Refusal("no_such_option", f"the options of [{element}] have changed")
        case "option":
            raise Refusal("disabled", f"option {value[1][:60]} of [{element}] is disabled")
        case "disabled":
            raise Refusal("disabled", f"[{element}] is disabled")
    raise Refusal("no_such_element", f"no element [{element}]")


async def revealed(context: WatchedContext, text: str, frame: Frame, key: int) -> str:
    """`text` with secrets in place of their names, if the document of the element has their origin."""
    secrets = context.secrets
    if not secrets.origins or not names(text):
        return text
    origin = await context.shown().evaluate(f"agentq.origin({key})", frame)
    for name in names(text):
        if name not in secrets.origins:
            raise Refusal("no_such_secret", f"no secret {name}")
        if (bound := secrets.origins[name]) != origin_of(origin):
            raise Refusal("secret_origin", f"the secret {name} is for {bound} only , not for {origin}")
    return secrets.reveal(text)


def find_element(context: WatchedContext, element: int) -> tuple[Frame, int]:
    """The document of an element, and its key there."""
    if element not in context.reader.elements:
        raise Refusal("no_such_element", f"no element [{element}]")
    return context.reader.elements[element]


async def spot_of(context: WatchedContext, element: int, *, free: bool = True) -> Spot:
    """The middle of an element, which is scrolled into view; with `free` nothing may cover it or a frame around it."""
    frame, key = find_element(context, element)
    tab = context.shown()
    found: Any = await tab.evaluate(f"agentq.point({key}, {json.dumps(free)})", frame)
    while True:
        if found is None:
            raise Refusal("no_such_element", f"no element [{element}]")
        if "out" in found:
            raise Refusal("covered", f"[{element}] {found['out']}")
        if "over" in found:
            raise Refusal("covered", f"[{element}] is covered by {context.secrets.mask(found['over'])[:60].rstrip()}")
        spots = found["spots"]
        if frame.owner is None:
            return {"x": spots[0]["x"], "y": spots[0]["y"]}
        found = await tab.evaluate(f"agentq.reach({frame.key}, {json.dumps(spots)}, {json.dumps(free)})", frame.owner)
        frame = frame.owner


async def _drag_end(context: WatchedContext, spot: Spot, value: int | list[int]) -> Spot:
    """Where a drag from `spot` ends: on element `value`, even if covered, or `value` pixels right and down."""
    if isinstance(value, int):
        return await spot_of(context, value, free=False)
    return {"x": spot["x"] + value[0], "y": spot["y"] + value[1]}


async def _drag(mouse: Any, start: Spot, end: Callable[[], Awaitable[Spot]], rests: bool) -> None:
    """Press at `start`, move to `end()`, which may scroll its element into view, and always let go.

    `rests`: as a person's hand does at the end, while the page hears where it is.
    """
    await mouse.move(start["x"], start["y"])
    await mouse.down()
    try:
        there = await end()
        await mouse.move(there["x"], there["y"], steps=_MOVES)
        if rests:
            await asyncio.sleep(_REST_S)
            await mouse.move(there["x"], there["y"])
    finally:
        await mouse.up()
