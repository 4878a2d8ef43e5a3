"""Attention over a trie against attention with a dense mask."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch._dynamo
from torch import Tensor

from agentq.errors import ModelError
from agentq.learn import trie_attention
from agentq.learn.trie import Trie, build_trie
from agentq.learn.trie_attention import NAME, TreePlan, flex, tree_attention, tree_attention_of
from tests.learn_factory import tiny_llama


def forked(scale: int = 1) -> Trie:
    """Two trees; forks at three depths, one right after the first token; a chain. `scale` makes segments longer."""
    rng = np.random.default_rng(0)

    def some(n: int) -> list[int]:
        return rng.integers(0, 50, n * scale).tolist()

    trunk, branch = some(9), some(5)
    sequences = [
        [*trunk, *branch, *some(3)],
        [*trunk, *branch, *some(4)],
        [*trunk, *branch],
        [*trunk, *some(6)],
        [trunk[0], *some(2)],
        [51, *some(3)],
        [51],
    ]
    return build_trie([np.array(s) for s in sequences])


def dense(query: Tensor, key: Tensor, value: Tensor, trie: Trie, scale: float) -> Tensor:
    """By a T x T mask made from the paths, not from the plan."""
    size = len(trie.token_ids)
    visible = torch.zeros(size, size, dtype=torch.bool)
    for path in trie.paths:
        for i, place in enumerate(path.tolist()):
            visible[place, path[: i + 1]] = True
    return torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=visible, scale=scale, enable_gqa=True
    )


def states(trie: Trie, heads: int, kv_heads: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Query, key, value `[1, heads, T, d]`, strided as a model's are."""
    torch.manual_seed(0)
    size = len(trie.token_ids)
    made = [torch.randn(1, size, h, 8, dtype=dtype).transpose(1, 2) for h in (heads, kv_heads, kv_heads)]
    return [x.requires_grad_() for x in made]


def packed(query: Tensor, key: Tensor, value: Tensor, trie: Trie, scale: float) -> Tensor:
    module = torch.nn.Module()
    out, _ = tree_attention(module, query, key, value, None, tree=TreePlan(trie), scaling=scale)
    return out.transpose(1, 2)


def check_equals_dense(trie: Trie, heads: int, kv_heads: int, atol: float) -> None:
    """Outputs to 1e-12, gradients to `atol`."""
    inputs = states(trie, heads, kv_heads)
    want, found = (f(*inputs, trie, 0.7) for f in (dense, packed))
    torch.testing.assert_close(found, want, atol=1e-12, rtol=1e-12)
    weight = torch.randn_like(want)
    want_grads, grads = (torch.autograd.grad((out * weight).sum(), inputs) for out in (want, found))
    for grad, expected in zip(grads, want_grads, strict=True):
        torch.testing.assert_close(grad, expected, atol=atol, rtol=atol)


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (6, 2), (3, 1)])
def test_cascade_equals_dense_attention(heads: int, kv_heads: int) -> None:
    check_equals_dense(forked(), heads, kv_heads, atol=1e-12)


def test_cascade_of_long_segments_equals_dense_attention() -> None:
    check_equals_dense(forked(scale=90), 2, 1, atol=1e-11)  # longer than the kernels' blocks and than LONG


def test_cascade_computes_each_visible_pair_once_and_nothing_else() -> None:
    trie = forked(scale=90)
    plan = TreePlan(trie)
    seen = np.zeros((len(trie.token_ids),) * 2, dtype=int)
    segments, crossings = plan.cascade
    for start, end in segments:
        seen[start:end, start:end] += np.tril(np.ones((end - start,) * 2, dtype=int))
    for queries, keys in crossings:
        for q in queries:
            for k in keys:
                seen[slice(*q), slice(*k)] += 1
    place = np.arange(len(seen))
    visible = (place[None] <= place[:, None]) & (place[:, None] < trie.subtree_end[None])
    np.testing.assert_array_equal(seen, visible)
    assert len({keys for _, keys in crossings}) == len(crossings)  # siblings attend together


@pytest.mark.parametrize("scale", [30, 90])  # all segments short; some long
def test_cascade_in_bfloat16_is_no_worse_than_torchs(scale: int) -> None:
    # The merge's weights are float32: with bfloat16 ones the error would grow and be biased.
    trie = forked(scale)
    rough = [x.detach().bfloat16().requires_grad_() for x in states(trie, 4, 2)]
    weight = torch.randn(rough[0].shape).bfloat16()

    def results(attend: Any, inputs: list[Tensor]) -> list[Tensor]:
        out = attend(*inputs, trie, 0.7)
        assert out.dtype == inputs[0].dtype
        return [out.detach(), *torch.autograd.grad((out * weight).sum(), inputs)]

    want = results(dense, [x.detach().double().requires_grad_() for x in rough])
    for found, torchs, exact in zip(results(packed, rough), results(dense, rough), want, strict=True):
        assert (found.double() - exact).norm() <= (torchs.double() - exact).norm()


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning")
def test_flex_forward_equals_the_cascade() -> None:
    trie = forked(scale=30)
    inputs = [x.detach() for x in states(trie, 4, 2, torch.float32)]
    with torch.no_grad():
        found = flex(*inputs, TreePlan(trie), 0.7)  # type: ignore[call-arg]
    torch.testing.assert_close(found, packed(*inputs, trie, 0.7), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("scale", [1, 5, 18, 30, 90])
def test_the_block_mask_is_that_of_all_entries(scale: int) -> None:
    from torch.nn.attention.flex_attention import create_block_mask

    trie = forked(scale)
    end, size = torch.from_numpy(trie.subtree_end), len(trie.token_ids)
    want = create_block_mask(lambda b, h, q, k: (k <= q) & (q < end[k]), None, None, size, size, device="cpu")
    found = TreePlan(trie).block_mask
    assert found.shape == want.shape and torch.equal(found.to_dense(), want.to_dense())
    assert torch.equal(found.full_kv_num_blocks, want.full_kv_num_blocks)
    for kind in ("kv", "full_kv", "q", "full_q"):
        counts, ours, theirs = (
            getattr(found, f"{kind}_num_blocks"),
            *(getattr(mask, f"{kind}_indices")[0, 0] for mask in (found, want)),
        )
        assert torch.equal(counts, getattr(want, f"{kind}_num_blocks"))
        assert all(torch.equal(a[:n], b[:n]) for n, a, b in zip(counts.flatten(), ours, theirs, strict=True))
    assert scale < 90 or int(found.full_kv_num_blocks.sum()) > 5


def test_flex_attention_may_be_compiled_for_many_shapes_before_torch_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch._dynamo.config, "recompile_limit", 8)
    trie_attention._flex_kernel.__wrapped__("cpu")
    assert torch._dynamo.config.recompile_limit == 64


@pytest.mark.gpu
def test_flex_on_a_gpu_has_the_cascades_gradient() -> None:
    for trie in (forked(scale=30), forked(scale=41)):  # two lengths, one compilation
        on_cpu = [x.detach().requires_grad_() for x in states(trie, 4, 2, torch.float32)]
        on_gpu = [x.detach().cuda().requires_grad_() for x in on_cpu]
        weight = torch.randn(on_cpu[0].shape)
        want = packed(*on_cpu, trie, 0.7)  # type: ignore[call-arg]
        found = flex(*on_gpu, TreePlan(trie, "cuda"), 0.7)  # type: ignore[call-arg]
        torch.testing.assert_close(found.cpu(), want, atol=2e-3, rtol=2e-3)
        want_grads = torch.autograd.grad((want * weight).sum(), on_cpu)
        for grad, expected in zip(torch.autograd.grad((found * weight.cuda()).sum(), on_gpu), want_grads, strict=True):
            torch.testing.assert_close(grad.cpu(), expected, atol=5e-3, rtol=5e-3)


@pytest.mark.parametrize(
    ("asked", "said"),
    [({"sliding_window": 4}, "sliding_window"), ({"softcap": 30.0}, "softcap"), ({"dropout": 0.1}, "dropout")],
)
def test_tree_attention_refuses_what_is_not_plain(asked: dict[str, Any], said: str) -> None:
    trie = forked()
    with pytest.raises(ModelError, match=f"packed attention must be plain; got .*{said}"):
        tree_attention(torch.nn.Module(), *states(trie, 4, 2), None, tree=TreePlan(trie), **asked)  # type: ignore[misc]


def test_tree_attention_of_gives_the_model_back_as_it_was() -> None:
    model = tiny_llama()
    before = model.config._attn_implementation
    with pytest.raises(KeyError), tree_attention_of(model):
        assert model.config._attn_implementation == NAME != before
        raise KeyError
    assert model.config._attn_implementation == before
