"""From samples to tensors: what runs forward together in one optimiser step, and which rows predict which tokens.

Token ids are used as recorded; nothing is tokenised again. The sequences of a batch (prompt and action) form a trie, so
their common prefixes run forward once: the prompt of a node's actions, the turns of a growing conversation, the same
action in several pairs. An action's last token is not fed, since nothing after it is trained on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from agentq.errors import ConfigError, ModelError
from agentq.learn.trie import Order, build_trie
from agentq.learn.trie_attention import TreePlan
from agentq.types import Sample

PART_COST = 64  # a further part costs as much time as about so many tokens, since it adds to every gradient

Cut = tuple[list[int], list[list[int]]]  # the items of a part, the samples of each of its batches


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """The input of one forward pass. `B` rows of `T` positions, `M` action tokens predicted by `R` of the positions."""

    input_ids: Tensor  # [B, T] int64, right-padded with 0; a trie is one row
    position_ids: Tensor  # [B, T] int64
    tree: TreePlan | None  # None: each row is one sequence, and causal attention suffices
    predictors: Tensor  # [R] int64, rising: position b * T + t whose output predicts tokens
    predicted_by: Tensor  # [M] int64, rising: index into predictors
    targets: Tensor  # [M] int64: the token
    samples: Tensor  # [M] int64: its sample, a row of the part's [S, T] tensors
    columns: Tensor  # [M] int64: its index in the action
    num_tokens: int  # fed tokens, without padding


@dataclass(frozen=True, slots=True)
class Part:
    """Items of a step whose loss is computed together."""

    items: tuple[int, ...]  # indices of the items in the step
    samples: tuple[tuple[int, ...], ...]  # for each item its samples, as rows of action_mask
    action_mask: Tensor  # [S, T] bool, 1 where a sample has an action token
    batches: tuple[MicroBatch, ...]  # several only if one item, here or on another rank, exceeds the token budget

    @property
    def members(self) -> list[tuple[int, tuple[int, ...]]]:
        """(item, its samples' rows) of each item."""
        return list(zip(self.items, self.samples, strict=True))


LossFn = Callable[[Part, Tensor], tuple[Tensor, Mapping[str, Tensor | float]]]
"""Maps a part and its `[S, T]` log-probabilities to a scalar to minimise and metrics. Both are summed over the parts of
a step and already divided by the size of the whole step, so the result does not depend on the partition."""


def check_items(items: Sequence[Sequence[Sample]]) -> None:
    """Raises ConfigError if an item is not a tuple or list of samples."""
    for item in items:
        wrong = (
            next((each for each in item if not isinstance(each, Sample)), None)
            if isinstance(item, tuple | list)
            else item
        )
        if wrong is not None:
            raise ConfigError(
                "an item of a step must be a tuple of samples, such as (sample,) or (*pair.chosen, *pair.rejected); "
                f"got {type(wrong).__name__}"
            )


def check_fits(items: Sequence[Sequence[Sample]], vocabulary: int, context: int) -> None:
    """Raises ModelError for a token id outside the vocabulary, or a sample longer than the context."""
    samples = [sample for item in items for sample in item]
    every = [ids for s in samples for ids in (s.prompt_ids, s.token_ids) if len(ids)]
    largest = max((int(ids.max()) for ids in every), default=0)
    if largest >= vocabulary:
        raise ModelError(f"token ids must be less than the model's vocabulary ({vocabulary}); got {largest}")
    if (smallest := min((int(ids.min()) for ids in every), default=0)) < 0:
        raise ModelError(f"token ids must be at least 0; got {smallest}")
    longest = max((len(s.prompt_ids) + len(s.token_ids) - 1 for s in samples), default=0)
    if longest > context:
        raise ModelError(f"a sample must fit the model's context ({context} tokens); got {longest}")


def plan_step(
    items: Sequence[Sequence[Sample]],
    *,
    max_tokens: int = 4096,
    packed: bool = True,
    device: torch.device | str = "cpu",
    rank: int = 0,
    num_ranks: int = 1,
) -> list[Part]:
    """Cut one optimiser step into parts of at most `max_tokens` tokens, with similar items together.

    All ranks get the same numbers of parts and batches. A rank without work gets a part without items, whose batch has
    no targets. With several ranks, parts have about equal sizes and are as few as the number of rounds allows.

    Args:
        items: `[I]` units of the loss: a sample for SFT, a pair's samples (chosen, then rejected) for DPO.
        max_tokens: limit of one forward pass. If a sequence, which cannot be cut, is longer than four fifths of it,
            the limit is five fourths of that sequence.
        packed: whether batches are tries; False gives each distinct sample a row of its own, whose padding counts.
        rank: whose parts are returned, in [0, num_ranks); every rank plans the whole step.

    Raises:
        ValueError: if an item has no sample, a sample no prompt or no action token, or max_tokens is less than 1.
    """
    if max_tokens < 1:
        raise ValueError(f"max_tokens must be at least 1; got {max_tokens}")
    unique, of_item = _unique(items)
    fed = [_fed(sample) for sample in unique]
    order = Order.of(fed) if packed else Order.by_length(fed)
    limit = max(max_tokens, least_tokens(items))
    cuts = _shares(of_item, order, limit, num_ranks)
    parts = []
    for first in range(0, len(cuts), num_ranks):
        at_once = cuts[first : first + num_ranks]
        members, batches = at_once[rank] if rank < len(at_once) else ([], [])
        place = {sample: i for i, sample in enumerate(dict.fromkeys(s for batch in batches for s in batch))}
        lengths = np.array([len(unique[sample].token_ids) for sample in place], dtype=np.int64)
        made = [_micro_batch({place[s]: unique[s] for s in some}, packed, device) for some in batches]
        idle = max(len(others) for _, others in at_once) - len(made)
        parts.append(
            Part(
                items=tuple(members),
                samples=tuple(tuple(place[s] for s in of_item[i]) for i in members),
                action_mask=torch.from_numpy(np.arange(lengths.max(initial=0)) < lengths[:, None]).to(device),
                batches=(*made, *(_idle_batch(packed, device) for _ in range(idle))),
            )
        )
    return parts


def least_tokens(items: Sequence[Sequence[Sample]]) -> int:
    """The smallest limit of a forward pass: five fourths of the longest sequence."""
    return max((len(s.prompt_ids) + len(s.token_ids) - 1 for item in items for s in item), default=0) * 5 // 4


def default_tokens(model: Any) -> int:
    """A token limit for a transformers causal LM: 16384; on a CPU 8192, or less if activations would exceed 2 GiB."""
    if model.device.type != "cpu":
        return 16384
    config = model.get_decoder().config
    # a token's activations are about 20 numbers per embedding dimension and layer
    return min(8192, max(2048, 2**24 // int(config.hidden_size * config.num_hidden_layers)))


def _unique(items: Sequence[Sequence[Sample]]) -> tuple[list[Sample], list[tuple[int, ...]]]:
    """The distinct (prompt, action) of a step, and each item's samples as indices into them."""
    index: dict[tuple[bytes, bytes], int] = {}
    unique: list[Sample] = []
    of_item = []
    for item in items:
        if not item:
            raise ValueError("an item must have at least one sample; got none")
        ids = []
        for sample in item:
            if len(sample.prompt_ids) == 0 or len(sample.token_ids) == 0:
                raise ValueError(
                    "a sample must have at least one prompt and one action token; "
                    f"got {len(sample.prompt_ids)} and {len(sample.token_ids)}"
                )
            key = (_key(sample.prompt_ids), _key(sample.token_ids))
            if key not in index:
                index[key] = len(unique)
                unique.append(sample)
            ids.append(index[key])
        of_item.append(tuple(ids))
    return unique, of_item


def _key(ids: np.ndarray) -> bytes:
    return np.asarray(ids, dtype=np.int64).tobytes()


def _fed(sample: Sample) -> np.ndarray:
    return np.concatenate([sample.prompt_ids, sample.token_ids[:-1]]).astype(np.int64)


def _shares(of_item: list[tuple[int, ...]], order: Order, limit: int, num_ranks: int) -> list[Cut]:
    """The parts of all ranks in groups of `num_ranks`, those with several batches first."""
    cuts = _cut(of_item, order, limit, limit)
    if num_ranks > 1:
        # The smallest budget that needs no more rounds gives the ranks about equal shares.
        rounds, low, high = -(-len(cuts) // num_ranks), 0, limit
        while high - low > max(1, high // 64):
            middle = (low + high) // 2
            tried = _cut(of_item, order, middle, limit)
            if -(-len(tried) // num_ranks) > rounds:
                low = middle
            else:
                cuts, high = tried, middle
    return sorted(cuts, key=lambda cut: -len(cut[1]))


def _cut(of_item: list[tuple[int, ...]], order: Order, budget: int, limit: int) -> list[Cut]:
    """Parts of neighbours in the trie within `budget`, cut where the fewest tokens come twice.

    A single item may exceed the budget; over `limit` it gets several batches.
    """
    ranks = [sorted({int(order.rank[s]) for s in samples}) for samples in of_item]
    sample_at = np.argsort(order.rank).tolist()
    items = sorted(range(len(ranks)), key=ranks.__getitem__)
    least = [0, *[math.inf] * len(items)]  # cost of the first n items
    first = [0] * len(least)  # of the last part of the first n items
    for start in range(len(items)):
        taken, tokens = order.join([], ranks[items[start]])
        for end in range(start + 1, len(items) + 1):
            if least[start] + tokens + PART_COST < least[end]:
                least[end], first[end] = least[start] + tokens + PART_COST, start
            if end < len(items):
                taken, added = order.join(taken, ranks[items[end]])
                tokens += added
            if tokens > budget:
                break
    parts: list[Cut] = []
    end = len(items)
    while end:
        members = items[first[end] : end]
        taken = sorted({rank for i in members for rank in ranks[i]})
        batches = _split(taken, order, limit) if len(members) == 1 else [taken]
        parts.append((members, [[sample_at[r] for r in batch] for batch in batches]))
        end = first[end]
    return parts[::-1]


def _split(ranks: list[int], order: Order, limit: int) -> list[list[int]]:
    """The ranks of one item in batches of at most `limit` tokens; one batch if it fits."""
    batches: list[list[int]] = [[]]
    tokens = 0
    for rank in ranks:
        added = order.added(batches[-1], rank)
        if batches[-1] and tokens + added > limit:
            batches.append([])
            tokens, added = 0, int(order.lengths[rank])
        batches[-1].append(rank)
        tokens += added
    return batches


def _micro_batch(samples: dict[int, Sample], packed: bool, device: torch.device | str) -> MicroBatch:
    """The batch of `samples`, by their rows in the part's tensors."""
    fed = [_fed(sample) for sample in samples.values()]
    if packed:
        trie = build_trie(fed)
        input_ids, positions, paths = trie.token_ids[None], trie.positions[None], trie.paths
    else:
        width = max(map(len, fed))
        input_ids = np.stack([np.pad(ids, (0, width - len(ids))) for ids in fed])
        positions = np.tile(np.arange(width), (len(fed), 1))
        paths = [b * width + np.arange(len(ids)) for b, ids in enumerate(fed)]
    index = []  # [4, T] per action: predictor, target, sample, column
    for path, (row, sample) in zip(paths, samples.items(), strict=True):
        size = len(sample.token_ids)
        index.append(np.stack([path[-size:], sample.token_ids, np.full(size, row), np.arange(size)]))
    terms = np.concatenate(index, axis=1).astype(np.int64)
    terms = terms[:, np.argsort(terms[0], kind="stable")]
    predictors, predicted_by = np.unique(terms[0], return_inverse=True)

    def tensor(x: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(x)).to(device)

    return MicroBatch(
        input_ids=tensor(input_ids),
        position_ids=tensor(positions),
        tree=TreePlan(trie, device) if packed else None,
        predictors=tensor(predictors),
        predicted_by=tensor(predicted_by),
        targets=tensor(terms[1]),
        samples=tensor(terms[2]),
        columns=tensor(terms[3]),
        num_tokens=input_ids.size if packed else sum(map(len, fed)),
    )


def _idle_batch(packed: bool, device: torch.device | str) -> MicroBatch:
    """One token that runs through the whole model and predicts nothing, while another rank works."""
    token = np.zeros(1, np.int32)
    batch = _micro_batch({0: Sample(token, token, np.zeros(1, np.float32))}, packed, device)
    none = batch.targets[:0]
    return replace(batch, predicted_by=none, targets=none, samples=none, columns=none, num_tokens=0)
