"""vLLM started and used by this process alone. For a vLLM server see `openai_engine`."""

from __future__ import annotations

import asyncio
import os
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from agentq.errors import ConfigError, ModelError, require
from agentq.policies.continuous import ContinuousEngine, EngineReply, last_line
from agentq.policies.protocol import MAX_LIKELIEST, Gives, SampledAnswer, SampleRequest, with_floor, without_tokens
from agentq.policies.renderer import load_renderer
from agentq.policies.weights import check_weights, is_adapter
from agentq.types import StopReason


class VLLMEngine(ContinuousEngine):
    """`Engine` over vLLM's AsyncLLM, which batches continuously and shares the prefill of a prompt's samples.

    A script that makes one needs `if __name__ == "__main__":`, since vLLM starts processes that import it again.
    """

    def __init__(self, model: str | Path, *, slots: int = 256, **settings: Any) -> None:
        """Start vLLM on a checkpoint, by name or path.

        Args:
            slots: number of requests that may run at the same time; vLLM decides how many it computes together.
            settings: arguments of vLLM's AsyncEngineArgs. By default weights keep the checkpoint's own type.

        Raises:
            MissingExtra: without vLLM.
            ModelError: if vLLM cannot serve the checkpoint.
        """
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
        os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
        require("vllm", extra="vllm", for_="agentq.policies.vllm_engine")
        if settings.setdefault("logprobs_mode", "raw_logprobs") != "raw_logprobs":
            raise ConfigError(f"logprobs_mode must be raw_logprobs; got {settings['logprobs_mode']}")
        renderer = load_renderer(model)
        gives = Gives.TOKEN_IDS | Gives.LOGPS | Gives.SEEDS | Gives.PATTERNS | Gives.LETTERS
        super().__init__(f"vllm:{model}", gives, renderer, slots=slots)
        self.model, self._weights = model, model
        self._requests, self._adapters = count(), count(1)
        self._adapter: Any = None  # vLLM's LoRARequest; None without an adapter
        try:
            self._llm = self._background.wait(self._start(settings))
        except Exception as error:
            self._background.close()
            raise ModelError(f"vLLM must be able to serve the model; got {model}: {last_line(error)}") from error
        renderer.context_tokens = int(self._llm.model_config.max_model_len)

    async def _start(self, settings: dict[str, Any]) -> Any:
        from transformers import AutoConfig
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.platforms import current_platform
        from vllm.v1.engine.async_llm import AsyncLLM

        own = getattr(AutoConfig.from_pretrained(self.model), "dtype", None)
        given = {"dtype": str(own).removeprefix("torch.") if own is not None else "auto", **settings}
        if current_platform.is_cpu():  # in vLLM 0.32, a seeded prompt that is prefilled in two chunks crashes
            given.setdefault("enable_chunked_prefill", False)
        return AsyncLLM.from_engine_args(AsyncEngineArgs(model=str(self.model), disable_log_stats=True, **given))

    async def _ask(self, request: SampleRequest) -> EngineReply:
        """One vLLM request per sample: for several, vLLM reports cached tokens that may be those of its siblings."""
        outputs = await asyncio.gather(*(self._generate(request, i) for i in range(request.k)))
        samples = [self._sampled(output.outputs[0], request.letters) for output in outputs]
        cached = min(output.num_cached_tokens or 0 for output in outputs)
        generated = sum(len(sample.token_ids) for sample in samples)
        if request.held:  # vLLM applies the mask before it computes log-probabilities
            samples = [without_tokens(sample) for sample in samples]
        return EngineReply(samples, len(request.prompt.ids), cached, generated)

    async def _generate(self, request: SampleRequest, index: int) -> Any:
        from vllm.sampling_params import RequestOutputKind, SamplingParams, StructuredOutputsParams

        params = SamplingParams(
            seed=(request.seed + index) % 2**62,  # must fit a signed 64-bit integer
            temperature=request.temperature,
            max_tokens=request.max_new_tokens,
            logprobs=min(len(request.letters), MAX_LIKELIEST),  # besides that of the sampled token
            detokenize=False,
            structured_outputs=StructuredOutputsParams(regex=request.held) if request.held else None,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        prompt, name = {"prompt_token_ids": request.prompt.ids.tolist()}, str(next(self._requests))
        try:
            (output,) = [o async for o in self._llm.generate(prompt, params, name, lora_request=self._adapter)]
        except Exception as error:
            raise ModelError(f"{self.name} must answer; got {last_line(error)}") from error
        return output

    def _sampled(self, output: Any, letters: str) -> SampledAnswer:
        ids = np.array(output.token_ids, dtype=np.int32)
        logps = [at[token].logprob for at, token in zip(output.logprobs, output.token_ids, strict=True)]
        reason = StopReason.EOS if output.finish_reason == "stop" else StopReason.LENGTH
        assert self.renderer is not None
        told = {token: float(likely.logprob) for token, likely in output.logprobs[0].items()}
        letter_logps = with_floor(told, self.renderer.letter_ids(letters))
        text, array = self.renderer.decode(ids), np.array(logps, dtype=np.float32)
        return SampledAnswer(text, ids, array, reason, self.version, letter_logps)

    async def _load(self, checkpoint: Path) -> None:
        """See `ContinuousEngine._load`. An adapter (peft's layout) needs `enable_lora=True` among the settings."""
        before = self._adapter
        if is_adapter(checkpoint):
            from vllm.lora.request import LoRARequest

            number = next(self._adapters)  # never reused: the prefix cache identifies adapters by it
            adapter = LoRARequest(f"agentq-{number}", number, str(checkpoint.resolve()))
            await self._llm.add_lora(adapter)
            self._adapter = adapter
        else:
            from vllm.platforms import current_platform

            check_weights(checkpoint, like=self.model, cpu=current_platform.is_cpu())
            try:
                await self._reload(checkpoint)
            except Exception:
                await self._reload(self._weights)
                raise
            self._weights, self._adapter = checkpoint, None
        if before is not None:
            await self._llm.remove_lora(before.lora_int_id)

    async def _reload(self, checkpoint: str | Path) -> None:
        await self._llm.collective_rpc("reload_weights", kwargs={"weights_path": str(checkpoint)})
        if not await self._llm.reset_prefix_cache():
            raise ModelError("vLLM must drop its prefix cache; got a refusal")

    def close(self) -> None:
        """See `Engine.close`."""
        if self._llm is not None:
            self._llm.shutdown()
            self._llm = None  # a second shutdown at the end of the process would fail
        super().close()
