"""Masks of the tokens that may come next in answers constrained to a pattern."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from agentq.errors import ModelError, require


class Vocabulary:
    """A tokenizer's tokens as text. Built once per checkpoint, in about a second."""

    def __init__(self, tokenizer: Any, end_ids: list[int], size: int) -> None:
        """`size`: number of logits; special tokens may lie beyond them.

        Raises MissingExtra without llguidance, ModelError for a slow tokenizer.
        """
        self._library: Any = require("llguidance", extra="train", for_="an answer held to a pattern")
        hf: Any = require("llguidance.hf", extra="train", for_="an answer held to a pattern")
        try:
            self.tokens = hf.from_tokenizer(tokenizer, n_vocab=max(size, len(tokenizer)), eos_token=end_ids)
        except ValueError as error:
            raise ModelError(f"a pattern needs a tokenizer that llguidance can read; got one with: {error}") from error
        self.size = size

    def matcher(self, pattern: str) -> Any:
        """A matcher at the start of an answer. Raises ModelError if `pattern` is not a regular expression."""
        matcher = self._library.LLMatcher(self.tokens, self._library.LLMatcher.grammar_from_regex(pattern))
        if matcher.is_error():
            raise ModelError(f"a pattern must be a regular expression; got {pattern!r}: {matcher.get_error()}")
        return matcher


def hold(logits: Tensor, matchers: Sequence[Any]) -> Tensor:
    """`logits` `[N, V]`, with minus infinity for tokens that the branch's matcher rejects. None allows all tokens."""
    if not any(matchers):
        return logits
    allowed = np.ones(logits.shape, dtype=bool)
    for row, matcher in zip(allowed, matchers, strict=True):
        if matcher is not None:
            bits = np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8)
            row[:] = np.unpackbits(bits, count=len(row), bitorder="little")
    return logits.masked_fill(~torch.from_numpy(allowed).to(logits.device), -torch.inf)


def parted(matcher: Any, tokens: Sequence[int]) -> list[Any]:
    """One matcher per token of `tokens`: the branch's matcher after that token. None stays None."""
    if matcher is None:
        return [None] * len(tokens)
    found = [matcher, *(matcher.deep_copy() for _ in tokens[1:])]
    for each, token in zip(found, tokens, strict=False):
        if not each.consume_token(token):
            raise ModelError(f"a pattern must lead on; got {each.get_error()}")
    return found[: len(tokens)]
