"""Next-token logits for several samples per prompt, computed in two ways with the same result. Draws no tokens.

Samples of one prompt that have drawn the same tokens so far form one branch, which is computed once. A row is a prompt
and its branches. Rows may begin and end at any step.

`SharedColumns` is fast. A row stores the keys and values of its prompt once, followed by those of its branches' tokens:

    keys:      prompt p_1 .. p_T | step 1: branch 1..C | step 2: branch 1..C' | ...
    branch:    sees the prompt   | its ancestor        | its ancestor         | itself

A prefix shared with an earlier prompt comes from the prefix cache, and only the rest is computed. All rows go through
the model as one sequence without padding. Each row attends to its own keys only. On accelerators rows have slots in one
tensor per layer.

`PlainColumns` serves all other models. It computes one row at a time, with the branches as a batch in the model's own
cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Protocol
from weakref import finalize

import numpy as np
import torch
from torch import Tensor

from agentq.policies import attention
from agentq.policies.adapters import Switch
from agentq.policies.head import head_of
from agentq.policies.llama import SmallLlama, decoder_of
from agentq.policies.prefix import PrefixCache
from agentq.policies.slots import Slots

FULL, SLIDING = "full_attention", "sliding_attention"  # transformers' names
ROOM = 64  # tokens by which a row's buffers grow


class PromptRow(Protocol):
    """A prompt and its branches. `num_cached` of the prompt's tokens are cached, `num_new` must be computed."""

    num_new: int
    num_cached: int


@dataclass(frozen=True, slots=True)
class Growth:
    """The next tokens of a row `[C]`, one per branch, and the index of the earlier branch that each continues `[C]`.

    Both are empty for a new row. Its prompt is then computed as its only branch.
    """

    row: Any
    tokens: Sequence[int] = ()
    parents: Sequence[int] = ()


class Columns(Protocol):
    """A way to compute logits."""

    def load(self) -> None:
        """Use the model's weights as they are now."""
        ...

    def begin(self, prompt: np.ndarray, *, adapted: bool = True) -> PromptRow:
        """The row of a prompt `[P]`, which is computed with or without the model's adapter. Computes nothing."""
        ...

    def forward(self, rows: Sequence[Growth]) -> Tensor:
        """`[N, V]` float32 logits after each branch's last token, row by row."""
        ...


class SharedColumns:
    """`Columns` of a decoder whose layers attend fully or through one sliding window."""

    def __init__(self, model: Any, prefixes: PrefixCache, switch: Switch | None = None) -> None:
        """`switch`: of a model with an adapter."""
        self.prefixes, self.decoder, self.head = prefixes, model.get_decoder(), head_of(model)
        self.switch = switch
        weight = model.get_input_embeddings().weight
        self.device, self.dtype = weight.device, weight.dtype
        config = self.decoder.config
        self.num_layers = config.num_hidden_layers
        kinds = set(getattr(config, "layer_types", None) or ())
        self.window = getattr(config, "sliding_window", None) if SLIDING in kinds or not kinds else None
        self.llama = decoder_of(model)
        self.slots = None if self.device.type == "cpu" else Slots()
        self.mixed = SLIDING in kinds  # such models take one mask per kind of layer, others one mask for all layers

    @staticmethod
    def takes(model: Any) -> bool:
        """Whether the structure of a model allows shared columns; a trial must still show that it works."""
        kinds = set(getattr(model.get_decoder().config, "layer_types", None) or ())
        return kinds <= {FULL, SLIDING} and getattr(model, "_supports_attention_backend", False)

    def load(self) -> None:
        """See `Columns.load`."""
        if isinstance(self.llama, SmallLlama):
            self.llama.load()

    def begin(self, prompt: np.ndarray, *, adapted: bool = True) -> SharedRow:
        """See `Columns.begin`."""
        known = self.prefixes.find(prompt, adapted=adapted)
        return SharedRow(prompt, known, self.num_layers, adapted, self.slots)

    def forward(self, rows: Sequence[Growth]) -> Tensor:
        """See `Columns.forward`."""
        ids, positions, last, pieces, new = list[int](), list[int](), list[int](), list[attention.Piece](), []
        for growth in rows:
            row, at = growth.row, len(ids)
            if growth.tokens:
                ids += growth.tokens
                positions += [row.grow(growth.parents)] * len(growth.tokens)
                last += range(at, len(ids))
            else:
                ids += row.prompt[row.num_cached :].tolist()
                positions += range(row.num_cached, len(row.prompt))
                last.append(len(ids) - 1)
                new.append(row)
            pieces.append(self._piece(row, at, positions[at:]))
        marker = torch.empty(0) if self.mixed else None
        counts, adapted = [p.stop - p.start for p in pieces], [growth.row.adapted for growth in rows]
        with nullcontext() if self.switch is None else self.switch.on(counts, adapted, self.device):
            batch = attention.Pieces(pieces, last, marker, self.slots)
            hidden = self._hidden(self._tensor(ids), self._tensor(positions), batch)
        for row in new:
            row.keep(self.prefixes)
        return self.head(hidden).float()

    def _hidden(self, input_ids: Tensor, position_ids: Tensor, pieces: attention.Pieces) -> Tensor:
        """`[N, d]` last hidden states of the tokens `[1, T]` that are `pieces.last`."""
        if self.llama is not None:
            return self.llama(input_ids, position_ids, pieces)
        given: dict[str, Any] = {"attention_mask": {FULL: None, SLIDING: pieces.marker}} if self.mixed else {}
        with attention.used_by(self.decoder):
            out = self.decoder(input_ids=input_ids, position_ids=position_ids, use_cache=False, pieces=pieces, **given)
        hidden: Tensor = out.last_hidden_state[0, pieces.last]
        return hidden

    def _piece(self, row: SharedRow, at: int, places: list[int]) -> attention.Piece:
        """Which keys of a row its last tokens, at positions `places` `[T]`, attend to."""
        windowed = None
        if self.window is not None and places[-1] >= self.window:
            behind = np.array(places)[:, None] - row.positions
            windowed = (behind >= 0) & (behind < self.window)
            if row.own is not None:
                windowed[:, len(row.prompt) :] &= row.own
        return attention.Piece(row, at, at + len(places), row.length, len(row.prompt), row.own, windowed)

    def _tensor(self, numbers: list[int]) -> Tensor:
        return torch.tensor(numbers, device=self.device)[None]


class SharedRow:
    """`PromptRow` that stores the keys and values of its prompt and of its branches' tokens."""

    def __init__(
        self, prompt: np.ndarray, known: list[Tensor], num_layers: int, adapted: bool, slots: Slots | None = None
    ) -> None:
        """`known`: keys and values of a cached prefix, in blocks `[layers, 2, heads, tokens, d]`. `slots`: of all rows.

        A row keeps its slot until nothing refers to the row.
        """
        self.prompt, self.known, self.adapted = prompt, known, adapted
        self.num_cached = sum(block.shape[3] for block in known)
        self.num_new = len(prompt) - self.num_cached
        self.length = len(prompt)  # number of keys
        self.depths: list[int] = []  # decoding step of each key after the prompt
        self.own: np.ndarray | None = None  # [C, length - P]: keys after the prompt that each branch sees; None: all
        self.num_layers, self._states = num_layers, torch.empty(0)  # [layers, 2, heads, room, d]
        self._array: np.ndarray | None = None  # the same memory
        self.slots, self.slot = slots, -1

    @property
    def positions(self) -> np.ndarray:
        """`[length]` positions of all keys."""
        return np.concatenate([np.arange(len(self.prompt)), len(self.prompt) + np.array(self.depths, dtype=np.int64)])

    def grow(self, parents: Sequence[int]) -> int:
        """Append one token to each branch in `parents` `[C]`. Returns the position of the tokens."""
        count, depth = len(parents), self.depths[-1] + 1 if self.depths else 0
        if self.own is not None or count > 1:
            before = np.ones((1, len(self.depths)), dtype=bool) if self.own is None else self.own
            self.own = np.concatenate([before[list(parents)], np.eye(count, dtype=bool)], axis=1)
        self.depths += [depth] * count
        self.length += count
        if self.slots is not None:
            self.slots.reserve(self.length)
        elif self.length > self._states.shape[3]:
            self._states, self._array = _with_room(self._states, self.length), None
        return len(self.prompt) + depth

    def keep(self, prefixes: PrefixCache) -> None:
        """Give the computed prompt to the prefix cache."""
        self.known = []  # the states contain them
        if not prefixes.max_bytes:
            return
        states = self._states
        if self.slots is not None:
            states = torch.stack([layer[:, self.slot, :, : len(self.prompt)] for layer in self.slots.layers])
        prefixes.add(self.prompt, states, adapted=self.adapted)

    def states(self, layer: int, like: Tensor) -> Tensor:
        """See `attention.Keeper.states`."""
        if self.slots is None:
            return self._own(like)[layer]
        if self.slot < 0:
            self.slot = self.slots.take(self.length + ROOM, self.num_layers, like)
            finalize(self, self.slots.give_back, self.slot).atexit = False
            if self.known:
                for states, known in zip(self.slots.layers, torch.cat(self.known, dim=3), strict=True):
                    states[:, self.slot, :, : self.num_cached] = known
        return self.slots.layers[layer][:, self.slot]

    def array(self, like: Tensor) -> np.ndarray:
        """See `attention.Keeper.array`."""
        if self._array is None:
            self._array = self._own(like).numpy()
        return self._array

    def _own(self, like: Tensor) -> Tensor:
        """`[layers, 2, heads, room, d]` states of a row without a slot."""
        if not self._states.numel():
            heads, _, size = like.shape
            self._states = like.new_empty(self.num_layers, 2, heads, self.length + ROOM, size)
            if self.known:
                torch.cat(self.known, dim=3, out=self._states[:, :, :, : self.num_cached])
        return self._states


def _with_room(held: Tensor, length: int) -> Tensor:
    """A copy of `held` with room for more than `length` tokens."""
    layers, two, heads, filled, size = held.shape
    buffer = held.new_empty(layers, two, heads, length + ROOM, size)
    buffer[:, :, :, :filled] = held
    return buffer


class PlainColumns:
    """`Columns` of any causal LM with a cache. Computes row by row, without cached prefixes."""

    def __init__(self, model: Any, switch: Switch | None = None) -> None:
        """`switch`: of a model with an adapter."""
        self.model, self.device, self.switch = model, model.get_input_embeddings().weight.device, switch

    def load(self) -> None:
        """See `Columns.load`. Nothing is copied here."""

    def begin(self, prompt: np.ndarray, *, adapted: bool = True) -> PlainRow:
        """See `Columns.begin`."""
        return PlainRow(prompt, len(prompt), adapted)

    def forward(self, rows: Sequence[Growth]) -> Tensor:
        """See `Columns.forward`."""
        logits = []
        for growth in rows:
            row: PlainRow = growth.row
            if growth.tokens:
                ids, before = torch.tensor(growth.tokens, device=self.device)[:, None], list(growth.parents)
                if before != list(range(row.num_branches)):
                    row.cache.reorder_cache(torch.tensor(before, device=self.device))
                row.num_branches = len(before)
            else:
                ids = torch.from_numpy(row.prompt.astype(np.int64))[None].to(self.device)
            with nullcontext() if self.switch is None else self.switch.on([1], [row.adapted], self.device):
                out = self.model(input_ids=ids, past_key_values=row.cache, use_cache=True, logits_to_keep=1)
            row.cache = out.past_key_values
            logits.append(out.logits[:, -1].float())
        return torch.cat(logits)


@dataclass(slots=True)
class PlainRow:
    """`PromptRow` in the model's own cache. The batch dimension of the cache is the branches."""

    prompt: np.ndarray
    num_new: int
    adapted: bool
    num_cached: int = 0
    num_branches: int = 1
    cache: Any = None
