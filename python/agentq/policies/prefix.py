"""Keys and values of earlier prompts' prefixes, in blocks of tokens.

An agent's prompt is its last one with an action inserted before the page, so most of it has been computed already. Owns
a trie of blocks with a byte limit; the least recently used blocks are dropped first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from torch import Tensor

BLOCK = 16  # tokens; ours
_ROOT = 0


@dataclass(frozen=True, slots=True)
class _Block:
    number: int
    states: Tensor  # [layers, 2, heads, BLOCK, head size]: keys, values


class PrefixCache:
    """Blocks by (block before, its tokens). Exact: tokens are compared, not their hashes."""

    def __init__(self, max_bytes: int) -> None:
        """At most `max_bytes` of keys and values are kept; 0 keeps none."""
        self.max_bytes, self.num_bytes = max_bytes, 0
        self._blocks: OrderedDict[tuple[int, bytes], _Block] = OrderedDict()
        self._next = _ROOT + 1

    def find(self, prompt: np.ndarray) -> list[Tensor]:
        """The blocks of the longest known prefix that leaves at least one token of `prompt` `[P]` int32 to compute."""
        keys, states, before = [], [], _ROOT
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

    def add(self, prompt: np.ndarray, start: int, states: Tensor) -> None:
        """Keep the whole blocks of a computed prompt.

        Args:
            prompt: `[P]` int32 token ids.
            start: index at which `states` begin, the end of the prefix that `find` returned; a multiple of BLOCK.
            states: `[layers, 2, heads, P - start, head size]`; copied.
        """
        before, keys = _ROOT, []
        for i, tokens in enumerate(_tokens(prompt)):
            key, offset = (before, tokens), i * BLOCK - start
            block = self._blocks.get(key)
            if block is None:
                if offset < 0:  # a block was dropped after it was found
                    return
                kept = states[..., offset : offset + BLOCK, :].clone()
                block = self._blocks[key] = _Block(self._next, kept)
                self._next += 1
                self.num_bytes += kept.nbytes
            keys.append(key)
            before = block.number
        for key in reversed(keys):
            self._blocks.move_to_end(key)
        while self.num_bytes > self.max_bytes:
            self.num_bytes -= self._blocks.popitem(last=False)[1].states.nbytes

    def clear(self) -> None:
        """Forget everything: the weights have changed."""
        self._blocks.clear()
        self.num_bytes = 0


def _tokens(prompt: np.ndarray) -> Iterator[bytes]:
    """The tokens of each whole block."""
    for start in range(0, len(prompt) - BLOCK + 1, BLOCK):
        yield prompt[start : start + BLOCK].tobytes()
