"""What of a history is left out when its prompt is too long for the context."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from agentq.agent.prompts import Messages
from agentq.policies.protocol import Prompt
from agentq.types import History

PAGE_END = "\n(the rest of the page does not fit)"
LEFT_OUT = 4  # actions at a time, where a history is too long; ours
CHARACTERS = 3  # per token where tokens cannot be counted: English has 4, numbers and other languages fewer (ours)


def fitted(
    history: History,
    room: int,
    write: Callable[[History], tuple[Messages, np.ndarray, int]],
    tokens_in: Callable[[str], int],
    *,
    thinking: str = "",
) -> Prompt:
    """The prompt of as much of a history as has `room` tokens.

    If it is too long, its oldest actions are left out, then the end of its page, so neither an agent that repeats
    itself nor a long page can end a run. Actions go four at a time: the prompts of the next steps then begin as this
    one does, and find it in a cache.

    Args:
        write: messages of a history, their ids if they are known, and their number of tokens.
        tokens_in: number of tokens of a text.
        thinking: see `Prompt`.
    """
    whole = history
    while True:
        messages, ids, length = write(history)
        if length <= room or (less := _less(history, length - room, tokens_in)) == history:
            cut = history.observation != whole.observation or history.pages[:1] != whole.pages[:1]
            return Prompt(messages, ids, len(whole.actions) - len(history.actions) + cut, thinking)
        history = less


def _less(history: History, over: int, tokens_in: Callable[[str], int]) -> History:
    """The history without its oldest actions; if it has none, with `over` tokens less in its longest page."""
    if history.actions:
        for _ in history.actions[:LEFT_OUT]:
            history = history.shortened()
        return history
    first, page = "".join(history.pages[:1]), history.observation.text
    text = max(first, page, key=len).removesuffix(PAGE_END)
    words = text[: int(len(text) * max(0.0, 1 - over / max(1, tokens_in(text))))].rsplit(None, 1)
    kept = "".join(words[:-1]) + PAGE_END  # without the last word: no half of an element's number
    if len(first) > len(page):
        return replace(history, pages=(kept, *history.pages[1:]))
    return replace(history, observation=replace(history.observation, text=kept))


def estimated(messages: Messages) -> int:
    """About how many tokens messages have, by the characters of their texts and tools; pictures count as nothing."""
    return sum(about(_text_of(message)) for message in messages)


def about(text: str) -> int:
    """About how many tokens a text has."""
    return -(-len(text) // CHARACTERS)


def _text_of(message: dict[str, object]) -> str:
    content, tools = message.get("content") or "", message.get("tools")
    parts = content if isinstance(content, list) else [{"text": content}]
    return "".join(str(part.get("text", "")) for part in parts) + (json.dumps(tools) if tools else "")
