"""Attention over a trie: a token sees its ancestors and the earlier tokens of its segment. The only file with kernels.

On a CPU it is a cascade: flash attention of each segment to itself (causal) and of a node's children together to their
common path (unmasked), merged by their log-sum-exps. No mask is made and no masked entry is computed. The backward pass
calls the same kernels with the merged output and log-sum-exp, from which each recovers its own part of the softmax.
On other devices it is FlexAttention, whose block mask is the ancestor test.

Source of the merge: Juravsky et al. 2024, "Hydragen", arXiv:2402.05099, section 3.2; the backward pass by parts is
ring attention's, Liu et al. 2023, arXiv:2310.01889. The mask: Dong et al. 2024, arXiv:2412.05496 (FlexAttention).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AttentionInterface

from agentq.errors import ModelError
from agentq.learn.trie import Trie

NAME = "agentq_trie"
BLOCK = 128  # tokens of FlexAttention's blocks
LONG = 512  # tokens of a segment from which the backward kernel is faster in bfloat16 than in float32

_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward

Slices = tuple[tuple[int, int], ...]


class TreePlan:
    """The attention plan of one trie, the same for every layer."""

    def __init__(self, trie: Trie, device: torch.device | str = "cpu") -> None:
        self.trie, self._device = trie, device

    @cached_property
    def cascade(self) -> tuple[list[tuple[int, int]], list[tuple[Slices, Slices]]]:
        """Segments and crossings, see `_cascade`."""
        return _cascade(self.trie)

    @cached_property
    def block_mask(self) -> Any:
        """FlexAttention's block mask of the ancestor test.

        `create_block_mask` finds it from all T x T entries. Here it follows from the blocks' ends: queries of a later
        block see something of a key block if its largest subtree end is beyond their first one, and all of it if its
        smallest is not before their last one. A block that T cuts off is never full.
        """
        from torch.nn.attention.flex_attention import BlockMask

        ends = self.trie.subtree_end
        size = len(ends)
        starts = np.arange(0, size, BLOCK)
        last = np.minimum(starts + BLOCK, size)
        later = np.tri(len(starts), k=-1, dtype=bool)
        full = later & (np.minimum.reduceat(ends, starts) >= last[:, None]) & (last - starts == BLOCK)[:, None]
        partial = later & (np.maximum.reduceat(ends, starts) > starts[:, None]) & ~full
        np.fill_diagonal(partial, True)
        end, some, which, whole, those = (
            torch.from_numpy(x).to(self._device) for x in (ends, *_listed(partial), *_listed(full))
        )
        return BlockMask.from_kv_blocks(
            some,
            which,
            whole,
            those,
            BLOCK_SIZE=BLOCK,
            mask_mod=lambda b, h, q, k: (k <= q) & (q < end[k]),
            seq_lengths=(size, size),
        )


def _listed(blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`[1, 1, n]` number of true entries in each row of `[n, n]`, and `[1, 1, n, n]` their columns first."""
    columns = np.argsort(~blocks, axis=1, kind="stable").astype(np.int32)
    return blocks.sum(axis=1, dtype=np.int32)[None, None], columns[None, None]


def _cascade(trie: Trie) -> tuple[list[tuple[int, int]], list[tuple[Slices, Slices]]]:
    """Segments, which attend to themselves, and (queries, keys) in which every query attends to every key."""
    segments = list(pairwise(trie.bounds.tolist()))
    paths: list[Slices] = []  # path of each segment, itself included
    children: dict[Slices, list[tuple[int, int]]] = {}
    for segment, parent in zip(segments, trie.parents.tolist(), strict=True):
        path: Slices = paths[parent] if parent >= 0 else ()
        if path:
            children.setdefault(path, []).append(segment)
        paths.append(_joined((*path, segment)))
    return segments, [(_joined(queries), keys) for keys, queries in children.items()]


def _joined(slices: Sequence[tuple[int, int]]) -> Slices:
    """The same slices with neighbours joined."""
    joined: list[tuple[int, int]] = []
    for start, end in slices:
        if joined and joined[-1][1] == start:
            start = joined.pop()[0]
        joined.append((start, end))
    return tuple(joined)


def tree_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    tree: TreePlan,
    scaling: float | None = None,
    dropout: float = 0.0,
    **other: Any,
) -> tuple[Tensor, None]:
    """`[1, T, heads, d]` from `[1, heads, T, d]`: a transformers attention function.

    Raises:
        ModelError: if the model needs more than softmax attention over the path: dropout, windows, sinks, caps.
    """
    asked = [name for name in ("sliding_window", "softcap", "s_aux", "position_bias") if other.get(name) is not None]
    if dropout or asked or attention_mask is not None:
        raise ModelError(f"packed attention must be plain; got {', '.join(asked) or 'a mask or dropout'}")
    query, key = query.to(value.dtype), key.to(value.dtype)  # as autocast does for torch's own attention
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    if query.device.type == "cpu":
        out: Tensor = _Cascade.apply(query, key, value, tree, scale)  # type: ignore[no-untyped-call]
    else:
        out = flex(query, key, value, tree, scale)
    return out.transpose(1, 2).contiguous(), None


AttentionInterface.register(NAME, tree_attention)  # without a mask function transformers makes no mask


@contextmanager
def tree_attention_of(model: Any, *, enabled: bool = True) -> Iterator[None]:
    """In the block, `model` (a transformers causal LM) attends by `tree_attention` and must be called with `tree`."""
    config = model.get_decoder().config
    before = config._attn_implementation
    config._attn_implementation = NAME if enabled else before
    try:
        yield
    finally:
        config._attn_implementation = before


def flex(query: Tensor, key: Tensor, value: Tensor, tree: TreePlan, scale: float) -> Tensor:
    """`[1, heads, T, d]` by FlexAttention; torch supports its backward pass on accelerators only."""
    grouped = query.shape[1] != key.shape[1]
    out: Tensor = _flex_kernel(query.device.type)(
        query, key, value, block_mask=tree.block_mask, scale=scale, enable_gqa=grouped
    )
    return out


@cache
def _flex_kernel(device: str) -> Callable[..., Any]:
    from torch.nn.attention.flex_attention import flex_attention

    # Dynamic, since batches differ in length and each would be compiled again. Some lengths, types and models need a
    # kernel of their own all the same. Beyond the limit, 8 by default, torch would attend unfused, with all scores.
    torch._dynamo.config.recompile_limit = max(64, torch._dynamo.config.recompile_limit)
    kernel: Callable[..., Any] = flex_attention
    return kernel if device == "cpu" else torch.compile(kernel, dynamic=True, fullgraph=True)


class _Cascade(torch.autograd.Function):
    """`[1, heads, T, d]`. Merged, and mostly computed, in at least float32: on a CPU the bfloat16 kernels are no faster
    forward. Backward they are several times slower for short segments, but faster for long ones and for paths."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, tree: TreePlan, scale: float) -> Tensor:
        q, k, v = _wide(query, key, value)
        own, path = torch.empty_like(q), torch.zeros_like(q)
        own_lse, path_lse = q.new_empty(q.shape[:-1]), q.new_full(q.shape[:-1], -torch.inf)
        segments, crossings = tree.cascade
        for start, end in segments:
            at = (slice(None), slice(None), slice(start, end))
            own[at], own_lse[at] = _flash(q[at], k[at], v[at], 0.0, True, scale=scale)
        for queries, keys in crossings:
            out, lse = _flash(_take(q, queries), _take(k, keys), _take(v, keys), 0.0, False, scale=scale)
            _put(path, queries, out)
            _put(path_lse, queries, lse)
        merged = torch.lerp(own, path, torch.sigmoid(path_lse - own_lse)[..., None]).to(value.dtype)
        ctx.save_for_backward(query, key, value, merged, torch.logaddexp(own_lse, path_lse))
        ctx.tree, ctx.scale = tree, scale
        return merged

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        *saved, lse = ctx.saved_tensors
        own = grad, *saved
        wide = _wide(*own)
        found = [torch.empty_like(x) for x in wide[1:4]]
        segments, crossings = ctx.tree.cascade
        for start, end in segments:
            at = (slice(None), slice(None), slice(start, end))
            inputs = (x[at] for x in (own if end - start >= LONG else wide))
            parts = _flash_backward(*inputs, lse[at], 0.0, True, scale=ctx.scale)
            for total, part in zip(found, parts, strict=True):
                total[at] = part
        query, key, value, merged = saved
        for queries, keys in crossings:
            # Query heads of one key head become further queries, which is the same if nothing is masked.
            of_queries = [_take(x, queries) for x in (grad, query, merged, lse)]
            gq, qq, oq, lq = (x.reshape(1, key.shape[1], -1, *x.shape[3:]) for x in of_queries)
            parts = _flash_backward(gq, qq, _take(key, keys), _take(value, keys), oq, lq, 0.0, False, scale=ctx.scale)
            _put(found[0], queries, parts[0].reshape(of_queries[1].shape), add=True)
            _put(found[1], keys, parts[1], add=True)
            _put(found[2], keys, parts[2], add=True)
        return *(x.to(value.dtype) for x in found), None, None


def _wide(*tensors: Tensor) -> list[Tensor]:
    return [x.to(torch.promote_types(x.dtype, torch.float32)) for x in tensors]


def _take(x: Tensor, slices: Slices) -> Tensor:
    """`[1, heads, n, ..]`: a view if there is one slice."""
    parts = [x[:, :, start:end] for start, end in slices]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)


def _put(x: Tensor, slices: Slices, values: Tensor, *, add: bool = False) -> None:
    """Write `values` `[1, heads, n, ..]` to the slices of `x`, or add them."""
    sizes = [end - start for start, end in slices]
    for (start, end), part in zip(slices, torch.split(values, sizes, dim=2), strict=True):
        if add:
            x[:, :, start:end] += part
        else:
            x[:, :, start:end] = part
