"""From last hidden states to logits, as a model's own forward pass computes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig


def head_of(model: Any) -> Callable[[Tensor], Tensor]:
    """`[..., V]` logits of the last hidden states `[..., d]` of a transformers causal LM, as a function.

        logits = c tanh(scale * head(hidden) / c)

    The scale (1 by default) and the cap c (infinite by default) come from the config: Granite divides by
    `logits_scaling`, Cohere and Falcon-H1 multiply, Gemma and RecurrentGemma cap. A trial shows whether a model does
    anything else.
    """
    config, head = model.config.get_text_config(), model.get_output_embeddings()
    divisor = getattr(config, "logits_scaling", None)
    cap = getattr(config, "final_logit_softcapping", None) or getattr(config, "logits_soft_cap", None)
    factors = [getattr(config, name, None) for name in ("logit_scale", "lm_head_multiplier")]

    def logits_of(hidden: Tensor) -> Tensor:
        logits: Tensor = head(hidden)
        if divisor is not None:
            logits = logits / divisor
        for factor in factors:
            if factor is not None:
                logits = logits * factor
        return logits if cap is None else torch.tanh(logits / cap) * cap

    return logits_of


def context_of(model: Any) -> int:
    """Maximum number of tokens in a sequence: the model's positions, as long as their encoding does not change.

    With `longrope` (Phi-3 128k) the rotary frequencies of all tokens change when a sequence outgrows the original
    context, which would make cached keys wrong. Sequences end there.
    """
    return _context_in(model.config)


def context_at(checkpoint: Path) -> int:
    """`context_of` a checkpoint, by name or path, from its config; 0 if that cannot be read."""
    try:
        return _context_in(AutoConfig.from_pretrained(checkpoint))
    except (OSError, ValueError):
        return 0


def _context_in(whole: Any) -> int:
    config = whole.get_text_config()
    context = int(getattr(config, "max_position_embeddings", None) or 1 << 30)
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") == "longrope":
        context = min(context, int(rope.get("original_max_position_embeddings") or context))
    return context
