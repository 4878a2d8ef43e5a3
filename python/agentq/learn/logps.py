"""Log-probabilities of action tokens under a transformers causal LM: the head runs on their rows alone."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from agentq.errors import ModelError
from agentq.learn.adapters import base_of
from agentq.learn.batch import MicroBatch, Part

CHUNK_ELEMENTS = 1 << 25  # logits held at once


def action_logps(model: Any, batch: MicroBatch) -> Tensor:
    """`[M]` log-probability of each action token, in nats, float32 (float64 for a float64 model), at temperature 1."""
    base = base_of(model)
    # Plain causal attention needs no mask and no positions, and takes the fastest kernel without them.
    extra = {}
    if batch.attention_mask is not None:
        extra = {"attention_mask": batch.attention_mask, "position_ids": batch.position_ids}
    hidden = base.get_decoder()(input_ids=batch.input_ids, use_cache=False, **extra).last_hidden_state
    rows = hidden.flatten(0, 1).index_select(0, batch.predictors)
    head = base.get_output_embeddings()
    chunk = max(1, CHUNK_ELEMENTS // head.weight.shape[0])
    if len(rows) <= chunk:
        return token_logps(head, rows, batch.targets)
    return torch.cat(
        [
            checkpoint(token_logps, head, rows[i : i + chunk], batch.targets[i : i + chunk], use_reentrant=False)
            for i in range(0, len(rows), chunk)
        ]
    )


def token_logps(head: Any, rows: Tensor, targets: Tensor) -> Tensor:
    """`[M]` log softmax of `head(rows)` `[M, V]` at `targets` `[M]`, in at least float32."""
    logits: Tensor = head(rows)
    logits = logits if logits.dtype == torch.float64 else logits.float()
    return logits.gather(-1, targets[:, None])[:, 0] - logits.logsumexp(dim=-1)


def padded(part: Part, batch: MicroBatch, logps: Tensor) -> Tensor:
    """`[S, T]` of a part from the `[M]` of one of its batches; 0 where that batch has no token."""
    empty = logps.new_zeros(part.action_mask.shape)
    return empty.index_put((batch.samples, batch.columns), logps)


def can_share_prompts(model: Any) -> bool:
    """Whether several actions may follow one prompt in a row: needs SDPA (for our mask) and only full attention."""
    config = base_of(model).config
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    return kinds == {"full_attention"} and str(config._attn_implementation).endswith("sdpa")


def check_head(model: Any) -> None:
    """Refuse models whose logits are more than head(hidden): scaled or capped, for instance.

    Raises:
        ModelError: if a short forward pass shows a difference.
    """
    base = base_of(model)
    ids = torch.tensor([[0, 1]], device=base.get_input_embeddings().weight.device)
    with torch.no_grad():
        whole = base(input_ids=ids, use_cache=False).logits.float()
        ours = base.get_output_embeddings()(
            base.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state
        ).float()
    if getattr(base.config, "final_logit_softcapping", None) or not torch.allclose(whole, ours, rtol=1e-2, atol=1e-2):
        raise ModelError(
            f"a model's logits must be its output embedding of the last hidden state; got {type(base).__name__}, "
            f"which differs by {float((whole - ours).abs().max()):.3g}"
        )
