"""What a person does on a page read in full (see Host): type by keys, choose files, find, scroll, switch tabs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
from collections.abc import Awaitable, Callable
from typing import Any

from agentq.envs.browser.breaks import has_breaks, with_breaks, without_breaks, written
from agentq.envs.browser.context import Refusal, WatchedContext
from agentq.envs.browser.frames import Frame
from agentq.envs.browser.gestures import Spot, find_element, press, revealed, spot_of
from agentq.envs.browser.keyboard import insert, keys

_STILL_MS = 1000
_COVERED_S = 0.4  # until a click on what is covered is tried again
_CHOOSER_S = 2.0
_GESTURES: dict[str, tuple[str, int]] = {"double click": ("left", 2), "right click": ("right", 1)}
_FORMATS = {
    "date": "YYYY-MM-DD",
    "time": "HH:MM",
    "month": "YYYY-MM",
    "week": "YYYY-Www",
    "datetime-local": "YYYY-MM-DDTHH:MM",
    "color": "#rrggbb",
}


async def click(context: WatchedContext, element: int, _: Any = None) -> None:
    """Click once the element is at rest, and at rest again under the mouse, which may change it.

    What hears only double clicks or the right button is clicked so. What the mouse opens stays where it is.
    """
    frame, key = find_element(context, element)
    spot = await rested(context, element)
    how = await context.shown().evaluate(f"agentq.gesture({key})", frame)
    await context.shown().page.mouse.move(spot["x"], spot["y"])
    if how != "hover":
        with contextlib.suppress(Refusal):  # what the mouse has opened covers it: that is clicked, as a person does
            spot = await rested(context, element)
    await context.shown().click(spot, *_GESTURES.get(how, ()))


async def rested(context: WatchedContext, element: int) -> Spot:
    """Where to press an element once its animations have ended; if it is covered, a moment later."""
    frame, key = find_element(context, element)
    await context.shown().evaluate(f"agentq.still({key}, {_STILL_MS})", frame)
    try:
        return await spot_of(context, element)
    except Refusal as error:
        if error.kind != "covered":
            raise
    await asyncio.sleep(_COVERED_S)
    await context.shown().evaluate(f"agentq.still({key}, {_STILL_MS})", frame)
    return await spot_of(context, element)


async def write(context: WatchedContext, element: int, text: str) -> None:
    """Replace what a field holds, as keys do it, and tell if it then holds something else. Raises Refusal."""
    frame, key = find_element(context, element)
    tab = context.shown()
    several = ""
    if has_breaks(text):
        several = await tab.evaluate(f"agentq.several({key})", frame)
        text = with_breaks(text) if several else without_breaks(text)
    text = await revealed(context, text, frame, key)
    match await tab.evaluate(f"agentq.focus({key})", frame):
        case "":
            raise Refusal("no_such_element", f"no element [{element}]")
        case "disabled":
            raise Refusal("disabled", f"[{element}] is disabled")
        case "value" | "color" as how:
            text = text.lower() if how == "color" else text
            await _set_value(context, element, text)
        case "range":
            number = json.dumps(str(_number(context, text)))
            if arrow := await tab.evaluate(f"agentq.beside({key}, {number})", frame):
                await tab.page.keyboard.press(arrow)
        case "cell":
            await _fill_cell(context, element, text)
        case "slider":
            now = await _slide(context, frame, key, text)
            if now != float(text):
                context.said.append(f"[{element}] now holds: {now:g}")
            return
        case how:
            await tab.page.keyboard.press("Control+a")
            await (keys(tab, text) if how == "keys" else insert(tab, text, by_keys=several == "keys"))
    with contextlib.suppress(context.Error):  # what was typed may have left the page
        held = await tab.evaluate(f"agentq.holding({key}, {json.dumps(text)})", frame)
        if held is not None:
            context.said.append(f"[{element}] now holds: {written(context.secrets.mask(held))[:200]}")


async def _set_value(context: WatchedContext, element: int, text: str) -> None:
    """Give a value to a field that keys cannot fill. Raises Refusal."""
    frame, key = find_element(context, element)
    tab = context.shown()
    match await tab.evaluate(f"agentq.act('value', {key}, {json.dumps(text)})", frame):
        case False:
            raise Refusal("no_such_element", f"no element [{element}]")
        case "form":
            kind = await tab.evaluate(f"agentq.kind({key})", frame)
            raise Refusal("bad_argument", f"[{element}] must be given as {_FORMATS.get(kind, kind)}")
        case "disabled":
            raise Refusal("disabled", f"[{element}] is disabled")
        case "readonly":
            raise Refusal("not_taken", f"[{element}] can only be read")


async def _fill_cell(context: WatchedContext, element: int, text: str) -> None:
    """Choose a cell, open it with Enter unless the click has, replace what it holds, and close it with Enter."""
    frame, key = find_element(context, element)
    tab = context.shown()
    await click(context, element)
    if not await tab.evaluate(f"agentq.opened({key})", frame):
        await tab.page.keyboard.press("Enter")
        if not await tab.evaluate(f"agentq.opened({key})", frame):
            raise Refusal("wrong_role", f"[{element}] does not open for typing")
    await tab.page.keyboard.press("Control+a")
    await keys(tab, text)
    await tab.page.keyboard.press("Enter")


def _number(context: WatchedContext, text: str) -> float:
    """The number that a slider is given. Raises Refusal."""
    with contextlib.suppress(ValueError):
        if math.isfinite(number := float(text)):
            return number
    raise Refusal("bad_argument", f"a slider must be given a number; got {context.secrets.mask(text)[:40]}")


async def _slide(context: WatchedContext, frame: Frame, key: int, text: str) -> float:
    """Bring a slider without a field to a number, by arrow keys; the number that it reaches."""
    tab, wanted = context.shown(), _number(context, text)
    now, least, most = await tab.evaluate(f"agentq.slid({key})", frame)
    if now is None:
        raise Refusal("wrong_role", "the slider does not tell its number ; use PRESS")
    if (least is not None and wanted < least) or (most is not None and wanted > most):
        raise Refusal("bad_argument", f"the slider must be from {least} to {most}; got {wanted:g}")
    for _ in range(200):
        if now == wanted:
            break
        await tab.page.keyboard.press("ArrowRight" if now < wanted else "ArrowLeft")
        after = (await tab.evaluate(f"agentq.slid({key})", frame))[0]
        if after is None or after == now:
            break
        crossed = (after - wanted) * (now - wanted) < 0  # no step leads there
        now = after
        if crossed:
            break
    return float(now)


async def submit(context: WatchedContext, element: int, _: Any = None) -> None:
    """Submit the form of an element; without a form, press Enter in it."""
    frame, key = find_element(context, element)
    tab = context.shown()
    if await tab.evaluate(f"agentq.formOf({key})", frame):
        await tab.evaluate(f"agentq.act('leave', {key})", frame)  # what was typed counts as changed
        await tab.evaluate(f"agentq.act('submit', {key})", frame)
    else:
        await tab.evaluate(f"agentq.focus({key})", frame)
        await tab.page.keyboard.press("Enter")


async def upload(context: WatchedContext, element: int, path: str) -> None:
    """Give a file to a file field, or to the chooser that a click opens. Raises Refusal."""
    frame, key = find_element(context, element)
    tab = context.shown()
    if field := await tab.handle(f"agentq.fileOf({key})", frame):
        await frame.cdp.send("DOM.setFileInputFiles", {"files": [path], "objectId": field})
        return
    spot = await rested(context, element)
    chosen: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def opens(event: dict[str, Any]) -> None:
        if not chosen.done():
            chosen.set_result(event["backendNodeId"])

    tab.cdp.once("Page.fileChooserOpened", opens)
    await tab.cdp.send("Page.setInterceptFileChooserDialog", {"enabled": True})
    try:
        await tab.click(spot)
        async with asyncio.timeout(_CHOOSER_S):
            await tab.cdp.send("DOM.setFileInputFiles", {"files": [path], "backendNodeId": await chosen})
    except TimeoutError:
        raise Refusal("wrong_role", f"[{element}] does not open a choice of files") from None
    finally:
        await tab.cdp.send("Page.setInterceptFileChooserDialog", {"enabled": False})


async def click_at(context: WatchedContext, x: int, y: int) -> None:
    """Click a place of the window. Raises Refusal."""
    width, height = (await context.shown().evaluate("agentq.boxes({})"))["size"]
    if x >= width or y >= height:
        raise Refusal("bad_argument", f"the picture has {width} by {height} pixels; got {x} {y}")
    await context.shown().click({"x": x, "y": y})


async def seek(context: WatchedContext, text: str) -> None:
    """Bring the next place with a text into view. Raises Refusal."""
    number, count = await context.shown().evaluate(f"agentq.seek({json.dumps(text)})")
    if not count:
        raise Refusal("not_found", f"the page has no text {text[:60]}")
    context.said.append(f"found {number} of {count}: {text[:60]}")


async def scroll(context: WatchedContext, way: str) -> None:
    """Scroll the window UP or DOWN."""
    if not await context.shown().evaluate(f"agentq.scroll({json.dumps(way)})"):
        context.said.append(f"nothing more {'above' if way == 'UP' else 'below'}")


async def back(context: WatchedContext) -> None:
    """Go to the page before, if there is one that may be shown. Raises Refusal."""
    tab = context.shown()
    history = await tab.cdp.send("Page.getNavigationHistory")
    before = history["entries"][: history["currentIndex"]]
    if not before or before[-1]["url"] == "about:blank" or not context.may_load(before[-1]["url"]):
        raise Refusal("not_found", "there is no page before this one")
    await tab.cdp.send("Page.navigateToHistoryEntry", {"entryId": before[-1]["id"]})


async def switch(context: WatchedContext, number: int, closes: bool) -> None:
    """Show a tab, or close it. Raises Refusal."""
    if not 1 <= number <= len(context.tabs):
        raise Refusal("not_found", f"there is no tab {number}; there are {len(context.tabs)}")
    tab = context.tabs[number - 1]
    if not closes:
        context.front = tab
        await tab.page.bring_to_front()
    elif number == 1:
        raise Refusal("not_taken", "the first tab stays open")
    else:
        await tab.page.close()
        context.closed(tab)


async def reply(context: WatchedContext, accepts: bool, text: str) -> None:
    """Answer the dialog that the page has opened. Raises Refusal."""
    if context.dialog is None:
        raise Refusal("not_found", "no dialog is open")
    await context.answer_dialog(accepts, text)


async def pause(context: WatchedContext, seconds: int) -> None:
    """Wait."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await context.opened.wait()


HANDS: dict[str, Callable[..., Awaitable[None]]] = {
    "click": click,
    "type": write,
    "enter": submit,
    "upload": upload,
    "click_at": lambda context, _, value: click_at(context, *value),
    "find": lambda context, _, text: seek(context, text),
    "scroll": lambda context, _, way: scroll(context, way),
    "press": lambda context, _, value: press(context, *value),
    "back": lambda context, _, value: back(context),
    "wait": lambda context, _, seconds: pause(context, seconds),
    "tab": lambda context, _, value: switch(context, *value),
    "dialog": lambda context, _, value: reply(context, *value),
}
"""By command of a call; each is given the context, the element and the value."""
