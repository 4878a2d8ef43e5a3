"""The attention of a trie, for gpu.py: FlexAttention on a GPU, a cascade on a CPU."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import learner_workload as workload
import numpy as np
import torch
from gpu_place import Place
from torch import Tensor, nn

from agentq.learn.trie import Trie, build_trie
from agentq.learn.trie_attention import TreePlan, tree_attention

WAYS = ("forward", "backward")


def attention(place: Place) -> dict[str, Any]:
    """One layer, forward and backward, against attention under a dense mask, and causal attention to each sequence."""
    cuda = place.device != "cpu"
    dtype = torch.bfloat16 if cuda else torch.float32
    heads, kv_heads, size = (4, 2, 32) if place.tiny else (28, 4, 128)
    pairs = workload.preferences(place.regime, 1000)
    samples = {s.prompt_ids.tobytes() + s.token_ids.tobytes(): s for p in pairs for s in (*p.chosen, *p.rejected)}
    fed = [np.concatenate([s.prompt_ids, s.token_ids[:-1]]) for s in samples.values()]
    trie = build_trie(fed)
    plan = TreePlan(trie, place.device)
    torch.manual_seed(0)
    shapes = [(1, h, len(trie.token_ids), size) for h in (heads, kv_heads, kv_heads)]
    inputs = [torch.randn(shape, device=place.device, dtype=dtype) for shape in shapes]
    visible = _visible(trie, place.device)
    lengths = [len(ids) for ids in fed]

    def tree(*x: Tensor) -> Tensor:
        return tree_attention(nn.Module(), *x, None, tree=plan)[0].transpose(1, 2)

    def dense(*x: Tensor) -> Tensor:
        return nn.functional.scaled_dot_product_attention(*x, attn_mask=visible, enable_gqa=True)

    exact = _both(dense, [x.float() for x in inputs])
    errors = {
        name: max(_apart(a.float(), b) for a, b in zip(_both(attend, inputs), exact, strict=True))
        for name, attend in (("trie", tree), ("dense", dense))
    }
    times = {"trie": _seconds(tree, inputs, cuda), "dense": _seconds(dense, inputs, cuda)}
    alone = [[torch.randn((1, s[1], n, size), device=place.device, dtype=dtype) for s in shapes] for n in lengths]
    causal = [_seconds(_causal, x, cuda) for x in alone]
    times["alone"] = tuple(sum(part) for part in zip(*causal, strict=True))
    found = {f"{name}_{way}_ms": 1e3 * t for name, pair in times.items() for way, t in zip(WAYS, pair, strict=True)}
    kernel = "FlexAttention" if cuda else "cascade"
    return {"kernel": kernel, "tokens": len(trie.token_ids), "tokens_alone": sum(lengths), "errors": errors, **found}


def _causal(*x: Tensor) -> Tensor:
    return nn.functional.scaled_dot_product_attention(*x, is_causal=True, enable_gqa=True)


def _visible(trie: Trie, device: str) -> Tensor:
    """`[T, T]`, True where a token sees another: the ancestor test."""
    place = torch.arange(len(trie.token_ids), device=device)
    end = torch.from_numpy(trie.subtree_end).to(device)
    return (place[None] <= place[:, None]) & (place[:, None] < end[None])


def _both(attend: Callable[..., Tensor], inputs: list[Tensor]) -> list[Tensor]:
    """The output and the gradients of its sum, weighted by fixed random numbers."""
    given = [x.detach().clone().requires_grad_() for x in inputs]
    out = attend(*given)
    weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(out.device, out.dtype)
    return [out.detach(), *torch.autograd.grad((out * weight).sum(), given)]


def _apart(found: Tensor, want: Tensor) -> float:
    return float((found - want).norm() / want.norm())


def _seconds(attend: Callable[..., Tensor], inputs: list[Tensor], cuda: bool, repeats: int = 5) -> tuple[float, float]:
    """Seconds forward and backward; the least of `repeats`, after one that warms up."""
    given = [x.detach().clone().requires_grad_() for x in inputs]
    rows = []
    for _ in range(repeats + 1):
        at = [_now(cuda)]
        out = attend(*given)
        at.append(_now(cuda))
        torch.autograd.grad(out, given, torch.ones_like(out))
        at.append(_now(cuda))
        rows.append((at[1] - at[0], at[2] - at[1]))
    forward, backward = zip(*rows[1:], strict=True)
    return min(forward), min(backward)


def _now(cuda: bool) -> float:
    if cuda:
        torch.cuda.synchronize()
    return time.perf_counter()
