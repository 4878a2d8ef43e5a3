"""Cache of keys and values for prompt prefixes, in blocks of tokens.

An agent's next prompt is its last one with an action inserted before the page, so most of it has been computed already.
The cache is a trie of blocks with a byte limit. The least recently used blocks are dropped first. It has room for the
prompts of some 32 trees in flight, whatever their length: conversations that take turns would else drop one another's.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from torch import Tensor

BLOCK = 16  # tokens; ours
LEAST_BLOCKS = 1024  # room in any case; all these figures are ours
PROMPTS = 48  # room for so many prompts of the mean length
_SHARE = 0.05  # of each prompt in the running mean of their lengths
_ROOTS = {True: 0, False: 1}  # of prompts with and without the adapter, whose keys and values differ


@dataclass(frozen=True, slots=True)
class _Block:
    number: int
    states: Tensor  # [layers, 2, heads, BLOCK, head size]: keys, values


class PrefixCache:
    """Blocks by (previous block, tokens). Exact: tokens are compared, not only hashes."""

    def __init__(self, max_bytes: int) -> None:
        """Keeps at most `max_bytes` of keys and values. 0 bytes disable the cache."""
        self.max_bytes, self.num_bytes = max_bytes, 0
        self._mean_blocks = 0.0  # of the prompts that were added
        self._blocks: OrderedDict[tuple[int, bytes], _Block] = OrderedDict()
        self._next = len(_ROOTS)

    def find(self, prompt: np.ndarray, *, adapted: bool = True) -> list[Tensor]:
        """Keys and values of the longest cached prefix of `prompt` `[P]` int32, in blocks.

        Each `[layers, 2, heads, BLOCK, head size]`. At least one token of the prompt is left to compute.
        """
        keys, states, before = [], [], _ROOTS[adapted]
        for tokens in _tokens(prompt[:-1]):
            block = self._blocks.get((before, tokens))
            if block is None:
                break
            keys.append((before, tokens))
            states.append(block.states)
            before = block.number
        for key in reversed(keys):  # a block must outlive its successors
            self._blocks.move_to_end(key)
        return states

    def add(self, prompt: np.ndarray, states: Tensor, *, adapted: bool = True) -> None:
        """Store the complete blocks of a computed prompt.

        Args:
            prompt: `[P]` int32 token ids.
            states: `[layers, 2, heads, P or more, head size]`; copied.
            adapted: whether they were computed with the model's adapter.
        """
        before, keys = _ROOTS[adapted], []
        for i, tokens in enumerate(_tokens(prompt)):
            key = (before, tokens)
            block = self._blocks.get(key)
            if block is None:
                kept = states[:, :, :, i * BLOCK : (i + 1) * BLOCK].clone()
                block = self._blocks[key] = _Block(self._next, kept)
                self._next += 1
                self.num_bytes += kept.nbytes
            keys.append(key)
            before = block.number
        for key in reversed(keys):
            self._blocks.move_to_end(key)
        self._mean_blocks += _SHARE * (len(keys) - self._mean_blocks)
        most = max(LEAST_BLOCKS, PROMPTS * self._mean_blocks)
        while self.num_bytes > self.max_bytes or len(self._blocks) > most:
            self.num_bytes -= self._blocks.popitem(last=False)[1].states.nbytes

    def clear(self) -> None:
        """Remove all blocks, for instance after the weights have changed."""
        self._blocks.clear()
        self.num_bytes = 0


def _tokens(prompt: np.ndarray) -> Iterator[bytes]:
    """The tokens of each complete block."""
    for start in range(0, len(prompt) - BLOCK + 1, BLOCK):
        yield prompt[start : start + BLOCK].tobytes()
