"""The samples of prompts, token by token: logits in, no choices made. Two ways to compute the same numbers.

Samples of one prompt that have drawn the same tokens so far are one branch, computed once. A row is a prompt and its
branches; rows begin and end at any time.

`SharedColumns` is fast. A row keeps the keys and values of its prompt once, and of each branch's tokens behind them:

    keys:      prompt p_1 .. p_T | step 1: branch 1..C | step 2: branch 1..C' | ...
    branch:    sees the prompt   | its ancestor        | its ancestor         | itself

What a prompt has in common with earlier ones comes from the prefix cache; only the rest is computed. All rows go
through the model as one sequence without padding, and attend each to its own keys.

`PlainColumns` is for models that cannot attend so: one row at a time, its branches a batch in the model's own cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from agentq.policies import attention
from agentq.policies.head import logits_of
from agentq.policies.prefix import PrefixCache

FULL, SLIDING = "full_attention", "sliding_attention"  # transformers' names
ROOM = 64  # tokens that a row's buffers grow by


class Row(Protocol):
    """A prompt and its branches; `num_new` of its tokens are still to compute, `num_cached` are known."""

    num_new: int
    num_cached: int


@dataclass(frozen=True, slots=True)
class Growth:
    """A row's next tokens `[C]`, one per branch, and the branch `[C]` before that each continues.

    Both are empty in a row that begins: its prompt is then computed, its only branch.
    """

    row: Any
    tokens: Sequence[int] = ()
    parents: Sequence[int] = ()


class Columns(Protocol):
    """How logits are computed."""

    def begin(self, prompt: np.ndarray) -> Row:
        """The row of a prompt `[P]`; computes nothing."""
        ...

    def forward(self, rows: Sequence[Growth]) -> Tensor:
        """`[N, V]` float32 logits after each branch's last token, row by row."""
        ...


class SharedColumns:
    """`Columns` of a decoder whose layers attend fully or through one sliding window."""

    def __init__(self, model: Any, prefixes: PrefixCache) -> None:
        self.model, self.prefixes, self.decoder = model, prefixes, model.get_decoder()
        weight = model.get_input_embeddings().weight
        self.device, self.dtype = weight.device, weight.dtype
        config = self.decoder.config
        kinds = set(getattr(config, "layer_types", None) or ())
        self.window = getattr(config, "sliding_window", None) if SLIDING in kinds or not kinds else None
        self.mixed = SLIDING in kinds  # such models take a mask per kind of layer, others one for all layers

    @staticmethod
    def takes(model: Any) -> bool:
        """Whether the structure of a model allows shared columns; a trial must still show that it works."""
        kinds = set(getattr(model.get_decoder().config, "layer_types", None) or ())
        return kinds <= {FULL, SLIDING} and getattr(model, "_supports_attention_backend", False)

    def begin(self, prompt: np.ndarray) -> SharedRow:
        """See `Columns.begin`."""
        return SharedRow(prompt, self.prefixes.find(prompt))

    def forward(self, rows: Sequence[Growth]) -> Tensor:
        """See `Columns.forward`."""
        ids, positions, last, pieces, new, at = [], [], [], [], [], 0
        for growth in rows:
            row: SharedRow = growth.row
            if not growth.tokens:
                tokens, places = row.prompt[row.num_cached :], np.arange(row.num_cached, len(row.prompt))
                last.append(at + len(tokens) - 1)
                new.append(row)
            else:
                tokens, places = np.asarray(growth.tokens), row.grow(growth.parents)
                last.extend(range(at, at + len(tokens)))
            pieces.append(self._piece(row, at, places))
            ids.append(tokens)
            positions.append(places)
            at += len(tokens)
        marker = torch.empty(0) if self.mixed else None
        given: dict[str, Any] = {"attention_mask": {FULL: None, SLIDING: marker}} if self.mixed else {}
        with attention.used_by(self.decoder):
            hidden = self.decoder(
                input_ids=self._tensor(ids),
                position_ids=self._tensor(positions),
                use_cache=False,
                pieces=attention.Pieces(pieces, marker),
                **given,
            ).last_hidden_state
        if self.prefixes.max_bytes:
            for row in new:
                self.prefixes.add(row.prompt, row.states)
        return logits_of(self.model, hidden[0, torch.tensor(last, device=self.device)]).float()

    def _piece(self, row: SharedRow, at: int, places: np.ndarray) -> attention.Piece:
        """What the tokens at `places` `[T]`, the row's last, see of it."""
        stop, begins = at + len(places), not row.own.shape[1]
        distant = self.window is not None and places[-1] >= self.window
        if begins and not row.num_cached and not distant:
            return attention.Piece(row, at, stop, len(places) > 1, None, None)
        behind = places[:, None] - row.positions
        visible = behind >= 0
        visible[:, len(row.prompt) :] = row.own
        mask = None if visible.all() else self._added(visible)
        window = self._added(visible & (behind < self.window)) if distant else mask
        return attention.Piece(row, at, stop, False, mask, window)

    def _added(self, visible: np.ndarray) -> Tensor:
        mask = torch.zeros(visible.shape, dtype=self.dtype).masked_fill_(torch.from_numpy(~visible), -torch.inf)
        return mask.to(self.device)

    def _tensor(self, arrays: list[np.ndarray]) -> Tensor:
        return torch.from_numpy(np.concatenate(arrays).astype(np.int64))[None].to(self.device)


class SharedRow:
    """`Row` with the keys and values of its prompt and of its branches' tokens."""

    def __init__(self, prompt: np.ndarray, known: Tensor | None) -> None:
        """`known` `[layers, 2, heads, cached, d]`: the states of a prefix."""
        self.prompt, self.known = prompt, known
        self.num_cached = 0 if known is None else known.shape[3]
        self.num_new = len(prompt) - self.num_cached
        self.positions = np.arange(len(prompt))  # [all]: of every key
        self.own = np.zeros((1, 0), dtype=bool)  # [C, all - P]: which keys behind the prompt a branch sees
        self.states: list[Tensor] = []  # of each layer: [2, heads, all, d]
        self._buffers: list[Tensor] = []  # the same with room behind

    def grow(self, parents: Sequence[int]) -> np.ndarray:
        """Append a token to each of `parents` `[C]`, the branches from now on; returns the tokens' positions `[C]`."""
        self.num_new = 0
        self.own = np.concatenate([self.own[list(parents)], np.eye(len(parents), dtype=bool)], axis=1)
        places = np.full(len(parents), self.positions[-1] + 1)
        self.positions = np.concatenate([self.positions, places])
        return places

    def put(self, layer: int, states: Tensor) -> Tensor:
        """See `attention.Keeper.put`."""
        stop = len(self.positions)
        start = stop - states.shape[2]
        if layer == len(self.states):
            buffer = self._grown(states, self.known[layer] if self.known is not None else states[:, :, :0], stop)
            self._buffers.append(buffer)
            self.states.append(buffer)
        elif stop > self._buffers[layer].shape[2]:
            self._buffers[layer] = self._grown(states, self.states[layer], stop)
        buffer = self._buffers[layer]
        buffer[:, :, start:stop] = states
        self.states[layer] = found = buffer[:, :, :stop]
        return found

    @staticmethod
    def _grown(like: Tensor, held: Tensor, length: int) -> Tensor:
        """A buffer that begins with what is `held` and has room for more than `length` tokens."""
        two, heads, _, size = like.shape
        buffer = like.new_empty(two, heads, length + ROOM, size)
        buffer[:, :, : held.shape[2]] = held
        return buffer


class PlainColumns:
    """`Columns` of any causal LM with a cache. Computes row by row and knows no prefixes."""

    def __init__(self, model: Any) -> None:
        self.model, self.device = model, model.get_input_embeddings().weight.device

    def begin(self, prompt: np.ndarray) -> PlainRow:
        """See `Columns.begin`."""
        return PlainRow(prompt, len(prompt))

    def forward(self, rows: Sequence[Growth]) -> Tensor:
        """See `Columns.forward`."""
        logits = []
        for growth in rows:
            row: PlainRow = growth.row
            if growth.tokens:
                ids, before = torch.tensor(growth.tokens, device=self.device)[:, None], list(growth.parents)
                if before != list(range(row.num_branches)):
                    row.cache.reorder_cache(torch.tensor(before, device=self.device))
                row.num_new, row.num_branches = 0, len(before)
            else:
                ids = torch.from_numpy(row.prompt.astype(np.int64))[None].to(self.device)
            out = self.model(input_ids=ids, past_key_values=row.cache, use_cache=True, logits_to_keep=1)
            row.cache = out.past_key_values
            logits.append(out.logits[:, -1].float())
        return torch.cat(logits)


@dataclass(slots=True)
class PlainRow:
    """`Row` in the model's own cache, whose batch is the branches."""

    prompt: np.ndarray
    num_new: int
    num_cached: int = 0
    num_branches: int = 1
    cache: Any = None
