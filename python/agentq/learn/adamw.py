"""The optimiser, and what a learner must be given for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from agentq.errors import ModelError
from agentq.policies.adapters import base_of


def adamw(parameters: Sequence[torch.nn.Parameter], learning_rate: float, weight_decay: float) -> torch.optim.AdamW:
    """AdamW that decays matrices only."""
    matrices, others = [p for p in parameters if p.ndim >= 2], [p for p in parameters if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=learning_rate, fused=True)


def check_numbers(
    learning_rate: float, max_grad_norm: float, weight_decay: float, lora_rank: int, warmup_steps: int
) -> None:
    """Raises ValueError if an argument of the learner is out of range."""
    if not learning_rate > 0 or not max_grad_norm > 0 or weight_decay < 0 or min(lora_rank, warmup_steps) < 0:
        raise ValueError(
            "learning_rate and max_grad_norm must be greater than 0, weight_decay, lora_rank and warmup_steps at least "
            f"0; got {learning_rate}, {max_grad_norm}, {weight_decay}, {lora_rank}, {warmup_steps}"
        )


def check_plain(model: Any, lora_rank: int) -> None:
    """Check that no adapter is in a model, and that it has weights to train or will get adapters.

    Raises:
        ModelError: if peft has added adapters, also to a model that another learner had, or all weights are frozen.
    """
    if hasattr(model, "merge_and_unload") or any(hasattr(module, "base_layer") for module in model.modules()):
        raise ModelError(
            f"a model must have no adapter yet; got a {type(base_of(model)).__name__} with one: load it again, or "
            "merge the adapter into it (peft's merge_and_unload)"
        )
    if not lora_rank and not any(p.requires_grad for p in model.parameters()):  # as peft leaves what it has merged
        raise ModelError(
            f"a model must have weights to train; got a {type(model).__name__} with all weights frozen: "
            "model.requires_grad_(True) frees them"
        )


def check_types(parameters: Iterable[torch.nn.Parameter]) -> None:
    """Raises ModelError for weights of 16 bits: they are rounded to 3 or 4 digits, so small steps change nothing."""
    narrow = next((p.dtype for p in parameters if p.element_size() < 4), None)
    if narrow is not None:
        raise ModelError(
            f"weights that are trained must have 32 bits; got {str(narrow).removeprefix('torch.')}, in which most "
            "steps are rounded away: load the model with dtype=torch.float32, or train adapters (lora_rank)"
        )
