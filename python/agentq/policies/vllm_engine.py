"""vLLM started and used by this process alone. For a vLLM server see `openai_engine`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import date as Date
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from agentq.errors import ConfigError, ModelError, did_you_mean, require
from agentq.model_settings import ModelSettings
from agentq.policies.continuous import ContinuousEngine, EngineReply, last_line
from agentq.policies.placement import only_devices, read_devices
from agentq.policies.protocol import (
    MAX_LIKELIEST,
    Gives,
    SampledAnswer,
    SampleRequest,
    before_stop,
    with_floor,
    without_tokens,
)
from agentq.policies.renderer import DATE, load_renderer
from agentq.policies.weights import check_weights, is_adapter
from agentq.types import StopReason

ROOM_BYTES = 1 << 30  # of a GPU, left free for torch's buffers
OURS = frozenset({"model", "disable_log_stats"})  # arguments that users do not set


class VLLMEngine(ContinuousEngine):
    """`Engine` over vLLM's AsyncLLM, which batches continuously and shares the prefill of a prompt's samples.

    A script that makes one needs `if __name__ == "__main__":`, since vLLM starts processes that import it again.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        slots: int = 256,
        template: Mapping[str, Any] = MappingProxyType({}),
        date: Date = DATE,
        devices: Sequence[str] = (),
        sleep_level: int = 0,
        reserved_bytes: int = 0,
        **settings: Any,
    ) -> None:
        """Start vLLM on a checkpoint, by name or path.

        Args:
            slots: number of requests that may run at the same time; vLLM decides how many it computes together.
            template: see `Renderer`.
            date: see `Renderer`.
            devices: the GPUs to run on, such as `cuda:0`; none: vLLM's choice.
            sleep_level: what `sleep` frees: 1 moves the weights to main memory, 2 drops them, 0: nothing.
            reserved_bytes: memory per GPU that is left to others.
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
        check_arguments(settings)
        self.told = {"vllm": settings}  # for env.json
        renderer = load_renderer(model, template=template, date=date)
        gives = Gives.TOKEN_IDS | Gives.LOGPS | Gives.SEEDS | Gives.PATTERNS | Gives.LETTERS
        super().__init__(f"vllm:{model}", gives, renderer, slots=slots)
        self.model, self._weights = model, model
        self._requests, self._adapters = count(), count(1)
        self._adapter: Any = None  # vLLM's LoRARequest; None without an adapter
        self._sleep_level, self._asleep = sleep_level, False
        try:
            with only_devices(devices):
                self._llm = self._background.wait(self._start(settings | share_of(devices, reserved_bytes, settings)))
        except Exception as error:
            self._background.close()
            raise ModelError(f"vLLM must be able to serve the model; got {model}: {last_line(error)}") from error
        renderer.context_tokens = int(self._llm.model_config.max_model_len)
        from vllm.platforms import current_platform

        if not current_platform.is_cpu():  # in vLLM 0.32 on a CPU, a request without an adapter gets another one's
            self.gives |= Gives.BASE

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
        samples = [self._sampled(output.outputs[0], request) for output in outputs]
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
            detokenize=bool(request.stop),
            stop=list(request.stop) or None,
            structured_outputs=StructuredOutputsParams(regex=request.held) if request.held else None,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        adapter = self._adapter if request.adapted else None
        prompt, name = {"prompt_token_ids": request.prompt.ids.tolist()}, str(next(self._requests))
        try:
            (output,) = [o async for o in self._llm.generate(prompt, params, name, lora_request=adapter)]
        except Exception as error:
            raise ModelError(f"{self.name} must answer; got {last_line(error)}") from error
        return output

    def _sampled(self, output: Any, request: SampleRequest) -> SampledAnswer:
        ids = np.array(output.token_ids, dtype=np.int32)
        logps = [at[token].logprob for at, token in zip(output.logprobs, output.token_ids, strict=True)]
        reason = StopReason.EOS if output.finish_reason == "stop" else StopReason.LENGTH
        assert self.renderer is not None
        text, array = before_stop(self.renderer.decode(ids), request.stop), np.array(logps, dtype=np.float32)
        told = {token: float(likely.logprob) for token, likely in output.logprobs[0].items()}
        letter_logps = with_floor(told, self.renderer.letter_ids(request.letters))
        return SampledAnswer(text, ids, array, reason, self.version, letter_logps)

    def sleep(self) -> None:
        """See `Sleeper.sleep`. Does nothing with `sleep_level` 0, as on a CPU, where vLLM cannot sleep."""
        if self._sleep_level and not self._asleep:
            self._background.wait(self._llm.sleep(self._sleep_level))
            self._asleep = True

    async def _load(self, checkpoint: Path) -> None:
        if not self._asleep:
            await self._exchange(checkpoint)
            return
        await self._llm.wake_up(["weights"])
        if self._sleep_level == 2 and is_adapter(checkpoint):
            await self._reload(self._weights)  # the weights below the adapter
        await self._exchange(checkpoint)
        await self._llm.wake_up(["kv_cache"])
        self._asleep = False

    async def _exchange(self, checkpoint: Path) -> None:
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


def share_of(devices: Sequence[str], reserved_bytes: int, given: Mapping[str, Any]) -> dict[str, float]:
    """The part of each GPU's memory that vLLM may take: what is free, less `reserved_bytes` and room for buffers."""
    if "gpu_memory_utilization" in given or not devices or not devices[0].startswith("cuda"):
        return {}
    import torch

    shares = []
    for device in devices:
        free, total = torch.cuda.mem_get_info(torch.device(device))
        shares.append((free - reserved_bytes - ROOM_BYTES) / total)
    return {"gpu_memory_utilization": max(0.05, min(0.9, *shares))}


def check_arguments(given: Mapping[str, Any]) -> None:
    """Check the names of arguments for vLLM's engine against the vLLM that is installed.

    Raises:
        ConfigError: for a name that vLLM does not have, or that agentq sets itself.
        MissingExtra: without vLLM.
    """
    if not given:
        return
    require("vllm", extra="vllm", for_="an engine vllm:PATH")
    from vllm.engine.arg_utils import AsyncEngineArgs

    known = {field.name for field in fields(AsyncEngineArgs)} - OURS
    for name in given:
        if name in OURS:
            raise ConfigError(f"vllm.{name} is set by agentq and must not be given")
        if name not in known:
            raise ConfigError(f"vllm.{name} must be an argument of vLLM's engine{did_you_mean(name, known)}")


def arguments_of(model: ModelSettings, lora_rank: int) -> dict[str, Any]:
    """The arguments of vLLM's engine that follow from our settings.

    On GPUs one model is divided among all `model.devices`. vLLM gets the memory that is free when it starts.
    """
    devices = read_devices(model.devices)
    found: dict[str, Any] = {"max_model_len": model.context} if model.context else {}
    if lora_rank:
        found |= {"enable_lora": True, "max_lora_rank": max(8, 1 << (lora_rank - 1).bit_length())}
    if model.dtype != "auto":
        found["dtype"] = model.dtype
    if devices[0].startswith("cuda"):
        found.setdefault("dtype", "bfloat16")
        found |= {"tensor_parallel_size": len(devices), "enable_sleep_mode": model.sleep > 0}
        found |= {"devices": devices, "sleep_level": model.sleep}
    return found
