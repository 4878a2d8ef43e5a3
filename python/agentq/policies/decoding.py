"""One batch of prompts from the first token to the last end token: draws, patterns, ends. Independent of the model."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from agentq.policies.columns import Columns
from agentq.policies.masks import Masks
from agentq.policies.protocol import SampledAnswer
from agentq.policies.renderer import Renderer
from agentq.types import StopReason


class Decoding:
    """`B` prompts with `K` samples each."""

    def __init__(
        self, renderer: Renderer, seeds: list[int], k: int, max_new_tokens: int, *, masks: Masks | None, version: int
    ) -> None:
        """`seeds` `[B]`, one per prompt; `masks` restrict the samples to patterns; `version` is recorded in them."""
        self.renderer, self.k, self.max_new_tokens = renderer, k, max_new_tokens
        self.masks, self.version = masks, version
        uniforms = [np.random.Generator(np.random.Philox(key=s)).random((max_new_tokens, k)) for s in seeds]
        self.uniforms = torch.from_numpy(np.stack(uniforms))  # [B, max_new_tokens, K]
        self.tokens = np.zeros((len(seeds), k, max_new_tokens), dtype=np.int32)
        self.logps = np.zeros((len(seeds), k, max_new_tokens), dtype=np.float32)
        self.counts = np.zeros((len(seeds), k), dtype=np.int64)
        self.ended = np.zeros((len(seeds), k), dtype=bool)

    def run(
        self, columns: Columns, prompts: list[np.ndarray], known: list[list[Tensor]], temperature: float
    ) -> list[list[SampledAnswer]]:
        """The samples of `prompts` `[B]`, whose `known` prefixes are computed already."""
        # 1. Prefill.
        logits = columns.begin(prompts, known, self.k)
        rows = np.arange(len(prompts))  # rows that are still decoded
        uniforms = self.uniforms.to(logits.device)
        for t in range(self.max_new_tokens):
            # 2. Sample one token per column and record it.
            allowed = logits if self.masks is None else self.masks.hold(logits, rows, self.ended[rows])
            token, logp = sample_tokens(allowed, logits, uniforms[rows, t], temperature)
            alive = self._record(rows, t, token, logp)
            if t + 1 == self.max_new_tokens or not alive.any():
                break
            # 3. Once many rows have ended in all columns, drop them.
            if alive.mean() < 0.7:
                kept = torch.from_numpy(alive.nonzero()[0]).to(token.device)
                columns.keep(kept)
                rows, token = rows[alive], token[kept]
            # 4. One forward pass.
            logits = columns.step(token)
        return [[self._sampled(row, col) for col in range(self.k)] for row in range(len(prompts))]

    def _record(self, rows: np.ndarray, t: int, token: Tensor, logp: Tensor) -> np.ndarray:
        """Write the t-th tokens of columns that have not ended; returns which rows still have such a column."""
        live, tokens = ~self.ended[rows], token.cpu().numpy()
        if self.masks is not None:
            self.masks.take(rows, tokens, ~live)
        self.tokens[rows, :, t] = tokens
        self.logps[rows, :, t] = logp.cpu().numpy()
        self.counts[rows] += live
        self.ended[rows] |= np.isin(tokens, self.renderer.end_ids)
        alive: np.ndarray = ~self.ended[rows].all(axis=1)
        return alive

    def _sampled(self, row: int, col: int) -> SampledAnswer:
        n = int(self.counts[row, col])
        reason = StopReason.EOS if self.ended[row, col] else StopReason.LENGTH
        tokens = self.tokens[row, col, :n].copy()
        return SampledAnswer(
            self.renderer.decode(tokens), tokens, self.logps[row, col, :n].copy(), reason, self.version
        )


def sample_tokens(allowed: Tensor, logits: Tensor, uniform: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Tokens `[B, K]` drawn from `allowed` by inverse transform sampling, and their logps at temperature 1."""
    logps = torch.log_softmax(logits, dim=-1)
    if temperature == 0:
        token = allowed.argmax(dim=-1)
    else:
        cumulative = torch.softmax(allowed / temperature, dim=-1).double().cumsum(dim=-1)
        target = uniform[..., None] * cumulative[..., -1:]
        token = torch.searchsorted(cumulative, target, right=True)[..., 0].clamp_max(logits.shape[-1] - 1)
        if allowed is not logits:  # rounding must not pass the last allowed token
            token = token.minimum(logits.shape[-1] - 1 - allowed.flip(-1).isfinite().int().argmax(dim=-1))
    return token, logps.gather(-1, token[..., None])[..., 0]
