"""Sampling from a transformers causal LM: prompts in, token ids and log-probabilities out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from agentq.agent.prompts import Messages
from agentq.errors import ModelError, says_no_memory
from agentq.policies.adapters import Switch, load_adapter, read_adapter, with_adapters
from agentq.policies.decoding import Decoding, Limit
from agentq.policies.fence import beyond_rows
from agentq.policies.head import context_of
from agentq.policies.llama import type_on_cpu
from agentq.policies.masks import Vocabulary
from agentq.policies.placement import told
from agentq.policies.prefix import PrefixCache
from agentq.policies.protocol import Gives, Prompt, SampledAnswer, SampleRequest
from agentq.policies.renderer import Renderer, end_ids_of, load_tokenizer
from agentq.policies.saved import without_bars
from agentq.policies.stepping import Stepping
from agentq.policies.trial import choose_columns
from agentq.policies.usage import Usage
from agentq.policies.weights import TIED, check_shapes, is_adapter, load_weights, shapes_of
from agentq.types import History


class TransformersEngine:
    """`Engine` over a causal LM, by name or path, on one device.

    `shares_columns`: whether requests are computed together and with a prefix cache (`columns.SharedColumns`). A trial
    of the model decides. Otherwise prompts are computed one by one, which is several times slower.
    """

    gives = Gives.TOKEN_IDS | Gives.LOGPS | Gives.SEEDS | Gives.PATTERNS | Gives.LETTERS | Gives.BASE

    def __init__(
        self,
        model: str | Path,
        *,
        device: str = "cpu",
        dtype: torch.dtype | str = "auto",
        attention: str = "auto",
        context: int = 0,
        max_rows: int = 32,
        prefix_cache_bytes: int = 512 << 20,
        **rendering: Any,
    ) -> None:
        """Load a checkpoint and try how it can be decoded.

        Args:
            device: where it runs, as torch names it.
            dtype: type of the weights; "auto": the checkpoint's own, on a CPU that of `type_on_cpu`.
            attention: implementation in transformers; "auto": its own choice.
            context: tokens of a prompt and its answer; 0: as many as the model supports.
            max_rows: number of prompts computed at once; halved when memory does not suffice.
            prefix_cache_bytes: size of the prefix cache, which takes what some 48 prompts need; 0 disables it.
            rendering: `template` and `date`, see `Renderer`.

        Raises:
            ModelError: if the checkpoint cannot be loaded, or decoding does not give the model's own logits.
        """
        self.model, tokenizer = load_checkpoint(model, device=device, dtype=dtype, attention=attention)
        self.model.eval()
        self.name = f"hf:{model}"
        self.device = torch.device(device)
        self.limit = Limit(max_rows)
        self.version = 0
        self.usage = Usage()
        self._peft: Any = None  # the model with an adapter, once one is published
        self._prefix_cache_bytes = prefix_cache_bytes
        self._choose_columns()
        ends = end_ids_of(tokenizer, self.model.generation_config)
        if not ends:
            raise ModelError(f"the checkpoint must name an eos token; got none in {model}")
        most = context_of(self.model)
        self.renderer = Renderer(tokenizer, ends, min(context or most, most), **rendering)
        self._stepping = Stepping(self._decoding)
        self._vocabulary: Vocabulary | None = None

    @property
    def told(self) -> dict[str, Any]:
        """Where and how the model runs, for env.json."""
        return told(self.model)

    def render(self, history: History, compose: Callable[[History], Messages], *, max_new_tokens: int) -> Prompt:
        """See `Engine.render`."""
        return self.renderer.render(history, compose, max_new_tokens=max_new_tokens)

    def encode_answer(self, text: str) -> np.ndarray:
        """See `Engine.encode_answer`."""
        return self.renderer.encode_answer(text)

    async def sample(self, request: SampleRequest) -> list[SampledAnswer]:
        """See `Engine.sample`. Concurrent requests are computed together."""
        self.renderer.check(request.prompt.ids, request.max_new_tokens)
        if self._peft is None and not request.adapted:
            request = replace(request, adapted=True)  # the same weights, so one prefix cache serves both
        return await self._stepping.submit(request, self.version)

    def _choose_columns(self, switch: Switch | None = None) -> None:
        make_columns, self.shares_columns = choose_columns(self.model, switch)
        self.prefixes = PrefixCache(self._prefix_cache_bytes if self.shares_columns else 0)
        self._columns = make_columns(self.prefixes)

    def _decoding(self) -> Decoding:
        return Decoding(
            self._columns,
            self.renderer,
            self.usage,
            limit=self.limit,
            matcher=lambda pattern: self.vocabulary.matcher(pattern),
        )

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary for patterns, built on first use."""
        if self._vocabulary is None:
            width = int(self.model.get_output_embeddings().weight.shape[0])
            self._vocabulary = Vocabulary(self.renderer.tokenizer, self.renderer.end_ids, width)
        return self._vocabulary

    def publish(self, checkpoint: Path | Mapping[str, Tensor]) -> int:
        """See `Engine.publish`. Also accepts weights by the names of the model's state dict."""
        if isinstance(checkpoint, Path) and is_adapter(checkpoint):
            return self.publish_adapter(*read_adapter(checkpoint))
        weights = checkpoint if isinstance(checkpoint, Mapping) else self._weights_of(checkpoint)
        check_shapes(shapes_of(weights), shapes_of(self.model.state_dict()), like=self.name)
        self.model.load_state_dict(weights, strict=False)
        self._columns.load()
        self.prefixes.clear()
        self.version += 1
        return self.version

    def _weights_of(self, checkpoint: Path) -> Mapping[str, Tensor]:
        """A checkpoint's weights by the names of the model, which may not be those of its files (experts)."""
        weights = load_weights(checkpoint)
        if weights.keys() - TIED == self.model.state_dict().keys() - TIED:
            return weights
        with without_bars(), suppress(OSError, ValueError, RuntimeError):  # the files' names are then told to be wrong
            dtype = self.model.get_input_embeddings().weight.dtype
            loaded, info = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=dtype, output_loading_info=True)
            if not any(info.values()):
                return dict(loaded.state_dict())
        return weights

    def publish_adapter(self, weights: Mapping[str, Tensor], rank: int) -> int:
        """Serve an adapter over the first weights. Requests with `adapted=False` still get the first weights.

        Raises:
            ModelError: if it does not fit the model, or an adapter of another rank was published before.
        """
        if self._peft is None:
            adapted = with_adapters(self.model, rank, seed=0).eval()
            try:
                load_adapter(adapted, weights)
            except ModelError:
                adapted.unload()
                raise
            self._peft = adapted
            self._choose_columns(Switch(adapted))
        else:
            load_adapter(self._peft, weights)
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
        """`k` samples per prompt.

        Args:
            prompts: `[B]` arrays of int32 ids, with at least one token each and short enough for the context.
            k: samples per prompt, at least 1.
            seeds: `[B]`; a sample depends only on its prompt, k, seed and the weights (up to rounding).
            temperature: at least 0; 0 takes the likeliest token.
            max_new_tokens: limit per sample.
            roles: `[B]` accounts to which usage is counted; by default the policy.
            patterns: `[B]`; see `SampleRequest.pattern`.

        Raises:
            ModelError: if a prompt is empty or leaves no room for max_new_tokens in the context, or a pattern is
                invalid.
            MissingExtra: if there are patterns and llguidance is not installed.
        """
        if k < 1 or temperature < 0 or len(seeds) != len(prompts):
            raise ValueError(
                f"k must be >= 1, temperature >= 0, one seed per prompt; got {k}, {temperature}, {len(seeds)} seeds"
            )
        for prompt in prompts:
            self.renderer.check(prompt, max_new_tokens)
        decoding, most = self._decoding(), max_new_tokens
        given = zip(prompts, seeds, roles or ["policy"] * len(prompts), patterns or [""] * len(prompts), strict=True)
        answers = [
            decoding.add(SampleRequest(Prompt([], ids), k, seed, temperature, most, role, pattern), self.version)
            for ids, seed, role, pattern in given
        ]
        while decoding.waiting or decoding.rows:
            decoding.step()
        return [answering.samples for answering in answers]


def load_checkpoint(
    path: str | Path, *, device: str, dtype: torch.dtype | str, attention: str = "auto"
) -> tuple[Any, Any]:
    """Model and tokenizer of a Hugging Face checkpoint, on a CPU with dtype "auto" in the type of `type_on_cpu`.

    Raises ModelError if one is missing or they do not match.
    """
    chosen = {} if attention == "auto" else {"attn_implementation": attention}
    if torch.device(device).type == "cuda":
        # On Hopper GPUs torch prefers cuDNN's attention, which builds a kernel for each new length, for up to 0.4 s.
        torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        tokenizer = load_tokenizer(path)
        with without_bars():
            model, info = AutoModelForCausalLM.from_pretrained(path, dtype=dtype, output_loading_info=True, **chosen)
        model = model.to(device, type_on_cpu(model) if device == "cpu" and dtype == "auto" else None)
    except Exception as error:  # damaged files raise bare exceptions of safetensors and tokenizers
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        if says_no_memory(error):
            raise MemoryError(f"{path}: {first}") from error
        served = "" if Path(path).exists() else ", or a server's, https://HOST/v1#MODEL"
        must = f"the model must be a transformers checkpoint by name or path{served}"
        raise ModelError(f"{must}; got {path}: {first}") from error
    if absent := sorted(info["missing_keys"]):  # transformers would initialise them at random
        first = f"{path} without {len(absent)}, such as {absent[0]}"
        raise ModelError(f"the checkpoint must hold every weight; got {first}")
    size = model.get_input_embeddings().weight.shape[0]
    if beyond := beyond_rows(tokenizer, size):
        raise ModelError(
            f"the tokenizer must fit the model: it has {len(tokenizer)} tokens, the embedding {size} rows; got {path}, "
            f"where text or the template can give {beyond[0]!r}"
        )
    return model, tokenizer
