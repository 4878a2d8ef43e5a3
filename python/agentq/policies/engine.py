"""Batched sampling from a transformers causal LM: prompts in, token ids and log-probabilities out. Knows no agents.

The K samples of a prompt are K columns of ONE batch row: the prompt's keys and values exist once, each decoding step
feeds `[B, K]` tokens that share a position, and a mask lets each column see the prompt and its own tokens only.

    keys:      prompt p_1 .. p_T | step 1: col 1..K | step 2: col 1..K | ...
    column k:  sees p_1 .. p_len |         col k    |         col k    |

What a prompt has in common with earlier ones comes from the prefix cache; only the rest is computed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from agentq.agent.prompts import Messages
from agentq.errors import ModelError
from agentq.policies import attention
from agentq.policies.batches import Batches
from agentq.policies.masks import Masks, Vocabulary
from agentq.policies.prefix import BLOCK, PrefixCache
from agentq.policies.protocol import Gives, Prompt, Request, Sample
from agentq.policies.renderer import Renderer
from agentq.policies.usage import Usage
from agentq.policies.weights import check_shapes, load_weights, shapes_of
from agentq.types import History, StopReason


class TransformersEngine:
    """`Engine` over a causal LM, by name or path, on one device, with attention by SDPA (which takes our masks)."""

    gives = Gives.TOKEN_IDS | Gives.LOGPS | Gives.SEEDS | Gives.PATTERNS

    def __init__(
        self,
        model: str | Path,
        *,
        device: str = "cpu",
        dtype: torch.dtype | str = "auto",
        max_rows: int = 32,
        prefix_cache_bytes: int = 512 << 20,
    ) -> None:
        """`max_rows` prompts are computed at once; known prefixes take at most `prefix_cache_bytes` (0: none)."""
        self.model, tokenizer = load_checkpoint(model, device=device, dtype=dtype)
        self.model.eval()
        self.name = f"hf:{model}"
        self.device = torch.device(device)
        self.max_rows = max_rows
        self.version = 0
        self.usage = Usage()
        self.prefixes = PrefixCache(prefix_cache_bytes)
        eos = self.model.generation_config.eos_token_id
        eos = tokenizer.eos_token_id if eos is None else eos
        if eos is None:
            raise ModelError(f"the checkpoint must name an eos token; got none in {model}")
        ends = [eos] if isinstance(eos, int) else list(eos)
        self.end_ids = torch.tensor(ends, device=self.device)
        context = int(getattr(self.model.config, "max_position_embeddings", 1 << 30))
        self.renderer = Renderer(tokenizer, ends, context)
        self._batches = Batches(self._answer)
        self._vocabulary: Vocabulary | None = None

    def render(self, history: History, compose: Callable[[History], Messages], *, max_new_tokens: int) -> Prompt:
        """See `Engine.render`."""
        return self.renderer.render(history, compose, max_new_tokens=max_new_tokens)

    def encode_answer(self, text: str) -> np.ndarray:
        """See `Engine.encode_answer`."""
        return self.renderer.encode_answer(text)

    async def sample(self, request: Request) -> list[Sample]:
        """See `Engine.sample`; requests that wait together are computed together."""
        return await self._batches.submit((request.k, request.temperature, request.max_new_tokens), request)

    def _answer(self, requests: list[Request], queue_s: list[float]) -> list[list[Sample]]:
        first = requests[0]
        samples = self.generate(
            [r.prompt.ids for r in requests],
            first.k,
            seeds=[r.seed for r in requests],
            temperature=first.temperature,
            max_new_tokens=first.max_new_tokens,
            roles=[r.role for r in requests],
            patterns=[r.pattern for r in requests],
        )
        for r, waited in zip(requests, queue_s, strict=True):
            self.usage.of(r.role).queue_s += waited
        return samples

    @property
    def vocabulary(self) -> Vocabulary:
        """What patterns are matched with."""
        if self._vocabulary is None:
            width = int(self.model.get_output_embeddings().weight.shape[0])
            self._vocabulary = Vocabulary(self.renderer.tokenizer, self.renderer.end_ids, width)
        return self._vocabulary

    def publish(self, checkpoint: Path | Mapping[str, Tensor]) -> int:
        """See `Engine.publish`; in place, also from weights by the model's own names."""
        weights = checkpoint if isinstance(checkpoint, Mapping) else load_weights(checkpoint)
        check_shapes(shapes_of(weights), shapes_of(self.model.state_dict()), like=self.name)
        self.model.load_state_dict(weights, strict=False)
        self.prefixes.clear()
        self.version += 1
        return self.version

    def close(self) -> None:
        """See `Engine.close`."""
        self.prefixes.clear()

    def generate(
        self,
        prompts: Sequence[np.ndarray],
        k: int,
        *,
        seeds: Sequence[int],
        temperature: float = 1.0,
        max_new_tokens: int = 96,
        roles: Sequence[str] | None = None,
        patterns: Sequence[str] | None = None,
    ) -> list[list[Sample]]:
        """`k` samples of each prompt, in batches of similar length.

        Args:
            prompts: `[B]` arrays of int32 ids, each at least one token and short enough for the context.
            k: samples a prompt, at least 1.
            seeds: `[B]`; a sample depends on its own prompt, k, seed and the weights alone (up to rounding).
            temperature: at least 0; 0 takes the likeliest token.
            max_new_tokens: of each sample.
            roles: `[B]` whom the prompts are accounted to; all to the policy by default.
            patterns: `[B]` see `Request.pattern`.

        Raises:
            ModelError: if a prompt is empty or leaves no room for max_new_tokens in the context, or a pattern is none.
            MissingExtra: without llguidance, where there is a pattern.
        """
        if k < 1 or temperature < 0 or len(seeds) != len(prompts):
            raise ValueError(f"k >= 1, temperature >= 0, a seed a prompt; got {k}, {temperature}, {len(seeds)} seeds")
        for prompt in prompts:
            self.renderer.check(prompt, max_new_tokens)
        start = time.perf_counter()
        known = [self.prefixes.find(prompt) for prompt in prompts]
        order = sorted(range(len(prompts)), key=lambda i: (len(prompts[i]) - BLOCK * len(known[i]), len(prompts[i])))
        results: list[list[Sample]] = [[] for _ in prompts]
        held = list(patterns or [""] * len(prompts))
        with torch.inference_mode():
            for first in range(0, len(order), self.max_rows):
                rows = order[first : first + self.max_rows]
                seed = [seeds[i] for i in rows]
                batch = _Batch(self, [prompts[i] for i in rows], [known[i] for i in rows], k, seed, max_new_tokens)
                if any(held[i] for i in rows):
                    batch.masks = Masks(self.vocabulary, [held[i] for i in rows], k)
                for i, samples in zip(rows, batch.run(temperature), strict=True):
                    results[i] = samples
        self.usage.seconds += time.perf_counter() - start
        for i, role in enumerate(roles or ["policy"] * len(prompts)):
            tally = self.usage.of(role)
            tally.requests += 1
            tally.prompt_tokens += len(prompts[i])
            tally.cached_tokens += BLOCK * len(known[i])
            tally.generated_tokens += sum(len(sample.token_ids) for sample in results[i])
        return results


class _Batch:
    """One batch of B prompts with K columns each, from prefill to the last end token."""

    def __init__(
        self,
        engine: TransformersEngine,
        prompts: list[np.ndarray],
        known: list[list[Tensor]],
        k: int,
        seeds: list[int],
        max_new_tokens: int,
    ) -> None:
        self.engine, self.prompts, self.known, self.k, self.max_new_tokens = engine, prompts, known, k, max_new_tokens
        device = engine.device
        self.lengths = torch.tensor([len(prompt) for prompt in prompts], device=device)
        self.starts = [BLOCK * len(blocks) for blocks in known]
        uniforms = [np.random.Generator(np.random.Philox(key=s)).random((max_new_tokens, k)) for s in seeds]
        self.uniforms = torch.from_numpy(np.stack(uniforms)).to(device)  # [B, max_new_tokens, K]
        self.tokens = np.zeros((len(prompts), k, max_new_tokens), dtype=np.int32)
        self.logps = np.zeros((len(prompts), k, max_new_tokens), dtype=np.float32)
        self.counts = np.zeros((len(prompts), k), dtype=np.int64)
        self.ended = np.zeros((len(prompts), k), dtype=bool)
        self.masks: Masks | None = None

    def prefill(self, cache: Any) -> tuple[Tensor, Tensor]:
        """Compute what is not known of the prompts; keys are then: known prefixes, the rest, both right-padded.

        Returns:
            The last hidden state of each prompt `[B, d]`, and which keys are its own `[B, keys]`.
        """
        device, width = self.engine.device, max(self.starts)
        new = [prompt[start:] for prompt, start in zip(self.prompts, self.starts, strict=True)]
        counts = torch.tensor([len(tokens) for tokens in new], device=device)
        input_ids = torch.zeros(len(new), int(counts.max()), dtype=torch.long, device=device)
        for row, tokens in enumerate(new):
            input_ids[row, : len(tokens)] = torch.from_numpy(tokens.astype(np.int64))
        position = torch.arange(input_ids.shape[1], device=device)
        own = position < counts[:, None]
        given: dict[str, Tensor] = {}  # without prefixes: plain causal attention, where no token sees padding behind it
        if width:
            starts = torch.tensor(self.starts, device=device)
            prefix = torch.arange(width, device=device) < starts[:, None]
            causal = position <= position[:, None]
            mask = torch.cat([prefix[:, None].expand(-1, len(position), -1), causal.expand(len(new), -1, -1)], dim=-1)
            given = {"attention_mask": mask[:, None], "position_ids": starts[:, None] + position}
            own = torch.cat([prefix, own], dim=-1)
            for layer, (keys, values) in enumerate(self._prefix_states(width)):
                cache.update(keys, values, layer)
        decoder = self.engine.model.get_decoder()
        hidden = decoder(input_ids=input_ids, past_key_values=cache, use_cache=True, **given).last_hidden_state
        if self.engine.prefixes.max_bytes:
            computed = torch.stack([torch.stack([x.keys, x.values], 1)[:, :, :, width:] for x in cache.layers], 1)
            for row, prompt in enumerate(self.prompts):
                self.engine.prefixes.add(prompt, self.starts[row], computed[row])
        return hidden[torch.arange(len(new), device=device), counts - 1], own

    def _prefix_states(self, width: int) -> Tensor:
        """`[layers, 2, B, heads, width, head size]`: the known blocks of each row, zeros behind them."""
        first = next(blocks[0] for blocks in self.known if blocks)
        layers, two, heads, _, size = first.shape
        states = first.new_zeros(layers, two, len(self.known), heads, width, size)
        for row, blocks in enumerate(self.known):
            if blocks:
                states[:, :, row, :, : self.starts[row]] = torch.cat(blocks, dim=3)
        return states

    def run(self, temperature: float) -> list[list[Sample]]:
        # 1. Prefill.
        cache = attention.growing_cache()
        rows = torch.arange(len(self.lengths), device=self.engine.device)  # rows still decoding
        decoder = self.engine.model.get_decoder()
        last, prompt_mask = self.prefill(cache)
        logits = self._head(last)[:, None].expand(-1, self.k, -1)
        own = torch.eye(self.k, dtype=torch.bool, device=self.engine.device)[None]  # a column sees itself
        for t in range(self.max_new_tokens):
            # 2. Sample one token a column and note it.
            index = rows.cpu().numpy()
            allowed = logits if self.masks is None else self.masks.hold(logits, index, self.ended[index])
            token, logp = self._sample(allowed, logits, self.uniforms[rows, t], temperature)
            alive = self._record(rows, t, token, logp)
            if t + 1 == self.max_new_tokens or not alive.any():
                break
            # 3. Drop rows whose columns have all ended, once they are many.
            if alive.float().mean() < 0.7:
                keep = alive.nonzero()[:, 0]
                cache.batch_select_indices(keep)
                rows, token, prompt_mask = rows[keep], token[keep], prompt_mask[keep]
            # 4. One forward pass over [B, K] tokens that share a position.
            mask = torch.cat(
                [prompt_mask[:, None].expand(-1, self.k, -1), own.repeat(1, 1, t + 1).expand(len(rows), -1, -1)], dim=-1
            )
            position = (self.lengths[rows] + t)[:, None].expand(-1, self.k)
            hidden = decoder(
                input_ids=token,
                attention_mask=mask[:, None],
                position_ids=position,
                past_key_values=cache,
                use_cache=True,
            ).last_hidden_state
            logits = self._head(hidden)
        return [[self._sampled(row, col) for col in range(self.k)] for row in range(len(self.lengths))]

    def _head(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self.engine.model.get_output_embeddings()(hidden)
        return logits.float()

    def _sample(self, allowed: Tensor, logits: Tensor, uniform: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        """Token `[B, K]` of the `allowed` by the inverse of the cumulative distribution; its logp at temperature 1."""
        logps = torch.log_softmax(logits, dim=-1)
        if temperature == 0:
            token = allowed.argmax(dim=-1)
        else:
            cumulative = torch.softmax(allowed / temperature, dim=-1).double().cumsum(dim=-1)
            target = uniform[..., None] * cumulative[..., -1:]
            token = torch.searchsorted(cumulative, target, right=True)[..., 0].clamp_max(logits.shape[-1] - 1)
            if allowed is not logits:  # rounding leads no further than the last that is allowed
                token = token.minimum(logits.shape[-1] - 1 - allowed.flip(-1).isfinite().int().argmax(dim=-1))
        return token, logps.gather(-1, token[..., None])[..., 0]

    def _record(self, rows: Tensor, t: int, token: Tensor, logp: Tensor) -> Tensor:
        """Write the t-th tokens of columns that have not ended; returns which rows still have such a column."""
        index = rows.cpu().numpy()
        live = ~self.ended[index]
        if self.masks is not None:
            self.masks.take(index, token.cpu().numpy(), ~live)
        self.tokens[index, :, t] = token.cpu().numpy()
        self.logps[index, :, t] = logp.cpu().numpy()
        self.counts[index] += live
        self.ended[index] |= torch.isin(token, self.engine.end_ids).cpu().numpy()
        return torch.from_numpy(~self.ended[index].all(axis=1)).to(rows.device)

    def _sampled(self, row: int, col: int) -> Sample:
        n = int(self.counts[row, col])
        reason = StopReason.EOS if self.ended[row, col] else StopReason.LENGTH
        tokens = self.tokens[row, col, :n].copy()
        text = self.engine.renderer.decode(tokens)
        return Sample(text, tokens, self.logps[row, col, :n].copy(), reason, self.engine.version)


def load_checkpoint(path: str | Path, *, device: str, dtype: torch.dtype | str) -> tuple[Any, Any]:
    """Model and tokenizer of a Hugging Face checkpoint; one clear line when they are absent or do not fit together."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(path)
        model = AutoModelForCausalLM.from_pretrained(path, dtype=dtype, attn_implementation=attention.NAME).to(device)
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(f"the model must be a transformers checkpoint by name or path; got {path}: {first}") from error
    size = model.get_input_embeddings().weight.shape[0]
    if len(tokenizer) > size:
        raise ModelError(
            f"the tokenizer must fit the model: it has {len(tokenizer)} tokens, the embedding {size} rows; got {path}"
        )
    return model, tokenizer
