"""Converts between messages and a checkpoint's tokens: prompts, answers, and what fits the context."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import date as Date
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from agentq.agent.prompts import Messages, plain_text, with_tools
from agentq.agent.thinking import begun, is_mark
from agentq.errors import ModelError, require
from agentq.policies.chat import chat_form
from agentq.policies.fence import Fence, controls_of
from agentq.policies.fitting import fitted
from agentq.policies.protocol import Prompt
from agentq.types import History, Sample

NO_LIMIT = 1 << 30  # tokens of a context
DATE = Date(2025, 1, 1)  # shown by templates that show the day, so that prompts are the same on every day


class Renderer:
    """`end_ids` are the tokens that end an answer; `context_tokens` the limit for prompt and answer together."""

    def __init__(
        self,
        tokenizer: Any,
        end_ids: Sequence[int],
        context_tokens: int,
        *,
        template: Mapping[str, Any] = MappingProxyType({}),
        date: Date = DATE,
        guesses_end: bool = False,
    ) -> None:
        """`template`: arguments of the chat template. `date`: the day that the template may show.

        `guesses_end`: whether an added token that the template writes after an answer ends it if no known end is there.

        Raises ModelError if the tokenizer's chat template accepts no form of a user message.
        """
        self.tokenizer, self.context_tokens = tokenizer, context_tokens
        own = tokenizer.chat_template
        dated = {"chat_template": on_day(own, date)} if isinstance(own, str) else {}
        self.template = {"date_string": date.strftime("%d %b %Y"), **dated, **template}
        self.fence = Fence.of(tokenizer)
        self._form = chat_form(tokenizer, self.template)
        self.end_ids = self._ends(end_ids, guesses_end)
        self._letter_ids: dict[str, int] = {}
        special = {id: token.content for id, token in tokenizer.added_tokens_decoder.items() if token.special}
        self._marks = {id for id, text in special.items() if is_mark(text)}
        self._unread = special.keys() - self._marks
        self.thinking = begun(tokenizer.decode(self.encode([{"role": "user", "content": "u"}])[-16:]))

    def _ends(self, end_ids: Sequence[int], guesses: bool) -> list[int]:
        """The end tokens, first the one that the template writes after an answer, or else the tokenizer's own.

        The tokenizer's own is among them if the template writes it there, also where a generation config forgets it.
        """
        own = first = self.tokenizer.eos_token_id
        if self.tokenizer.chat_template:
            said: Messages = [{"role": "user", "content": "u"}, {"role": "assistant", "content": "agentqanswer"}]
            with suppress(Exception):  # a template may raise anything
                text = self.tokenizer.apply_chat_template(self._form(said), tokenize=False, **self.template)
                after = self.tokenizer(text.rpartition("agentqanswer")[2], add_special_tokens=False)["input_ids"]
                controls = controls_of(self.tokenizer) if guesses else {}
                added = [token for token in after if token in controls]
                known = [token for token in after if token in (*end_ids, own)]
                first = next(iter([*known, *added]), own)
                end_ids = [*end_ids, own] if own in after else end_ids if known else [*end_ids, *added[:1]]
        return sorted(dict.fromkeys(end_ids), key=lambda token: token != first)

    def encode(self, messages: Messages, answer: str = "") -> np.ndarray:
        """`[P]` int32 prompt ids, by the chat template if the tokenizer has one, else as plain text.

        `answer`: what the answer begins with.
        """
        if self.tokenizer.chat_template:
            try:
                shown, tools = self._tools(messages)
                text = self.tokenizer.apply_chat_template(
                    self._form(shown), add_generation_prompt=True, tokenize=False, **tools, **self.template
                )
            except Exception as error:  # a template may raise anything
                roles, said = [message["role"] for message in messages], " ".join(str(error).split())[:200]
                raise ModelError(f"the chat template must accept the prompt's roles, {roles}; got {said}") from error
            ids = self.tokenizer(text + answer, add_special_tokens=False, verbose=False)["input_ids"]
        else:
            ids = self.tokenizer(plain_text(messages) + answer, verbose=False)["input_ids"]
        return np.asarray(ids, dtype=np.int32)

    def _tools(self, messages: Messages) -> tuple[Messages, dict[str, Any]]:
        """Messages, and their tools as an argument of the template if it has a form for tools."""
        if "tools" not in messages[0] or "tools" not in str(self.tokenizer.chat_template):
            return with_tools(messages), {}
        system, *others = messages
        return [{"role": system["role"], "content": system["content"]}, *others], {"tools": system["tools"]}

    def render(self, history: History, compose: Callable[[History], Messages], *, max_new_tokens: int) -> Prompt:
        """See `Engine.render` and `fitted`. Contents never become an added token or a mark of the template."""

        def write(history: History) -> tuple[Messages, np.ndarray, int]:
            messages = self.fence.messages(compose(history))
            ids = self.encode(messages)
            return messages, ids, len(ids)

        return fitted(history, self.context_tokens - max_new_tokens, write, self._tokens_in, thinking=self.thinking)

    def _tokens_in(self, text: str) -> int:
        return len(self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

    def letter_ids(self, letters: str) -> list[int]:
        """The token of each letter at the beginning of an answer. Raises ModelError if one is not a single token."""
        for letter in letters:
            if letter not in self._letter_ids:
                asked: Messages = [{"role": "user", "content": "u"}]
                before, ids = self.encode(asked), self.encode(asked, letter)
                if not np.array_equal(before, ids[:-1]):
                    raise ModelError(
                        f"a letter must be one token after the prompt; got {len(ids) - len(before)} for {letter}: "
                        "set critic.method to listwise"
                    )
                self._letter_ids[letter] = int(ids[-1])
        return [self._letter_ids[letter] for letter in letters]

    def check(self, ids: np.ndarray, max_new_tokens: int) -> None:
        """Raises ModelError if a prompt is empty or leaves no room for `max_new_tokens`."""
        room = self.context_tokens - max_new_tokens
        if not 1 <= len(ids) <= room:
            raise ModelError(f"a prompt must have 1 to {room} tokens (context {self.context_tokens}); got {len(ids)}")

    def encode_answer(self, text: str, *, own: bool = False) -> np.ndarray:
        """`[T]` int32 ids of a whole answer, the end token last, as the model would have sampled it.

        `own`: the answer is a model's, so its thinking and its calls of tools keep their tokens; else no text becomes
        an added token.
        """
        fenced = self.fence.answer(text) if own else self.fence.text(text)
        ids = self.tokenizer(fenced, add_special_tokens=False, verbose=False)["input_ids"]
        return np.asarray([*ids, self.end_ids[0]], dtype=np.int32)

    def decode(self, token_ids: np.ndarray) -> str:
        """The text of sampled tokens, without the end token and without special tokens that `spoken` does not read."""
        ids = token_ids.tolist()
        while ids and ids[-1] in self.end_ids:
            ids.pop()
        if self._marks.isdisjoint(ids):
            return str(self.tokenizer.decode(ids, skip_special_tokens=True))
        return str(self.tokenizer.decode([id for id in ids if id not in self._unread], skip_special_tokens=False))


def on_day(template: str, date: Date) -> str:
    """A chat template that shows a fixed day instead of the current one: calls of `strftime_now` are replaced."""
    return re.sub(r"strftime_now\(\s*(['\"])(.*?)\1\s*\)", lambda call: repr(date.strftime(call[2])), template)


@lru_cache(maxsize=4)
def renderer_of(tokenizer: Any) -> Renderer:
    """The renderer for a transformers tokenizer. Raises ModelError if it has no end token."""
    if getattr(tokenizer, "eos_token_id", None) is None:
        raise ModelError(f"the tokenizer must name an eos token; got none in {type(tokenizer).__name__}")
    name = getattr(tokenizer, "name_or_path", "")
    generation = _generation(name, local=True) if name else None  # "" would be the working directory
    return Renderer(tokenizer, end_ids_of(tokenizer, generation), NO_LIMIT, guesses_end=True)


def samples_of_texts(prompt: str | Messages, answers: Sequence[str], tokenizer: Any) -> list[Sample]:
    """A sample of each answer to `prompt`, messages or the text of a user message; log-probabilities are unknown (NaN).

    Raises:
        ModelError: as `renderer_of`.
    """
    renderer = renderer_of(tokenizer)
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    prompt_ids = renderer.encode(renderer.fence.messages(messages))
    answer_ids = [renderer.encode_answer(answer, own=True) for answer in answers]
    return [Sample(prompt_ids, ids, np.full(len(ids), np.nan, np.float32)) for ids in answer_ids]


def end_ids_of(tokenizer: Any, generation: Any) -> list[int]:
    """The end tokens that a checkpoint's generation config names, else the tokenizer's; empty if neither does."""
    named = getattr(generation, "eos_token_id", None)
    ends = tokenizer.eos_token_id if named is None else named
    return [] if ends is None else [ends] if isinstance(ends, int) else list(ends)


def load_tokenizer(path: str | Path) -> Any:
    """transformers' own tokenizer of a checkpoint, also where mistral-common is installed and has one with no template.

    Needs no torch. Raises MissingExtra without transformers.
    """
    transformers: Any = require("transformers", extra="train", for_="a tokenizer")
    return transformers.AutoTokenizer.from_pretrained(path, mistral_format=False)


def _generation(path: str | Path, *, local: bool = False) -> Any:
    """A checkpoint's generation config; None if it has none. `local`: by the files on this machine alone."""
    transformers: Any = require("transformers", extra="train", for_="a tokenizer")
    with suppress(OSError, ValueError):
        return transformers.GenerationConfig.from_pretrained(path, local_files_only=local)
    return None


def load_renderer(tokenizer: str | Path, context_tokens: int = NO_LIMIT, **settings: Any) -> Renderer:
    """The renderer for a tokenizer, by name or path; `settings` as in `Renderer`. Needs no torch.

    Raises:
        MissingExtra: without transformers.
        ModelError: if it cannot be loaded.
    """
    try:
        loaded = load_tokenizer(tokenizer)
    except (OSError, ValueError, KeyError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(f"the tokenizer must be one by name or path; got {tokenizer}: {first}") from error
    ends = end_ids_of(loaded, _generation(tokenizer))
    if not ends:
        raise ModelError(f"the tokenizer must name an eos token; got none in {tokenizer}")
    return Renderer(loaded, ends, context_tokens, **settings)
