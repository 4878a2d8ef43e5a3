"""Attention during decoding: the tokens of a row attend to the keys and values that the row stores.

Rows with few new tokens are computed in one call: on a CPU in float32 by the core, without copying keys or a dense
mask, and on accelerators over slots (`slots.py`). Torch computes the rest row by row: prompts; other types on a CPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from transformers import AttentionInterface

from agentq import _core
from agentq.errors import ModelError
from agentq.policies.slots import Batch, Slots

NAME = "agentq_pieces"
FEW = 16  # new tokens per row up to which one call for all rows is faster


class Keeper(Protocol):
    """Storage for the keys and values of one row."""

    slot: int  # in `Slots`

    def states(self, layer: int, like: Tensor) -> Tensor:
        """`[2, heads, room, d]` keys and values of a layer, with room for new tokens. `like`: `[heads, T, d]`."""
        ...

    def array(self, like: Tensor) -> np.ndarray:
        """The memory of a row without a slot as a NumPy array `[layers, 2, heads, room, d]`."""
        ...


@dataclass(frozen=True, slots=True)
class Piece:
    """The tokens `start` to `stop` of a batch, which belong to one row. `length` is the row's number of keys with them.

    `own` `[T, length - open]` says which keys after the first `open` each token sees. It sees all of the first. None:
    a token sees itself and all earlier keys. `windowed` `[T, length]` is the mask of layers with a window; None: the
    window hides nothing.
    """

    row: Keeper
    start: int
    stop: int
    length: int
    open: int
    own: np.ndarray | None
    windowed: np.ndarray | None

    def mask(self, windowed: bool) -> np.ndarray | None:
        """`[T, length]`, True where a token sees a key; None: itself and all earlier keys."""
        if windowed and self.windowed is not None:
            return self.windowed
        if self.own is None:
            return None
        return np.concatenate([np.ones((len(self.own), self.open), dtype=bool), self.own], axis=1)


@dataclass(frozen=True)
class Pieces:
    """A batch of rows. `last` are the tokens whose last hidden states are needed.

    Layers whose attention mask is `marker` use the window; if `marker` is None, all layers do. `slots`: what stores the
    rows' keys and values, if they have slots.
    """

    pieces: Sequence[Piece]
    last: Sequence[int]
    marker: Tensor | None
    slots: Slots | None = None
    _batches: dict[bool, Batch] = field(default_factory=dict)
    _masks: dict[tuple[int, bool], Tensor | None] = field(default_factory=dict)

    def batch(self, windowed: bool, query: Tensor, key: Tensor) -> Batch:
        """The pieces in `few` as a batch over the slots; the same for all layers."""
        if windowed not in self._batches:
            assert self.slots is not None
            self._batches[windowed] = Batch(self.slots, self.few, windowed, query, key)
        return self._batches[windowed]

    def mask(self, p: Piece, windowed: bool, device: torch.device) -> Tensor | None:
        """`Piece.mask` on a device, the same for all layers."""
        if (p.start, windowed) not in self._masks:
            mask, count = p.mask(windowed), p.stop - p.start
            if mask is None and 1 < count < p.length:
                mask = np.tri(count, p.length, p.length - count, dtype=bool)
            self._masks[p.start, windowed] = None if mask is None else torch.from_numpy(mask).to(device)
        return self._masks[p.start, windowed]

    @cached_property
    def few(self) -> list[Piece]:
        """Pieces that are computed in one call."""
        return [p for p in self.pieces if p.stop - p.start <= FEW]

    @cached_property
    def many(self) -> list[Piece]:
        """The other pieces."""
        return [p for p in self.pieces if p.stop - p.start > FEW]


def attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    pieces: Pieces,
    scaling: float | None = None,
    **other: Any,
) -> tuple[Tensor, None]:
    """`[1, T, heads, d]` from `[1, heads, T, d]`: an attention function for transformers.

    Raises ModelError if the model needs more than a softmax over scores: a cap, sinks or a position bias.
    """
    if asked := [name for name in ("softcap", "s_aux", "position_bias") if other.get(name) is not None]:
        raise ModelError(f"attention by pieces must be plain; got {', '.join(asked)}")
    scale, windowed = query.shape[-1] ** -0.5 if scaling is None else scaling, attention_mask is pieces.marker
    return attend_pieces(module.layer_idx, query[0], key[0], value[0], pieces, windowed, scale)[None], None


def attend_pieces(
    layer: int, query: Tensor, key: Tensor, value: Tensor, pieces: Pieces, windowed: bool, scale: float
) -> Tensor:
    """`[T, heads, d]` from `[heads, T, d]`. `windowed`: whether the layer has a window."""
    simple = query.device.type == "cpu" and query.dtype == key.dtype == value.dtype == torch.float32
    few, many = (pieces.few, pieces.many) if simple or pieces.slots is not None else ([], pieces.pieces)
    if few and pieces.slots is not None:
        out = pieces.batch(windowed, query, key).attend(layer, query, key, value, scale)
    elif few:
        out = _attend_few(few, [p.mask(windowed) for p in few], layer, query, key, value, scale)
    else:
        out = query.new_empty(query.shape[1], query.shape[0], value.shape[2])
    for p in many:
        mask = pieces.mask(p, windowed, query.device)
        out[p.start : p.stop] = _attend_many(p, mask, layer, query, key, value, scale)
    return out


def _attend_few(
    few: list[Piece],
    masks: list[np.ndarray | None],
    layer: int,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float,
) -> Tensor:
    """`[T, heads, d]`, filled only for the tokens of the pieces."""
    found = _core.attend_rows(
        query.numpy(),
        key.numpy(),
        value.numpy(),
        [p.row.array(key)[layer] for p in few],
        [p.start for p in few],
        [p.stop for p in few],
        [p.length for p in few],
        masks,
        scale,
    )
    return torch.from_numpy(found)


def _attend_many(
    p: Piece, mask: Tensor | None, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float
) -> Tensor:
    """`[stop - start, heads, d]` of one piece."""
    buffer, count = p.row.states(layer, key), p.stop - p.start
    for kept, states in zip(buffer, (key, value), strict=True):
        kept[:, p.length - count : p.length] = states[:, p.start : p.stop]
    found = torch.nn.functional.scaled_dot_product_attention(
        query[None, :, p.start : p.stop],
        buffer[None, 0, :, : p.length],
        buffer[None, 1, :, : p.length],
        attn_mask=mask,
        is_causal=mask is None and count > 1,
        scale=scale,
        enable_gqa=query.shape[0] != key.shape[0],
    )
    return found[0].transpose(0, 1)


AttentionInterface.register(NAME, attend)  # without a mask function, so transformers makes no mask


@contextmanager
def used_by(decoder: Any) -> Iterator[None]:
    """Within the block, a transformers decoder uses `attend` and must be called with `pieces`."""
    before = decoder.config._attn_implementation
    decoder.config._attn_implementation = NAME
    try:
        yield
    finally:
        decoder.config._attn_implementation = before
