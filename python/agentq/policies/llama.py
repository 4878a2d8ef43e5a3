"""The Llama decoder, written out: in the core for small models on a CPU, else in torch with few kernels per layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from agentq import _core
from agentq.policies import attention

SMALL = 1 << 23  # weights up to which one thread is faster than torch: they fit a processor's cache


class LlamaDecoder:
    """Last hidden states of a transformers Llama model, with attention by pieces.

        x += W_o attend(rope(W_q n(x)), rope(W_k n(x)), W_v n(x))        n: root mean square norm, times its weight
        x += W_down (silu(W_gate n(x)) * W_up n(x))

    Projections of the same input are one matrix product. The weights of all layers become views of `[in, out]`
    matrices, those of q, k and v, and those of gate and up, of a joint one, so weights loaded into the model later take
    effect here. The core computes a small model on a CPU in float32, with one thread; torch computes all others.
    """

    def __init__(self, model: Any) -> None:
        decoder, config = model.get_decoder(), model.config
        self.embedding, self.rotary = decoder.embed_tokens, decoder.rotary_emb
        self.norm, self.eps = decoder.norm.weight, config.rms_norm_eps
        self.heads, self.key_heads = config.num_attention_heads, config.num_key_value_heads
        self.scale = decoder.layers[0].self_attn.scaling
        self.layers = [_Layer.of(layer) for layer in decoder.layers]
        weight, size = self.embedding.weight, sum(w.numel() for layer in self.layers for w in astuple(layer))
        self.core: _core.Llama | None = None
        if weight.device.type == "cpu" and weight.dtype == torch.float32 and size <= SMALL:
            self.core = _core.Llama(
                [tuple(w.detach().numpy() for w in astuple(layer)) for layer in self.layers],
                self.norm.detach().numpy(),
                self.heads,
                self.key_heads,
                self.eps,
                self.scale,
            )

    @staticmethod
    def takes(model: Any) -> bool:
        """Whether the config describes this computation. A trial must still confirm it."""
        config = model.config
        plain = not (getattr(config, "attention_bias", True) or getattr(config, "mlp_bias", True))
        return type(model).__name__ == "LlamaForCausalLM" and plain and config.hidden_act == "silu"

    def __call__(self, input_ids: Tensor, position_ids: Tensor, pieces: attention.Pieces) -> Tensor:
        """`[N, d]` last hidden states of the tokens `[1, T]` that are `pieces.last`."""
        x: Tensor = self.embedding(input_ids)[0]
        cos, sin = (part[0] for part in self.rotary(x, position_ids))  # [T, d of a head]
        if self.core is not None:
            return self._by_core(self.core, x, cos, sin, pieces.pieces)
        return self._by_torch(x, cos[:, None], sin[:, None], pieces)[pieces.last]

    def _by_core(
        self, core: _core.Llama, x: Tensor, cos: Tensor, sin: Tensor, pieces: Sequence[attention.Piece]
    ) -> Tensor:
        like = x.new_empty(self.key_heads, 0, cos.shape[-1])
        found = core.decode(
            x.numpy(),
            cos.numpy(),
            sin.numpy(),
            [p.row.array(like) for p in pieces],
            [p.stop - p.start for p in pieces],
            [p.length for p in pieces],
            [p.open for p in pieces],
            [p.own for p in pieces],
        )
        return torch.from_numpy(found)

    def _by_torch(self, x: Tensor, cos: Tensor, sin: Tensor, pieces: attention.Pieces) -> Tensor:
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
            _joined(a.q_proj, a.k_proj, a.v_proj),
            _joined(a.o_proj),
            layer.post_attention_layernorm.weight,
            _joined(m.gate_proj, m.up_proj),
            _joined(m.down_proj),
        )


def _joined(*linear: nn.Linear) -> Tensor:
    """The weights of linear layers as one matrix `[in, out]`. The layers' own weights become views of it."""
    joined = torch.cat([each.weight.data for each in linear]).T.contiguous()
    for each, part in zip(linear, joined.split([each.out_features for each in linear], dim=1), strict=True):
        each.weight.data = part.T
    return joined
