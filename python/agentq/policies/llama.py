"""The Llama decoder, written out. It launches a third as many kernels per layer as the transformers modules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from agentq.policies import attention


class LlamaDecoder:
    """Last hidden states of a transformers Llama model, with attention by pieces.

        x += W_o attend(rope(W_q n(x)), rope(W_k n(x)), W_v n(x))        n: root mean square norm, times its weight
        x += W_down (silu(W_gate n(x)) * W_up n(x))

    Projections of the same input are one matrix product. The weights of q, k and v, and those of gate and up, become
    views of a joint tensor, so weights loaded into the model later take effect here.
    """

    def __init__(self, model: Any) -> None:
        decoder, config = model.get_decoder(), model.config
        self.embedding, self.rotary = decoder.embed_tokens, decoder.rotary_emb
        self.norm, self.eps = decoder.norm.weight, config.rms_norm_eps
        self.heads, self.key_heads = config.num_attention_heads, config.num_key_value_heads
        self.scale = decoder.layers[0].self_attn.scaling
        self.layers = [_Layer.of(layer) for layer in decoder.layers]

    @staticmethod
    def takes(model: Any) -> bool:
        """Whether the config describes this computation. A trial must still confirm it."""
        config = model.config
        plain = not (getattr(config, "attention_bias", True) or getattr(config, "mlp_bias", True))
        plain = plain and not hasattr(model, "peft_config")  # adapters are not part of the weights
        return type(model).__name__ == "LlamaForCausalLM" and plain and config.hidden_act == "silu"

    def __call__(self, input_ids: Tensor, position_ids: Tensor, pieces: attention.Pieces) -> Tensor:
        """`[T, d]` last hidden states of the tokens `[1, T]`."""
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
        return self._normed(x, self.norm)

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
