"""Trials of a model: whether a way of decoding gives the logits of one plain forward pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from agentq.errors import ModelError
from agentq.policies.adapters import Switch
from agentq.policies.columns import Columns, Growth, PlainColumns, SharedColumns
from agentq.policies.head import context_of
from agentq.policies.prefix import PrefixCache

PROMPTS, STEPS, K = (37, 21), 3, 2  # prompt lengths of more than one prefix block; steps; samples per prompt
WINDOW = 6  # sliding window during a trial, small enough to matter in a short prompt


def choose_columns(model: Any, switch: Switch | None = None) -> tuple[Callable[[PrefixCache], Columns], bool]:
    """A factory of an engine's columns, and whether they are the fast `SharedColumns`.

    Each way is compared with the plain forward pass on short random prompts, with shortened windows. `switch`: of a
    model with an adapter.

    Raises:
        ModelError: if no way gives the model's own logits, or they are not finite.
    """
    ways: list[tuple[str, Callable[[PrefixCache], Columns], bool]] = []
    mine = model.get_decoder().config._attn_implementation
    if SharedColumns.takes(model):
        ways.append((mine, lambda prefixes: SharedColumns(model, prefixes, switch), True))
    for name in dict.fromkeys([mine, _eager(model)]):
        ways.append((name, lambda _: PlainColumns(model, switch), False))
    said = ""
    for name, make, shared in ways:
        model.get_decoder().config._attn_implementation = name
        try:
            allowed, gap = rounding(model), _gap(model, make)
        except Exception as error:  # a model that does not accept the inputs may fail anywhere in its code
            said = f"{type(error).__name__} in its own code"
            continue
        if gap < allowed:
            return make, shared
        if not math.isfinite(gap):
            raise ModelError(not_finite(model))
        said = f"logits that differ by {gap:.2g} of their spread"
    raise ModelError(
        "a model must give the same logits token by token as in one pass; "
        f"got {type(model).__name__} with {said}: serve it with vLLM"
    )


def not_finite(model: Any) -> str:
    """What is wrong with a model whose logits are not finite."""
    dtype = model.get_input_embeddings().weight.dtype
    found = f"logits must be finite; got NaN or infinity from weights in {str(dtype).removeprefix('torch.')}"
    if dtype == torch.float16:
        return f"{found}, which overflows above 65504: use bfloat16 or float32 (--model.dtype)"
    return f"{found}: the weights are damaged or their training has diverged"


def _gap(model: Any, make: Callable[[PrefixCache], Columns]) -> float:
    """The largest `spread_apart` of columns, first without and then with cached prefixes."""
    prefixes, room, gaps = PrefixCache(1 << 30), context_of(model) - STEPS, []
    prompts = [random_ids(model, max(1, min(n, room)), n).astype(np.int32) for n in PROMPTS]
    tokens = torch.from_numpy(random_ids(model, (STEPS - 1) * len(prompts) * K, 0)).view(STEPS - 1, len(prompts), K)
    with torch.inference_mode(), short_window(model):
        want = torch.stack([_columns_plainly(model, p, tokens[:, i]) for i, p in enumerate(prompts)])
        for _ in range(2):
            columns = make(prefixes)
            rows = [columns.begin(prompt) for prompt in prompts]
            found = [columns.forward([Growth(row) for row in rows])[:, None].expand(-1, K, -1)]
            for step, token in enumerate(tokens.tolist()):
                parents = range(K) if step else [0] * K
                grown = [Growth(row, own, parents) for row, own in zip(rows, token, strict=True)]
                found.append(columns.forward(grown).view(len(rows), K, -1))
            gaps.append(spread_apart(torch.stack(found, dim=2), want))
    return max(gaps)


def _columns_plainly(model: Any, prompt: np.ndarray, tokens: Tensor) -> Tensor:
    """`[K, STEPS, V]` logits after `prompt` and after each of `tokens` `[STEPS - 1, K]`."""
    rows = [np.concatenate([prompt, tokens[:, column].numpy()]) for column in range(tokens.shape[1])]
    return torch.stack([plain_logits(model, row)[len(prompt) - 1 :] for row in rows])


def plain_logits(model: Any, ids: np.ndarray) -> Tensor:
    """`[T, V]` float32 logits of the model's own forward pass over `[T]` tokens: no cache, no padding, no kernels."""
    row = torch.from_numpy(ids.astype(np.int64)).to(model.get_input_embeddings().weight.device)[None]
    with attention_by(model, _eager(model)):
        logits: Tensor = model(input_ids=row, use_cache=False).logits[0].float()
    return logits


def spread_apart(found: Tensor, want: Tensor) -> float:
    """The largest distance between the logits of two distributions, relative to the norm of the wanted, centred logits.

    Args:
        found: `[..., V]` logits; a constant added to a whole distribution makes no difference.
        want: `[..., V]` the same.
    """
    found, want = (x - x.mean(dim=-1, keepdim=True) for x in (found, want))
    return float(((found - want).norm(dim=-1) / want.norm(dim=-1)).max())


def rounding(model: Any) -> float:
    """The `spread_apart` that rounding alone explains: 0.001 in float32, measured on the model in narrower types.

    The measured value is four times the difference between a batch with the attention in use and each row with the
    model's own, at least 0.05. Both compute the same in a different order.
    """
    if model.get_input_embeddings().weight.dtype in (torch.float32, torch.float64):
        return 1e-3
    rows = np.stack([random_ids(model, min(PROMPTS[0], context_of(model)), seed) for seed in range(2)])
    batch = torch.from_numpy(rows).to(model.get_input_embeddings().weight.device)
    with torch.no_grad():
        together = model(input_ids=batch, use_cache=False).logits.float()
        alone = torch.stack([plain_logits(model, row) for row in rows])
    return max(0.05, 4 * spread_apart(together, alone))


def random_ids(model: Any, length: int, seed: int) -> np.ndarray:
    """`[length]` int64 token ids."""
    return np.random.default_rng(seed).integers(0, model.get_input_embeddings().weight.shape[0], length)


def _eager(model: Any) -> str:
    """The name of the model's own attention implementation, or of the current one if it cannot be changed."""
    known = getattr(model, "_supports_attention_backend", False)
    return "eager" if known else str(model.get_decoder().config._attn_implementation)


@contextmanager
def attention_by(model: Any, name: str) -> Iterator[None]:
    """Within the block, the model uses the named attention implementation."""
    config = model.get_decoder().config
    before = config._attn_implementation
    config._attn_implementation = name
    try:
        yield
    finally:
        config._attn_implementation = before


@contextmanager
def short_window(model: Any) -> Iterator[None]:
    """Within the block, the model's sliding window is `WINDOW` tokens, if it has one."""
    config = model.get_decoder().config
    before = getattr(config, "sliding_window", None)
    if before is not None:
        config.sliding_window = WINDOW
    try:
        yield
    finally:
        if before is not None:
            config.sliding_window = before
