"""The form of system and user message that a chat template accepts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agentq.agent.prompts import Messages
from agentq.errors import ModelError

_PROBE: Messages = [{"role": "system", "content": "agentqsystem"}, {"role": "user", "content": "agentquser"}]


def chat_form(tokenizer: Any, template: Mapping[str, Any]) -> Callable[[Messages], Messages]:
    """The first form of a chat that the tokenizer's template renders without losing the user's message, found by trial.

    The forms are: unchanged (a template may omit the system message, as the embedded base's does); the system message
    put before the user's (Gemma has no system role); contents in parts (templates of vision models).

    Args:
        template: further arguments of the template.

    Raises:
        ModelError: if no form does.
    """
    if not tokenizer.chat_template:
        return _as_it_is
    said = "one that leaves it out"
    for form in (_as_it_is, merged, _in_parts, _merged_in_parts):
        try:
            text = tokenizer.apply_chat_template(form(_PROBE), add_generation_prompt=True, tokenize=False, **template)
        except Exception as error:  # a template may raise anything
            said = " ".join(str(error).split())[:200] or type(error).__name__
            continue
        if _PROBE[1]["content"] in text:
            return lambda messages: form(joined(messages))
    raise ModelError(f"the chat template must show a user message; got {said}: give the tokenizer another template")


def joined(messages: Messages) -> Messages:
    """The messages, neighbours of the same role as one: many templates insist that roles alternate."""
    found: Messages = []
    for message in messages:
        before = found[-1] if found else {}
        texts: list[Any] = [each.get("content") for each in (before, message)]
        if before.get("role") == message["role"] and all(isinstance(text, str) for text in texts):
            found[-1] = before | {"content": "\n\n".join(texts)}
        else:
            found.append(message)
    return found


def _as_it_is(messages: Messages) -> Messages:
    return messages


def merged(messages: Messages) -> Messages:
    """The messages, the text of a system message before that of the user's message after it."""
    if [message["role"] for message in messages[:2]] != ["system", "user"]:
        return messages
    system, user, *others = messages
    content: Any = user["content"]
    if not isinstance(system["content"], str):
        return messages
    if isinstance(content, str):
        return [user | {"content": f"{system['content']}\n\n{content}"}, *others]
    return [user | {"content": [{"type": "text", "text": system["content"]}, *content]}, *others]


def _in_parts(messages: Messages) -> Messages:
    return [
        message | {"content": [{"type": "text", "text": message["content"]}]}
        if isinstance(message["content"], str)
        else message
        for message in messages
    ]


def _merged_in_parts(messages: Messages) -> Messages:
    return _in_parts(merged(messages))
