"""Attention of decoding: each row's tokens attend to the row's own keys and values, which the row keeps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import AttentionInterface

from agentq.errors import ModelError

NAME = "agentq_pieces"


class Keeper(Protocol):
    """Keeps the keys and values of one row."""

    def put(self, layer: int, states: Tensor) -> Tensor:
        """`[2, heads, all, d]` keys and values of a layer, after the new ones `[2, heads, T, d]` were put behind."""
        ...


@dataclass(frozen=True, slots=True)
class Piece:
    """The tokens `start` to `stop` of a batch, those of one row.

    `mask` and `window` `[T, all]` are added to scores: in layers with full attention, in layers with a window. None
    shows all keys, or with `causal` each token those before it.
    """

    row: Keeper
    start: int
    stop: int
    causal: bool
    mask: Tensor | None
    window: Tensor | None


@dataclass(frozen=True, slots=True)
class Pieces:
    """A batch of rows. Layers whose attention mask is `marker` have the window; all have it where that is None."""

    pieces: Sequence[Piece]
    marker: Tensor | None


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
    """`[1, T, heads, d]` from `[1, heads, T, d]`, piece by piece: a transformers attention function.

    Raises ModelError if the model asks for more than softmax over scores: caps, sinks, biases by place.
    """
    if asked := [name for name in ("softcap", "s_aux", "position_bias") if other.get(name) is not None]:
        raise ModelError(f"attention by pieces must be plain; got {', '.join(asked)}")
    states, found = torch.stack([key[0], value[0]]), []
    windowed = attention_mask is pieces.marker
    for piece in pieces.pieces:
        keys, values = piece.row.put(module.layer_idx, states[:, :, piece.start : piece.stop])
        found.append(
            torch.nn.functional.scaled_dot_product_attention(
                query[:, :, piece.start : piece.stop],
                keys[None],
                values[None],
                attn_mask=piece.window if windowed else piece.mask,
                is_causal=piece.causal,
                scale=scaling,
                enable_gqa=query.shape[1] != key.shape[1],
            )
        )
    return torch.cat(found, dim=2).transpose(1, 2), None


AttentionInterface.register(NAME, attend)  # and no mask function: transformers then makes no mask


@contextmanager
def used_by(decoder: Any) -> Iterator[None]:
    """In the block, a transformers decoder attends by `attend` and must be called with `pieces`."""
    before = decoder.config._attn_implementation
    decoder.config._attn_implementation = NAME
    try:
        yield
    finally:
        decoder.config._attn_implementation = before
