"""The optimiser."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def adamw(parameters: Sequence[torch.nn.Parameter], learning_rate: float, weight_decay: float) -> torch.optim.AdamW:
    """AdamW that decays matrices only."""
    matrices, others = [p for p in parameters if p.ndim >= 2], [p for p in parameters if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=learning_rate, fused=True)
