"""LoRA by peft: adding adapters, finding the model below them, merging them."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import torch

from agentq.config import SEEDS


def with_adapters(model: Any, rank: int, *, seed: int) -> Any:
    """A peft model over `model`: rank-`rank` adapters with alpha = 2 * rank on all linear layers except the head.

    `seed` draws the first factor; the second is 0, so the model's outputs are unchanged at first.

    Raises:
        ValueError: for a seed outside [0, 2^32).

    Source: Hu et al. 2021, arXiv:2106.09685; alpha = 2 * rank is ours.
    """
    if not 0 <= seed < SEEDS:
        raise ValueError(f"seed must be in [0, {SEEDS}); got {seed}")
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=rank, lora_alpha=2 * rank, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    with torch.random.fork_rng(), warnings.catch_warnings():
        # peft reads an attribute that transformers has renamed
        warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing", category=FutureWarning)
        torch.manual_seed(seed)
        return get_peft_model(model, config)


def base_of(model: Any) -> Any:
    """The transformers causal LM itself, with adapters inside if there are any."""
    return model.get_base_model() if hasattr(model, "merge_and_unload") else model


def merged(model: Any, *, in_place: bool = False) -> Any:
    """The model with adapters merged into its weights: a copy if there are adapters, else the model itself."""
    if not hasattr(model, "merge_and_unload"):
        return model
    return (model if in_place else copy.deepcopy(model)).merge_and_unload()
