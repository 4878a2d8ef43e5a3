"""The form of system and user message that a chat template accepts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agentq.agent.prompts import Messages
from agentq.errors import ModelError

_PROBE: Messages = [{"role": "system", "content": "agentqsystem"}, {"role": "user", "content": "agentquser"}]


def chat_form(tokenizer: Any) -> Callable[[Messages], Messages]:
    """The first form of a chat that the tokenizer's template renders without losing the user's message, found by trial.

    The forms are: unchanged (a template may omit the system message); the system message put before the user's (Gemma
    has no system role); contents in parts (templates of vision models).

    Raises:
        ModelError: if no form does.
    """
    if not tokenizer.chat_template:
        return _as_it_is
    said = "one that leaves it out"
    for form in (_as_it_is, _merged, _in_parts):
        try:
            text = tokenizer.apply_chat_template(form(_PROBE), add_generation_prompt=True, tokenize=False)
        except Exception as error:  # a template may raise anything
            said = " ".join(str(error).split())[:200] or type(error).__name__
            continue
        if _PROBE[1]["content"] in text:
            return form
    raise ModelError(f"the chat template must show a user message; got {said}: give the tokenizer another template")


def _as_it_is(messages: Messages) -> Messages:
    return messages


def _merged(messages: Messages) -> Messages:
    if messages[0]["role"] != "system" or not all(isinstance(message["content"], str) for message in messages[:2]):
        return messages
    system, user, *others = messages
    return [user | {"content": f"{system['content']}\n\n{user['content']}"}, *others]


def _in_parts(messages: Messages) -> Messages:
    return [
        message | {"content": [{"type": "text", "text": message["content"]}]}
        if isinstance(message["content"], str)
        else message
        for message in messages
    ]
