"""Log-probabilities of action tokens under a transformers causal LM: the head runs only on rows that predict them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from agentq.errors import ConfigError, ModelError
from agentq.learn.batch import LossFn, MicroBatch, Part
from agentq.learn.trie import build_trie
from agentq.learn.trie_attention import TreePlan, tree_attention_of
from agentq.policies.adapters import base_of
from agentq.policies.head import head_of
from agentq.policies.trial import plain_logits, random_ids, rounding, short_window, spread_apart

CHUNK_ELEMENTS = 1 << 25  # logits held at once


def action_logps(model: Any, batch: MicroBatch, *, bf16: bool = False) -> Tensor:
    """`[M]` log-probability of each action token, in nats, float32 (float64 for a float64 model), at temperature 1.

    A packed batch must run inside `tree_attention_of`. With `bf16`, matrix products are bfloat16 (autocast).
    """
    with torch.autocast(batch.input_ids.device.type, torch.bfloat16, enabled=bf16):
        return _action_logps(base_of(model), batch)


def _action_logps(base: Any, batch: MicroBatch) -> Tensor:
    rows = predictor_states(base, batch)
    head = head_of(base)
    chunk = max(1, CHUNK_ELEMENTS // base.get_output_embeddings().weight.shape[0])
    if len(rows) <= chunk:
        return token_logps(head, rows, batch.predicted_by, batch.targets)
    found = []
    for start in range(0, len(rows), chunk):
        edges = torch.tensor([start, start + chunk], device=rows.device)
        first, last = torch.searchsorted(batch.predicted_by, edges).tolist()
        by, targets = batch.predicted_by[first:last] - start, batch.targets[first:last]
        found.append(checkpoint(token_logps, head, rows[start : start + chunk], by, targets, use_reentrant=False))
    return torch.cat(found)


def predictor_states(base: Any, batch: MicroBatch) -> Tensor:
    """`[R, d]` last hidden states of a base model at the positions that predict action tokens."""
    # Causal attention needs no mask and no positions, and without them uses the fastest kernel.
    extra = {} if batch.tree is None else {"position_ids": batch.position_ids, "tree": batch.tree}
    hidden = base.get_decoder()(input_ids=batch.input_ids, use_cache=False, **extra).last_hidden_state
    found: Tensor = hidden.flatten(0, 1).index_select(0, batch.predictors)
    return found


def token_logps(head: Any, rows: Tensor, predicted_by: Tensor, targets: Tensor) -> Tensor:
    """`[M]` log softmax of `head(rows)` `[R, V]` at (predicted_by, targets) `[M]`, in at least float32."""
    found: Tensor = _TokenLogps.apply(head(rows), predicted_by, targets)  # type: ignore[no-untyped-call]
    return found


class _TokenLogps(torch.autograd.Function):
    """The log softmax at some entries of `[R, V]`. The gradient takes one pass over the logits."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, row: Tensor, column: Tensor) -> Tensor:
        wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
        total = wide.logsumexp(dim=-1)
        ctx.save_for_backward(logits, total, row, column)
        return wide[row, column] - total[row]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        logits, total, row, column = ctx.saved_tensors
        by_row = torch.zeros_like(total).index_add_(0, row, grad)
        out = (logits - total[:, None]).exp_().mul_(-by_row[:, None])
        return out.index_put_((row, column), grad, accumulate=True).to(logits.dtype), None, None


def padded(part: Part, batch: MicroBatch, logps: Tensor) -> Tensor:
    """`[S, T]` of a part from the `[M]` of one of its batches; 0 if that batch has no token there."""
    empty = logps.new_zeros(part.action_mask.shape)
    return empty.index_put((batch.samples, batch.columns), logps)


def can_pack(model: Any) -> bool:
    """Whether packing as a trie gives the model's own logits, tested on a fork of two short sequences.

    It fails for recurrent layers, special attention, position biases and windows.
    """
    base = base_of(model)
    config = base.get_decoder().config
    kinds = set(getattr(config, "layer_types", None) or ())
    windowed = not kinds and getattr(config, "sliding_window", None) is not None  # may exceed the length of any trial
    if windowed or not kinds <= {"full_attention"} or not getattr(base, "_supports_attention_backend", False):
        return False
    device = base.get_input_embeddings().weight.device
    first, second = random_ids(base, 9, 0), random_ids(base, 7, 1)
    sequences = [first, np.concatenate([first[:4], second])]
    trie = build_trie(sequences)
    packed = {
        "position_ids": torch.from_numpy(trie.positions).to(device)[None],
        "tree": TreePlan(trie, device),
    }
    with torch.no_grad():
        alone = [_hidden(base, ids[None])[0] for ids in sequences]
        try:
            with tree_attention_of(base):
                together = _hidden(base, trie.token_ids[None], **packed)[0]
        except (ModelError, TypeError):  # needs more than plain attention, or does not pass the plan on
            return False
    gaps = [spread_apart(together[path], want) for path, want in zip(trie.paths, alone, strict=True)]
    return max(gaps) < rounding(base)


def check_forward(model: Any) -> None:
    """Refuse models whose logits do not follow from the last hidden states of a padded batch.

    Raises:
        ModelError: if two short padded sequences get other logits than each alone in the model's own forward pass.
    """
    base = base_of(model)
    rows = [random_ids(base, 9, 0), random_ids(base, 16, 1)]
    batch = np.stack([np.pad(ids, (0, 16 - len(ids))) for ids in rows])
    with torch.no_grad(), short_window(base):
        alone = [plain_logits(base, ids) for ids in rows]
        try:
            logits = head_of(base)(_hidden(base, batch)).float()
        except (AttributeError, TypeError, RuntimeError) as error:
            raise ModelError(
                f"a model must have a decoder that gives its last hidden states; got {type(base).__name__}: "
                f"{' '.join(str(error).split())[:200]}"
            ) from error
        gap = max(spread_apart(found[: len(want)], want) for found, want in zip(logits, alone, strict=True))
    if not gap < rounding(base):
        raise ModelError(
            "a model's logits must be its output embedding of the last hidden states, scaled and capped as its config "
            f"says; got {type(base).__name__}, which differs by {gap:.2g} of their spread"
        )


def _hidden(base: Any, ids: np.ndarray, **extra: Any) -> Tensor:
    """`[B, T, d]` last hidden states of `[B, T]` ids."""
    rows = torch.from_numpy(ids).to(base.get_input_embeddings().weight.device)
    found: Tensor = base.get_decoder()(input_ids=rows, use_cache=False, **extra).last_hidden_state
    return found


def backward(
    part: Part, loss_fn: LossFn, logps_of: Callable[[MicroBatch], Tensor]
) -> tuple[Tensor, Mapping[str, Tensor | float]]:
    """Add the part's gradient. A part of several batches runs forward twice, so one graph is kept at a time."""
    if len(part.batches) == 1:
        logps = padded(part, part.batches[0], logps_of(part.batches[0]))
        loss, metrics = _loss(loss_fn, part, logps)
        torch.autograd.backward(loss)
        return loss.detach(), metrics
    with torch.no_grad():
        known = [padded(part, batch, logps_of(batch)) for batch in part.batches]
    logps = torch.stack(known).sum(dim=0).requires_grad_()
    loss, metrics = _loss(loss_fn, part, logps)
    torch.autograd.backward(loss)
    assert logps.grad is not None
    for batch in part.batches:
        torch.autograd.backward(logps_of(batch), logps.grad[batch.samples, batch.columns])
    return loss.detach(), metrics


def _loss(loss_fn: LossFn, part: Part, logps: Tensor) -> tuple[Tensor, Mapping[str, Tensor | float]]:
    """The loss of a part; 0 with a gradient for a part without items, since every rank must run backward."""
    if not part.items:
        return logps.sum(), {}
    found: Any = loss_fn(part, logps)
    pair = found if isinstance(found, tuple) and len(found) == 2 else (found, None)
    loss, metrics = pair
    if not isinstance(loss, Tensor) or not isinstance(metrics, Mapping):
        got = " and ".join(type(each).__name__ for each in pair) if pair is found else type(found).__name__
        raise ConfigError(f"loss_fn must return a tensor and a dict of metrics; got {got}")
    if loss.numel() != 1:
        raise ConfigError(f"loss_fn must return a scalar; got a tensor of shape {list(loss.shape)}: sum it")
    if not loss.requires_grad:
        raise ConfigError("loss_fn must return a loss that follows from logps; got one without a gradient")
    return loss, {name: _number(name, value) for name, value in metrics.items()}


def _number(name: str, value: Any) -> Tensor | float:
    """A metric without its graph. Raises ConfigError if it is no number."""
    if isinstance(value, Tensor) and value.numel() == 1:
        return value.detach()
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        shape = getattr(value, "shape", None)
        got = type(value).__name__ if shape is None else f"{type(value).__name__} of shape {list(shape)}"
        raise ConfigError(f"a metric of loss_fn must be a number; got {name}: {got}") from None
