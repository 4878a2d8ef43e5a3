"""Keys and values of all rows in one tensor per layer, so that one attention serves them all. For accelerators.

    layers[i]:    keys, values | slots 0 .. S - 1, one per row | heads | tokens | size of a head

Rows with few new tokens are one batch: queries are padded to the longest row's, keys to the longest row, and a mask
says which keys each query sees. Nothing is copied but the new keys and values. The query heads of a key head are
further queries of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from agentq.policies.attention import Piece

LEAST, ROOM = 8, 256  # slots at first; tokens by which they grow


class Slots:
    """Slots of equal room. Without rows they hold no memory; they grow layer by layer, so little is there twice.

    If there is no memory for a layer, the layers before it have grown; the next call goes on with the others.
    """

    def __init__(self) -> None:
        self.layers, self._taken = list[Tensor](), list[bool]()

    def take(self, length: int, num_layers: int, like: Tensor) -> int:
        """The number of a free slot with room for `length` tokens. `like`: keys `[heads, T, d]`."""
        if not self.layers:
            shape = (2, LEAST, len(like), _rounded(length, ROOM), like.shape[2])
            self.layers, self._taken = [like.new_zeros(shape) for _ in range(num_layers)], [False] * LEAST
        slots, room = len(self._taken), self._room
        self._grow(2 * slots if all(self._taken) else slots, max(room, _rounded(length, ROOM)))
        slot = self._taken.index(False)
        self._taken[slot] = True
        return slot

    def reserve(self, length: int) -> None:
        """Make room for `length` tokens in each slot."""
        self._grow(len(self._taken), max(self._room, _rounded(length, ROOM)))

    def give_back(self, slot: int) -> None:
        """Free a slot."""
        self._taken[slot] = False
        if not any(self._taken):
            self.layers = []

    @property
    def _room(self) -> int:
        return self.layers[-1].shape[3]  # the last to grow

    def _grow(self, slots: int, room: int) -> None:
        for i, layer in enumerate(self.layers):
            two, before, heads, filled, size = layer.shape
            if before < slots or filled < room:
                grown = layer.new_zeros(two, max(before, slots), heads, max(filled, room), size)  # masked keys: finite
                grown[:, :before, :, :filled] = layer
                self.layers[i] = grown
        self._taken += [False] * (slots - len(self._taken))


class Batch:
    """The tokens of rows with few new tokens, as one attention over the slots."""

    def __init__(self, slots: Slots, pieces: Sequence[Piece], windowed: bool, query: Tensor, key: Tensor) -> None:
        """`query` and `key`: `[heads, T, d]` of any layer."""
        for p in pieces:
            p.row.states(0, key)  # takes the slot of a new row
        width, length = max(p.stop - p.start for p in pieces), _rounded(max(p.length for p in pieces), 8)
        count, groups = 1 + max(p.row.slot for p in pieces), query.shape[0] // key.shape[0]
        source = np.zeros((count, width), dtype=np.int64)  # the token of each query
        seen = np.zeros((count, width, length), dtype=bool)
        seen[:, :, 0] = True  # otherwise the unused results of padding would be NaN
        places = []  # of each new token: token, slot, position, query
        for p in pieces:
            n, slot, mask = p.stop - p.start, p.row.slot, p.mask(windowed)
            source[slot, :n] = range(p.start, p.stop)
            seen[slot, :n, : p.length] = np.tri(n, p.length, p.length - n, dtype=bool) if mask is None else mask
            places += [(p.start + i, slot, p.length - n + i, slot * width + i) for i in range(n)]
        numbers = np.concatenate([source.ravel(), np.array(places, dtype=np.int64).T.ravel()])
        moved = torch.from_numpy(numbers).to(query.device)
        self.source = moved[: source.size].view(count, width)
        self.tokens, self.slot_of, self.position_of, self.query_of = moved[source.size :].view(4, -1)
        self.all = len(places) == query.shape[1]
        hidden = torch.from_numpy(~seen).to(query.device)[:, None, None].expand(-1, 1, groups, -1, -1)
        bias = query.new_zeros(hidden.shape).masked_fill_(hidden, -torch.inf)
        self.bias = bias.view(count, 1, groups * width, length)  # 0 or -inf
        self._slots = slots

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """`[T, heads, d]`, filled only for the tokens of the pieces."""
        keys, values = self._slots.layers[layer]
        for kept, states in ((keys, key), (values, value)):
            kept[self.slot_of, :, self.position_of] = states.transpose(0, 1)[self.tokens]
        (count, width), heads, length = self.source.shape, len(key), self.bias.shape[-1]
        groups, size = len(query) // heads, query.shape[2]
        asked = query.transpose(0, 1)[self.source].view(count, width, heads, groups, size).permute(0, 2, 3, 1, 4)
        found = torch.nn.functional.scaled_dot_product_attention(
            asked.reshape(count, heads, groups * width, size),
            keys[:count, :, :length],
            values[:count, :, :length],
            attn_mask=self.bias,
            scale=scale,
        )
        found = found.view(count, heads, groups, width, size).permute(0, 3, 1, 2, 4).reshape(count * width, -1, size)
        found = found[self.query_of]
        if self.all:
            return found
        out = query.new_empty(query.shape[1], query.shape[0], size)
        out[self.tokens] = found
        return out


def _rounded(n: int, multiple: int) -> int:
    return n + -n % multiple
