"""Between messages and the tokens of a checkpoint: prompts, answers, and what fits the context."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from agentq.agent.prompts import Messages, plain_text
from agentq.errors import ModelError, require
from agentq.policies.chat import chat_form
from agentq.policies.fence import Fence
from agentq.policies.protocol import Prompt
from agentq.types import History, Sample

NO_LIMIT = 1 << 30  # tokens of a context


class Renderer:
    """`end_ids` are the tokens that end an answer; `context_tokens` what prompt and answer may have together."""

    def __init__(self, tokenizer: Any, end_ids: list[int], context_tokens: int) -> None:
        """Raises ModelError if the tokenizer's chat template takes a user message in no form."""
        self.tokenizer, self.end_ids, self.context_tokens = tokenizer, end_ids, context_tokens
        self.fence = Fence.of(tokenizer)
        self._form = chat_form(tokenizer)

    def encode(self, messages: Messages) -> np.ndarray:
        """`[P]` int32 prompt ids: by the chat template when the tokenizer has one, else as plain text."""
        if self.tokenizer.chat_template:
            text = self.tokenizer.apply_chat_template(self._form(messages), add_generation_prompt=True, tokenize=False)
            ids = self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        else:
            ids = self.tokenizer(plain_text(messages), verbose=False)["input_ids"]
        return np.asarray(ids, dtype=np.int32)

    def render(self, history: History, compose: Callable[[History], Messages], *, max_new_tokens: int) -> Prompt:
        """See `Engine.render`. No content becomes an added token or a mark of the template, which are its alone.

        An agent that repeats itself must not end a run: it forgets how it began instead.
        """
        messages = self.fence.messages(compose(history))
        ids = self.encode(messages)
        while len(ids) + max_new_tokens > self.context_tokens and history.actions:
            history = replace(history, actions=history.actions[1:])
            messages = self.fence.messages(compose(history))
            ids = self.encode(messages)
        return Prompt(messages, ids)

    def check(self, ids: np.ndarray, max_new_tokens: int) -> None:
        """Raises ModelError if a prompt is empty or leaves no room for `max_new_tokens`."""
        room = self.context_tokens - max_new_tokens
        if not 1 <= len(ids) <= room:
            raise ModelError(f"a prompt must have 1 to {room} tokens (context {self.context_tokens}); got {len(ids)}")

    def encode_answer(self, text: str) -> np.ndarray:
        """`[T]` int32 ids of a whole answer, the end token last: what the model would have had to sample."""
        ids = self.tokenizer(self.fence.text(text), add_special_tokens=False, verbose=False)["input_ids"]
        return np.asarray([*ids, self.end_ids[0]], dtype=np.int32)

    def decode(self, token_ids: np.ndarray) -> str:
        """The text of sampled tokens, without special tokens."""
        return str(self.tokenizer.decode(token_ids.tolist(), skip_special_tokens=True))


@lru_cache(maxsize=4)
def renderer_of(tokenizer: Any) -> Renderer:
    """The renderer of a transformers tokenizer. Raises ModelError if it has no end token."""
    if getattr(tokenizer, "eos_token_id", None) is None:
        raise ModelError(f"the tokenizer must name an eos token; got none in {type(tokenizer).__name__}")
    return Renderer(tokenizer, [tokenizer.eos_token_id], NO_LIMIT)


def pair_of(tokenizer: Any, prompt: str | Messages, chosen: str, rejected: str) -> tuple[tuple[Sample], tuple[Sample]]:
    """The sides of a preference pair of texts, as `PreferencePair` has them. Log-probabilities are unknown (NaN).

    Args:
        tokenizer: the transformers tokenizer of the model, such as `learner.tokenizer`.
        prompt: chat messages, `{"role": .., "content": ..}`, or the text of a single user message.
        chosen: the better answer, without an end token.
        rejected: the other one.

    Raises:
        ValueError: if the answers are equal.
        ModelError: if there is no tokenizer, or it has no end token.
    """
    if chosen == rejected:
        raise ValueError(f"chosen and rejected must differ; got {chosen[:40]!r} twice")
    renderer = renderer_of(tokenizer)
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    prompt_ids = renderer.encode(renderer.fence.messages(messages))
    answers = renderer.encode_answer(chosen), renderer.encode_answer(rejected)
    first, second = (Sample(prompt_ids, ids, np.full(len(ids), np.nan, np.float32)) for ids in answers)
    return (first,), (second,)


def load_renderer(tokenizer: str | Path, context_tokens: int = NO_LIMIT) -> Renderer:
    """The renderer of a tokenizer, by name or path; needs no torch.

    Raises:
        MissingExtra: without transformers.
        ModelError: if there is none.
    """
    transformers: Any = require("transformers", extra="train", for_="a tokenizer")
    try:
        loaded = transformers.AutoTokenizer.from_pretrained(tokenizer)
    except (OSError, ValueError, KeyError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(f"the tokenizer must be one by name or path; got {tokenizer}: {first}") from error
    if loaded.eos_token_id is None:
        raise ModelError(f"the tokenizer must name an eos token; got none in {tokenizer}")
    return Renderer(loaded, [loaded.eos_token_id], context_tokens)
