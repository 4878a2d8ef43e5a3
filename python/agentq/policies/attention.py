"""Attention during decoding: the tokens of a row attend to the keys and values that the row stores.

On a CPU in float32 the core computes rows with few new tokens in one call, without copying keys or a dense mask. Torch
computes the rest: prompts, accelerators and other types.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from transformers import AttentionInterface

from agentq import _core
from agentq.errors import ModelError

NAME = "agentq_pieces"
FEW = 16  # new tokens per row up to which the core is faster than torch


class Keeper(Protocol):
    """Storage for the keys and values of one row."""

    def buffer(self, layer: int, like: Tensor) -> Tensor:
        """`[2, heads, room, d]` keys and values of a layer, with room for new tokens. `like`: `[heads, T, d]`."""
        ...

    def array(self, layer: int, like: Tensor) -> np.ndarray:
        """The same memory as a NumPy array."""
        ...


@dataclass(frozen=True, slots=True)
class Piece:
    """The tokens `start` to `stop` of a batch, which belong to one row. `length` is the row's number of keys with them.

    `visible` and `windowed` `[T, length]` are masks of the keys that each token sees, in layers with full attention and
    in layers with a window. None means all keys.
    """

    row: Keeper
    start: int
    stop: int
    length: int
    causal: bool  # instead of a mask: each token sees the earlier ones
    visible: np.ndarray | None
    windowed: np.ndarray | None


@dataclass(frozen=True)
class Pieces:
    """A batch of rows. Layers whose attention mask is `marker` use the window; if `marker` is None, all layers do."""

    pieces: Sequence[Piece]
    marker: Tensor | None

    @cached_property
    def few(self) -> list[Piece]:
        """Pieces that the core computes on a CPU in float32."""
        return [p for p in self.pieces if p.stop - p.start <= FEW and not p.causal]

    @cached_property
    def many(self) -> list[Piece]:
        """The other pieces."""
        return [p for p in self.pieces if p.stop - p.start > FEW or p.causal]


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
    few, many = (pieces.few, pieces.many) if simple else ([], pieces.pieces)
    if few:
        masks = [p.windowed if windowed else p.visible for p in few]
        out = _attend_few(few, masks, layer, query, key, value, scale)
    else:
        out = query.new_empty(query.shape[1], query.shape[0], value.shape[2])
    for p in many:
        mask = p.windowed if windowed else p.visible
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
        [p.row.array(layer, key) for p in few],
        [p.start for p in few],
        [p.stop for p in few],
        [p.length for p in few],
        masks,
        scale,
    )
    return torch.from_numpy(found)


def _attend_many(
    p: Piece, mask: np.ndarray | None, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float
) -> Tensor:
    """`[stop - start, heads, d]` of one piece."""
    buffer, new = p.row.buffer(layer, key), p.length - (p.stop - p.start)
    for kept, states in zip(buffer, (key, value), strict=True):
        kept[:, new : p.length] = states[:, p.start : p.stop]
    found = torch.nn.functional.scaled_dot_product_attention(
        query[None, :, p.start : p.stop],
        buffer[None, 0, :, : p.length],
        buffer[None, 1, :, : p.length],
        attn_mask=None if mask is None else torch.from_numpy(mask).to(query.device),
        is_causal=p.causal,
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
