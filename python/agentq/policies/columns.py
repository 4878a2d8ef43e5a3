"""Logits of the K samples of a prompt, one token at a time, in two ways. Choosing tokens is the caller's task.

`SharedColumns` is fast: the samples of a prompt are columns of ONE batch row. The prompt's keys and values exist once.
Each decoding step feeds `[B, K]` tokens that share a position, and a mask lets each column see only the prompt and its
own tokens.

    keys:      prompt p_1 .. p_T | step 1: col 1..K | step 2: col 1..K | ...
    column k:  sees p_1 .. p_len |         col k    |         col k    |

The prefix that a prompt shares with earlier prompts comes from the prefix cache; only the rest is computed.

`PlainColumns` is for models that do not accept such masks. It computes one prompt at a time in the model's own cache,
with the samples as rows of a batch without padding.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from agentq.policies import attention
from agentq.policies.head import logits_of
from agentq.policies.prefix import BLOCK, PrefixCache

FULL, SLIDING = "full_attention", "sliding_attention"  # transformers' names


class Columns(Protocol):
    """One batch of `B` prompts with `K` samples each."""

    def begin(self, prompts: list[np.ndarray], known: list[list[Tensor]], k: int) -> Tensor:
        """`[B, K, V]` float32 logits of the first tokens; `known` are the blocks of each prompt's known prefix."""
        ...

    def keep(self, rows: Tensor) -> None:
        """Continue with the remaining prompts that have these indices only."""
        ...

    def step(self, tokens: Tensor) -> Tensor:
        """`[B, K, V]` float32 logits after the samples' next `tokens` `[B, K]`."""
        ...


class SharedColumns:
    """`Columns` of a decoder with full attention or one sliding window, whose layers accept a mask of visible keys."""

    def __init__(self, model: Any, prefixes: PrefixCache) -> None:
        self.model, self.prefixes, self.decoder = model, prefixes, model.get_decoder()
        self.device = model.get_input_embeddings().weight.device
        self.cache = attention.growing_cache()
        config = self.decoder.config
        kinds = set(getattr(config, "layer_types", None) or ())
        self.window = getattr(config, "sliding_window", None) if SLIDING in kinds or not kinds else None
        self.mixed = SLIDING in kinds  # such models need one mask per kind of layer

    @staticmethod
    def takes(model: Any) -> bool:
        """Whether the structure of a model allows shared columns; a trial must still show that it works."""
        config = model.get_decoder().config
        kinds = set(getattr(config, "layer_types", None) or ())
        return (
            kinds <= {FULL, SLIDING} and config._attn_implementation != "eager"
        )  # eager attention accepts no boolean masks

    def begin(self, prompts: list[np.ndarray], known: list[list[Tensor]], k: int) -> Tensor:
        """See `Columns.begin`. Keys are then: known prefixes, the rest, both right-padded."""
        self.k, starts = k, [BLOCK * len(blocks) for blocks in known]
        new = [prompt[start:] for prompt, start in zip(prompts, starts, strict=True)]
        counts = torch.tensor([len(tokens) for tokens in new], device=self.device)
        input_ids = torch.zeros(len(new), int(counts.max()), dtype=torch.long, device=self.device)
        for row, tokens in enumerate(new):
            input_ids[row, : len(tokens)] = torch.from_numpy(tokens.astype(np.int64))
        place, width = torch.arange(input_ids.shape[1], device=self.device), max(starts)
        start = torch.tensor(starts, device=self.device)
        self.visible, self.positions = place < counts[:, None], start[:, None] + place
        given: dict[str, Any] = {}  # without prefixes causal attention suffices: no token sees the padding behind it
        if width:
            before = torch.arange(width, device=self.device)
            prefix = before < start[:, None]
            causal = (place <= place[:, None]).expand(len(new), -1, -1)
            visible = torch.cat([prefix[:, None].expand(-1, len(place), -1), causal], dim=-1)
            queries = self.positions
            self.visible = torch.cat([prefix, self.visible], dim=-1)
            self.positions = torch.cat([before.expand(len(new), -1), queries], dim=-1)
            given = {"attention_mask": self._mask(visible, queries), "position_ids": queries}
            for layer, (keys, values) in enumerate(_prefix_states(known, width)):
                self.cache.update(keys, values, layer)
        hidden = self._forward(input_ids=input_ids, **given)
        if self.prefixes.max_bytes:
            computed = torch.stack([torch.stack([x.keys, x.values], 1)[:, :, :, width:] for x in self.cache.layers], 1)
            for row, prompt in enumerate(prompts):
                self.prefixes.add(prompt, starts[row], computed[row])
        self.next, self.steps = start + counts, 0
        last = hidden[torch.arange(len(new), device=self.device), counts - 1]
        return logits_of(self.model, last).float()[:, None].expand(-1, k, -1)

    def keep(self, rows: Tensor) -> None:
        """See `Columns.keep`."""
        self.cache.batch_select_indices(rows)
        self.visible, self.positions, self.next = self.visible[rows], self.positions[rows], self.next[rows]

    def step(self, tokens: Tensor) -> Tensor:
        """See `Columns.step`: one forward pass over `[B, K]` tokens that share a position."""
        rows, queries = len(tokens), self.next[:, None].expand(-1, self.k)
        self.next, self.steps = self.next + 1, self.steps + 1
        own = torch.eye(self.k, dtype=torch.bool, device=self.device).repeat(1, self.steps).expand(rows, -1, -1)
        visible = torch.cat([self.visible[:, None].expand(-1, self.k, -1), own], dim=-1)
        if self.window is not None:
            self.positions = torch.cat([self.positions, queries], dim=-1)
        hidden = self._forward(input_ids=tokens, attention_mask=self._mask(visible, queries), position_ids=queries)
        return logits_of(self.model, hidden).float()

    def _mask(self, visible: Tensor, queries: Tensor) -> Any:
        """The decoder's mask: `visible` `[B, Q, keys]`, restricted to the window before `queries` `[B, Q]`."""
        full = visible[:, None]
        if self.window is None:
            return full
        windowed = full & (queries[:, :, None] - self.positions[:, None] < self.window)[:, None]
        return {FULL: full, SLIDING: windowed} if self.mixed else windowed

    def _forward(self, **given: Any) -> Tensor:
        hidden: Tensor = self.decoder(past_key_values=self.cache, use_cache=True, **given).last_hidden_state
        return hidden


def _prefix_states(known: list[list[Tensor]], width: int) -> Tensor:
    """`[layers, 2, B, heads, width, head size]`: the known blocks of each row, zeros behind them."""
    first = next(blocks[0] for blocks in known if blocks)
    layers, two, heads, _, size = first.shape
    states = first.new_zeros(layers, two, len(known), heads, width, size)
    for row, blocks in enumerate(known):
        if blocks:
            states[:, :, row, :, : BLOCK * len(blocks)] = torch.cat(blocks, dim=3)
    return states


class PlainColumns:
    """`Columns` of any causal LM with a cache. Computes the prompts one by one and knows no prefixes."""

    def __init__(self, model: Any) -> None:
        self.model, self.device = model, model.get_input_embeddings().weight.device

    def begin(self, prompts: list[np.ndarray], known: list[list[Tensor]], k: int) -> Tensor:
        """See `Columns.begin`."""
        self.caches, logits = [], []
        for prompt in prompts:
            ids = torch.from_numpy(prompt.astype(np.int64)).to(self.device)[None]
            out = self.model(input_ids=ids, use_cache=True, logits_to_keep=1)
            out.past_key_values.reorder_cache(torch.zeros(k, dtype=torch.long, device=self.device))  # K times the row
            self.caches.append(out.past_key_values)
            logits.append(out.logits[:, -1].float().expand(k, -1))
        return torch.stack(logits)

    def keep(self, rows: Tensor) -> None:
        """See `Columns.keep`."""
        self.caches = [self.caches[row] for row in rows.tolist()]

    def step(self, tokens: Tensor) -> Tensor:
        """See `Columns.step`."""
        logits = [
            self.model(input_ids=row[:, None], past_key_values=cache, use_cache=True).logits[:, -1].float()
            for row, cache in zip(tokens, self.caches, strict=True)
        ]
        return torch.stack(logits)
