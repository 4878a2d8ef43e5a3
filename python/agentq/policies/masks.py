"""Which tokens may come next in answers that must match a pattern. Owns the matchers, one per column of a batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from agentq.errors import ModelError, require


class Vocabulary:
    """A tokenizer's tokens as text; made once per checkpoint, which takes about a second."""

    def __init__(self, tokenizer: Any, end_ids: list[int], size: int) -> None:
        """`size` is that of the logits. Raises MissingExtra without llguidance, ModelError for a slow tokenizer."""
        self._library: Any = require("llguidance", extra="train", for_="an answer held to a pattern")
        hf: Any = require("llguidance.hf", extra="train", for_="an answer held to a pattern")
        try:
            self.tokens = hf.from_tokenizer(tokenizer, n_vocab=size, eos_token=end_ids)
        except ValueError as error:
            raise ModelError(f"a pattern needs a tokenizer that llguidance can read; got one with: {error}") from error
        self.size = size

    def matcher(self, pattern: str) -> Any:
        """A matcher at the beginning of an answer. Raises ModelError if `pattern` is no regular expression."""
        matcher = self._library.LLMatcher(self.tokens, self._library.LLMatcher.grammar_from_regex(pattern))
        if matcher.is_error():
            raise ModelError(f"a pattern must be a regular expression; got {pattern!r}: {matcher.get_error()}")
        return matcher


class Masks:
    """The matchers of a batch; None for a prompt without a pattern."""

    def __init__(self, vocabulary: Vocabulary, patterns: list[str], k: int) -> None:
        first = [vocabulary.matcher(pattern) if pattern else None for pattern in patterns]
        self.matchers = [[None if each is None else each.deep_copy() for _ in range(k)] for each in first]
        self.size = vocabulary.size

    def hold(self, logits: Tensor, rows: np.ndarray, ended: np.ndarray) -> Tensor:
        """`logits` `[b, K, V]` of `rows` `[b]`, minus infinity for tokens that may not come next.

        Columns that have `ended` `[b, K]` may have any token.
        """
        mask = np.ones((*ended.shape, self.size), dtype=bool)
        for i, row in enumerate(rows):
            for column, matcher in enumerate(self.matchers[row]):
                if matcher is not None and not ended[i, column]:
                    bits = np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8)
                    mask[i, column] = np.unpackbits(bits, count=self.size, bitorder="little")
        return logits.masked_fill(~torch.from_numpy(mask).to(logits.device), -torch.inf)

    def take(self, rows: np.ndarray, tokens: np.ndarray, ended: np.ndarray) -> None:
        """Advance by `tokens` `[b, K]` in the columns that had not `ended` `[b, K]`."""
        for i, row in enumerate(rows):
            for column, matcher in enumerate(self.matchers[row]):
                if matcher is not None and not ended[i, column] and not matcher.consume_token(int(tokens[i, column])):
                    raise ModelError(f"a pattern must lead on; got {matcher.get_error()}")
