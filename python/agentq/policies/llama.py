"""The Llama decoder, written out: in the core for small models on a CPU, else in torch with few kernels per layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from agentq import _core
from agentq.policies import attention
from agentq.policies.placement import multiplies_bfloat16

SMALL = 1 << 23  # weights up to which one thread is faster than torch: they fit a processor's cache


def decoder_of(model: Any) -> LlamaDecoder | SmallLlama | None:
    """The decoder of a transformers model whose config describes this computation. A trial must still confirm it.

        x += W_o attend(rope(W_q n(x)), rope(W_k n(x)), W_v n(x))        n: root mean square norm, times its weight
        x += W_down (silu(W_gate n(x)) * W_up n(x))

    Projections of the same input are one matrix product.
    """
    config, weight = model.config, model.get_input_embeddings().weight
    plain = not (getattr(config, "attention_bias", True) or getattr(config, "mlp_bias", True))
    plain = plain and not hasattr(model, "peft_config")  # adapters are not part of the weights
    if type(model).__name__ != "LlamaForCausalLM" or not plain or config.hidden_act != "silu":
        return None
    small = weight.device.type == "cpu" and weight.dtype == torch.float32 and is_small(model)
    return SmallLlama(model) if small else LlamaDecoder(model)


def type_on_cpu(model: Any) -> torch.dtype:
    """The type in which a model runs fastest on a CPU: float32 for a small one, which the core computes.

    A larger one keeps its own, but bfloat16 replaces float16, which torch multiplies on a CPU at the pace of float32.
    """
    own: torch.dtype = model.dtype
    if is_small(model):
        return torch.float32
    return torch.bfloat16 if own == torch.float16 and multiplies_bfloat16("cpu") else own


def is_small(model: Any) -> bool:
    """Whether a transformers model is a Llama with at most `SMALL` weights in its layers."""
    if type(model).__name__ != "LlamaForCausalLM":
        return False
    size: int = sum(p.numel() for p in model.get_decoder().layers.parameters())
    return size <= SMALL


class SmallLlama:
    """A small model on a CPU in float32, computed by the core with one thread."""

    def __init__(self, model: Any) -> None:
        self.model, self.key_heads = model, model.config.num_key_value_heads
        self.load()

    def load(self) -> None:
        """Copy the model's weights, which may have changed."""
        decoder, config = self.model.get_decoder(), self.model.config
        layers = [
            (
                _numbers(each.input_layernorm),
                _numbers(each.self_attn.q_proj, each.self_attn.k_proj, each.self_attn.v_proj),
                _numbers(each.self_attn.o_proj),
                _numbers(each.post_attention_layernorm),
                _numbers(each.mlp.gate_proj, each.mlp.up_proj),
                _numbers(each.mlp.down_proj),
            )
            for each in decoder.layers
        ]
        heads, scale = config.num_attention_heads, decoder.layers[0].self_attn.scaling
        self.core = _core.Llama(layers, _numbers(decoder.norm), heads, self.key_heads, config.rms_norm_eps, scale)

    def __call__(self, input_ids: Tensor, position_ids: Tensor, pieces: attention.Pieces) -> Tensor:
        """`[N, d]` last hidden states of the tokens `[1, T]` that are `pieces.last`."""
        decoder, rows = self.model.get_decoder(), pieces.pieces
        x = decoder.embed_tokens(input_ids)[0]
        cos, sin = (part[0].numpy() for part in decoder.rotary_emb(x, position_ids))  # [T, d of a head]
        like = x.new_empty(self.key_heads, 0, cos.shape[-1])
        states, counts = [p.row.array(like) for p in rows], [p.stop - p.start for p in rows]
        lengths, opens, visible = [p.length for p in rows], [p.open for p in rows], [p.own for p in rows]
        return torch.from_numpy(self.core.decode(x.numpy(), cos, sin, states, counts, lengths, opens, visible))


def _numbers(*modules: nn.Module) -> np.ndarray:
    """The weights of modules, one after another."""
    weights: list[Any] = [each.weight.data for each in modules]
    found: np.ndarray = torch.cat(weights).numpy()
    return found


class LlamaDecoder:
    """Any other model, computed by torch.

    The weights of q, k and v, and those of gate and up, become views of a joint tensor, so weights loaded into the
    model later take effect here.
    """

    def __init__(self, model: Any) -> None:
        decoder, config = model.get_decoder(), model.config
        self.embedding, self.rotary = decoder.embed_tokens, decoder.rotary_emb
        self.norm, self.eps = decoder.norm.weight, config.rms_norm_eps
        self.heads, self.key_heads = config.num_attention_heads, config.num_key_value_heads
        self.scale = decoder.layers[0].self_attn.scaling
        self.layers = [_Layer.of(layer) for layer in decoder.layers]

    def __call__(self, input_ids: Tensor, position_ids: Tensor, pieces: attention.Pieces) -> Tensor:
        """`[N, d]` last hidden states of the tokens `[1, T]` that are `pieces.last`."""
        x: Tensor = self.embedding(input_ids)[0]
        cos, sin = (part[0, :, None] for part in self.rotary(x, position_ids))  # [T, 1, d of a head]
        half = cos.shape[-1] // 2
        sin = torch.cat([-sin[..., :half], sin[..., half:]], dim=-1)
        for number, w in enumerate(self.layers):
            found = (self._normed(x, w.norm) @ w.qkv).view(len(x), -1, 2 * half)
            turned, value = found[:, : self.heads + self.key_heads], found[:, self.heads + self.key_heads :]
            turned = torch.addcmul(turned * cos, turned.roll(half, dims=-1), sin)  # rope
            query, key = turned[:, : self.heads], turned[:, self.heads :]
            query, key, value = (part.transpose(0, 1) for part in (query, key, value))
            seen = attention.attend_pieces(number, query, key, value, pieces, True, self.scale)
            x = torch.addmm(x, seen.reshape(len(x), -1), w.o)
            gate, up = (self._normed(x, w.mlp_norm) @ w.gate_up).chunk(2, dim=-1)
            x = torch.addmm(x, nn.functional.silu(gate).mul_(up), w.down)
        return self._normed(x, self.norm)[pieces.last]

    def _normed(self, x: Tensor, weight: Tensor) -> Tensor:
        return nn.functional.rms_norm(x, weight.shape, weight, self.eps)


@dataclass(frozen=True, slots=True)
class _Layer:
    """The weights of a layer, `[in, out]`: views of the model's weights."""

    norm: Tensor
    qkv: Tensor
    o: Tensor
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor

    @classmethod
    def of(cls, layer: Any) -> Self:
        a, m = layer.self_attn, layer.mlp
        return cls(
            layer.input_layernorm.weight,
            _joined(a.q_proj, a.k_proj, a.v_proj).T,
            a.o_proj.weight.T,
            layer.post_attention_layernorm.weight,
            _joined(m.gate_proj, m.up_proj).T,
            m.down_proj.weight.T,
        )


def _joined(*linear: nn.Linear) -> Tensor:
    """The weights of several linear layers as one tensor. The layers' own weights become views of it."""
    joined = torch.cat([each.weight.data for each in linear])
    start = 0
    for each in linear:
        each.weight.data = joined[start : start + each.out_features]
        start += each.out_features
    return joined
