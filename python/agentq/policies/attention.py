"""The parts of decoding that depend on transformers' internals: attention without copied key heads, a growing cache."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, DynamicCache
from transformers.cache_utils import DynamicLayer
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from agentq.errors import ModelError

NAME = "agentq_sdpa"


def grouped_sdpa(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **other: Any,
) -> tuple[Tensor, None]:
    """SDPA over `[B, heads, T, d]` with grouped key heads; transformers' own copies them to every query head.

    The mask handles windows. Raises ModelError if the model needs caps, sinks or position biases.
    """
    if asked := [name for name in ("softcap", "s_aux", "position_bias") if other.get(name) is not None]:
        raise ModelError(f"attention by SDPA must be plain; got {', '.join(asked)}")
    causal = attention_mask is None and query.shape[2] > 1 and is_causal is not False
    out = torch.nn.functional.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=attention_mask,
        dropout_p=dropout,
        scale=scaling,
        is_causal=causal,
        enable_gqa=query.shape[1] != key.shape[1],
    )
    return out.transpose(1, 2).contiguous(), None


AttentionInterface.register(NAME, grouped_sdpa)
AttentionMaskInterface.register(NAME, sdpa_mask)


class _GrowingLayer(DynamicLayer):  # type: ignore[misc]  # transformers is untyped here
    """Keys and values in a buffer with spare room: a decoding step writes K columns instead of copying the cache."""

    room = 128
    keys: Tensor
    values: Tensor

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        start = self.get_seq_length() if self.is_initialized else 0
        end = start + key_states.shape[2]
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self._buffers = [_with_room(x, self.room) for x in (key_states, value_states)]
        elif end > self._buffers[0].shape[2] or self._buffers[0].shape[0] != key_states.shape[0]:
            self._buffers = [_with_room(x, self.room + key_states.shape[2]) for x in (self.keys, self.values)]
        for buffer, states in zip(self._buffers, (key_states, value_states), strict=True):
            buffer[:, :, start:end] = states
        self.keys, self.values = (buffer[:, :, :end] for buffer in self._buffers)
        return self.keys, self.values


def _with_room(states: Tensor, room: int) -> Tensor:
    batch, heads, length, size = states.shape
    buffer = states.new_empty(batch, heads, length + room, size)
    buffer[:, :, :length] = states
    return buffer


def growing_cache() -> DynamicCache:
    """A `DynamicCache` whose layers grow in place."""
    cache = DynamicCache()
    cache.layer_class_to_replicate = _GrowingLayer
    return cache
