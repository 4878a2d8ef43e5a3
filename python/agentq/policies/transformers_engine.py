"""Batched sampling from a transformers causal LM: prompts in, token ids and log-probabilities out."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from agentq.agent.prompts import Messages
from agentq.errors import ModelError
from agentq.policies import attention
from agentq.policies.batches import Batches
from agentq.policies.decoding import Decoding
from agentq.policies.head import context_of
from agentq.policies.masks import Masks, Vocabulary
from agentq.policies.prefix import BLOCK, PrefixCache
from agentq.policies.protocol import Gives, Prompt, SampledAnswer, SampleRequest
from agentq.policies.renderer import Renderer
from agentq.policies.trial import choose_columns
from agentq.policies.usage import Usage
from agentq.policies.weights import check_shapes, load_weights, shapes_of
from agentq.types import History


class TransformersEngine:
    """`Engine` over a causal LM, by name or path, on one device.

    `shares_columns`: whether the samples of a prompt are computed as columns of one row, with a prefix cache. A trial
    of the model decides. A model that does not accept the masks is computed prompt by prompt, several times slower.
    """

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
        """At most `max_rows` prompts are computed together; cached prefixes use at most `prefix_cache_bytes` (0: none).

        Raises:
            ModelError: if the checkpoint cannot be loaded, or decoding does not give the model's own logits.
        """
        self.model, tokenizer = load_checkpoint(model, device=device, dtype=dtype)
        self.model.eval()
        self.name = f"hf:{model}"
        self.device = torch.device(device)
        self.max_rows = max_rows
        self.version = 0
        self.usage = Usage()
        self._columns, self.shares_columns = choose_columns(self.model)
        self.prefixes = PrefixCache(prefix_cache_bytes if self.shares_columns else 0)
        eos = self.model.generation_config.eos_token_id
        eos = tokenizer.eos_token_id if eos is None else eos
        if eos is None:
            raise ModelError(f"the checkpoint must name an eos token; got none in {model}")
        ends = [eos] if isinstance(eos, int) else list(eos)
        self.renderer = Renderer(tokenizer, ends, context_of(self.model))
        self._batches = Batches(self._answer)
        self._vocabulary: Vocabulary | None = None

    def render(self, history: History, compose: Callable[[History], Messages], *, max_new_tokens: int) -> Prompt:
        """See `Engine.render`."""
        return self.renderer.render(history, compose, max_new_tokens=max_new_tokens)

    def encode_answer(self, text: str) -> np.ndarray:
        """See `Engine.encode_answer`."""
        return self.renderer.encode_answer(text)

    async def sample(self, request: SampleRequest) -> list[SampledAnswer]:
        """See `Engine.sample`; waiting requests are computed together."""
        return await self._batches.submit((request.k, request.temperature, request.max_new_tokens), request)

    def _answer(self, requests: list[SampleRequest], queue_s: list[float]) -> list[list[SampledAnswer]]:
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
        """The tokens that patterns are matched on."""
        if self._vocabulary is None:
            width = int(self.model.get_output_embeddings().weight.shape[0])
            self._vocabulary = Vocabulary(self.renderer.tokenizer, self.renderer.end_ids, width)
        return self._vocabulary

    def publish(self, checkpoint: Path | Mapping[str, Tensor]) -> int:
        """See `Engine.publish`; in place, from a checkpoint or from weights by the model's own names."""
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
    ) -> list[list[SampledAnswer]]:
        """`k` samples of each prompt, in batches of similar length.

        Args:
            prompts: `[B]` arrays of int32 ids, each at least one token and short enough for the context.
            k: samples per prompt, at least 1.
            seeds: `[B]`; a sample depends only on its prompt, k, seed and the weights (up to rounding).
            temperature: at least 0; 0 takes the likeliest token.
            max_new_tokens: limit for each sample.
            roles: `[B]` accounts that usage is counted for; by default the policy.
            patterns: `[B]`; see `SampleRequest.pattern`.

        Raises:
            ModelError: if a prompt is empty or leaves no room for max_new_tokens in the context, or a pattern cannot be
                read.
            MissingExtra: for a pattern without llguidance.
        """
        if k < 1 or temperature < 0 or len(seeds) != len(prompts):
            raise ValueError(
                f"k must be >= 1, temperature >= 0, one seed per prompt; got {k}, {temperature}, {len(seeds)} seeds"
            )
        for prompt in prompts:
            self.renderer.check(prompt, max_new_tokens)
        start = time.perf_counter()
        known = [self.prefixes.find(prompt) for prompt in prompts]
        order = sorted(range(len(prompts)), key=lambda i: (len(prompts[i]) - BLOCK * len(known[i]), len(prompts[i])))
        results: list[list[SampledAnswer]] = [[] for _ in prompts]
        held = list(patterns or [""] * len(prompts))
        with torch.inference_mode():
            for first in range(0, len(order), self.max_rows):
                rows = order[first : first + self.max_rows]
                masks = Masks(self.vocabulary, [held[i] for i in rows], k) if any(held[i] for i in rows) else None
                batch = Decoding(
                    self.renderer, [seeds[i] for i in rows], k, max_new_tokens, masks=masks, version=self.version
                )
                columns = self._columns(self.prefixes)
                found = batch.run(columns, [prompts[i] for i in rows], [known[i] for i in rows], temperature)
                for i, samples in zip(rows, found, strict=True):
                    results[i] = samples
        self.usage.seconds += time.perf_counter() - start
        for i, role in enumerate(roles or ["policy"] * len(prompts)):
            tally = self.usage.of(role)
            tally.requests += 1
            tally.prompt_tokens += len(prompts[i])
            tally.cached_tokens += BLOCK * len(known[i])
            tally.generated_tokens += sum(len(sample.token_ids) for sample in results[i])
        return results


def load_checkpoint(path: str | Path, *, device: str, dtype: torch.dtype | str) -> tuple[Any, Any]:
    """Model and tokenizer of a Hugging Face checkpoint; Raises ModelError if one is missing or they do not fit."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(path)
        model, told = AutoModelForCausalLM.from_pretrained(path, dtype=dtype, output_loading_info=True)
        model = model.to(device)
    except Exception as error:  # damaged files raise bare exceptions of safetensors and tokenizers
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(f"the model must be a transformers checkpoint by name or path; got {path}: {first}") from error
    if absent := sorted(told["missing_keys"]):  # transformers would initialise them at random
        first = f"{path} without {len(absent)}, such as {absent[0]}"
        raise ModelError(f"the checkpoint must hold every weight; got {first}")
    if model.config._attn_implementation == "sdpa":  # otherwise the model has attention that SDPA cannot compute
        model.set_attn_implementation(attention.NAME)
    size = model.get_input_embeddings().weight.shape[0]
    if len(tokenizer) > size:
        raise ModelError(
            f"the tokenizer must fit the model: it has {len(tokenizer)} tokens, the embedding {size} rows; got {path}"
        )
    return model, tokenizer
