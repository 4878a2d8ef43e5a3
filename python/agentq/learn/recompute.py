"""Gradient checkpointing: only a layer's input is kept, and its forward pass is repeated in the backward pass."""

from __future__ import annotations

import copy
import weakref
from typing import Any

from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer

from agentq.errors import ModelError
from agentq.policies.adapters import base_of


def layers_of(model: Any) -> list[Any]:
    """The layers of a model's decoder, as far as transformers knows them."""
    return [m for m in base_of(model).get_decoder().modules() if isinstance(m, GradientCheckpointingLayer)]


def recompute_layers(model: Any) -> None:
    """Make the layers of a model compute their forward pass again in the backward pass.

    A layer is called again with its own arguments, which include its batch's tree plan.

    Raises:
        ModelError: if transformers does not know the model's layers.
    """
    layers = layers_of(model)
    if not layers:
        raise ModelError(f"gradient_checkpointing needs a model made of layers; got {type(base_of(model)).__name__}")
    for layer in layers:
        layer.forward = _Recomputed(layer)


class _Recomputed:
    """A layer's `forward` under `checkpoint`. Refers to the layer weakly: in a cycle, weights outlive their model."""

    def __init__(self, layer: Any) -> None:
        self.layer = weakref.ref(layer)

    def __deepcopy__(self, memo: dict[int, Any]) -> _Recomputed:
        return _Recomputed(copy.deepcopy(self.layer(), memo))  # the copy of the layer, which is being made

    def __call__(self, *args: Any, **options: Any) -> Any:
        layer: Any = self.layer()
        own = type(layer).forward
        return checkpoint(own, layer, *args, use_reentrant=False, preserve_rng_state=False, **options)
