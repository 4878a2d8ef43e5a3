"""Types a text into what has the focus. Line breaks never press Enter alone, which sends a message in many pages."""

from __future__ import annotations

import asyncio
from typing import Any

from agentq.envs.browser.tab import Tab

_KEYED = 400  # characters that are typed one by one; of a longer text, or one of several lines, the last one


async def insert(tab: Tab, text: str, *, by_keys: bool) -> None:
    """Replace the selection as an input method does: an editor adds nothing of its own.

    `by_keys`: line breaks are keys, Shift and Enter.
    """
    if not text:
        await tab.page.keyboard.press("Delete")
        return
    for i, line in enumerate(text.split("\n") if by_keys else [text]):
        if i:
            await tab.page.keyboard.press("Shift+Enter")
        if line:
            await tab.cdp.send("Input.insertText", {"text": line})


async def keys(tab: Tab, text: str) -> None:
    """Replace the selection by typing."""
    if not text:
        await tab.page.keyboard.press("Delete")
    last = 0 if text.endswith("\n") else 1
    at = len(text) - last if "\n" in text or len(text) > _KEYED else 0
    ahead, typed = text[:at], text[at:]
    if ahead:
        await tab.cdp.send("Input.insertText", {"text": ahead})
    events = [event for character in typed for event in _events(character)]
    await asyncio.gather(*(tab.cdp.send("Input.dispatchKeyEvent", event) for event in events))


def _events(character: str) -> list[dict[str, Any]]:
    """The key events of one character."""
    known = character.isascii() and character.isalnum()
    code = f"Digit{character}" if character.isdigit() else f"Key{character.upper()}"
    key: dict[str, Any] = {"key": character}
    if known:
        key |= {"code": code, "windowsVirtualKeyCode": ord(character.upper())}
    elif character == " ":
        key |= {"code": "Space", "windowsVirtualKeyCode": 32}
    return [{"type": "keyDown", "text": character, **key}, {"type": "keyUp", **key}]
