"""How much memory a run will take, estimated from the configs of its models before any weights are loaded.

Bytes per parameter, with b the bytes of `model.dtype`:

    an engine                       b
    a learner of all weights        16: weight, gradient and two moments in float32; 2 more for products in bfloat16
    a learner of adapters           b, and 16 per parameter of the adapters

An engine also keeps keys and values, and a learner the activations of one forward pass. While the policy trains, a
vLLM that sleeps keeps nothing. Several processes that train share what a learner keeps, after one of them has loaded
the whole model into main memory. Adapters are merged into a copy there, with b per parameter. Before a round's first
step, a KL term (`policy_gradient.kl_weight`) loads the run's start beside a learner of all weights, with 4 per
parameter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from agentq.config import Settings, Train
from agentq.errors import ConfigError, ModelError
from agentq.learn.batch import default_tokens
from agentq.learn.logps import CHUNK_ELEMENTS
from agentq.policies.engine_names import path_in, read_name
from agentq.policies.placement import dtype_on, free_memory, read_devices, training_devices, trains_where_it_samples
from agentq.policies.weights import check_unquantized

ROWS, PROMPT = 32, 2048  # prompts sampled at once, and their assumed length
PREFIX_BYTES, PREFIX_TOKENS = 512 << 20, 16_384  # of an engine's prefix cache
RESERVED = 512 << 20  # torch, its kernels and buffers
GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Size:
    """A model's numbers, by its config.

    Attributes:
        parameters: number of weights.
        per_rank: weights of an adapter of rank 1.
        keys: keys and values per token, numbers.
        activations: numbers per token that a backward pass needs; of one layer.
        kept: numbers per token and layer with gradient checkpointing.
        tokens: tokens of a forward pass of the learner.
        own_bytes: bytes per weight in the checkpoint.
    """

    parameters: int
    per_rank: int
    keys: int
    layers: int
    activations: int
    kept: int
    vocabulary: int
    tokens: int
    own_bytes: int


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes of one model on one device while samples are taken, and while the policy trains."""

    what: str
    device: str
    sampling: int
    training: int


def size_of(checkpoint: Path | str, device: str = "cpu") -> Size:
    """The size of a checkpoint, by name or path. Raises ModelError if its config cannot be read."""
    try:
        config = AutoConfig.from_pretrained(checkpoint)
        with torch.device("meta"):
            model: Any = AutoModelForCausalLM.from_config(config)
    except Exception as error:  # configs raise anything
        said = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(
            f"the model must be a transformers checkpoint by name or path; got {checkpoint}: {said}"
        ) from error
    text, head = model.config.get_text_config(), model.get_output_embeddings()
    hidden, layers = int(text.hidden_size), int(text.num_hidden_layers)
    heads = int(getattr(text, "num_key_value_heads", None) or text.num_attention_heads)
    size = int(getattr(text, "head_dim", None) or hidden // text.num_attention_heads)
    linear = [m for m in model.modules() if isinstance(m, nn.Linear) and m is not head]
    outputs = sum(m.out_features for m in linear) // layers
    own = getattr(model.config, "dtype", None)
    return Size(
        parameters=sum(p.numel() for p in model.parameters()),
        per_rank=sum(m.in_features + m.out_features for m in linear),
        keys=2 * layers * heads * size,
        layers=layers,
        activations=6 * hidden + 2 * outputs,
        kept=hidden,
        vocabulary=int(text.vocab_size),
        tokens=default_tokens(model if device == "cpu" else _On(torch.device(device))),
        own_bytes=own.itemsize if isinstance(own, torch.dtype) else 4,
    )


@dataclass(frozen=True, slots=True)
class _On:
    device: torch.device


def to_sample(size: Size, b: int) -> int:
    """Bytes of an engine in this process."""
    cached = min(PREFIX_BYTES, PREFIX_TOKENS * size.keys * b)
    return size.parameters * b + cached + ROWS * PROMPT * size.keys * b


def to_train(
    size: Size, b: int, *, lora_rank: int, bf16: bool, gradient_checkpointing: bool, reference: int = 0
) -> tuple[int, int]:
    """Bytes that a learner always keeps, and bytes at the peak of a step, or of a forward pass of a `reference`.

    `reference`: bytes of a second model that is loaded between steps.
    """
    trained = size.per_rank * lora_rank if lora_rank else size.parameters
    kept = 16 * trained + (b * size.parameters if lora_rank else 0)
    cast = 2 * trained if bf16 else 0
    width = 2 if bf16 else 4
    layers = 1 if gradient_checkpointing else size.layers
    passed = size.tokens * width * (layers * size.activations + size.layers * size.kept)
    logits = 12 * min(CHUNK_ELEMENTS, size.tokens * size.vocabulary)
    forward = reference + size.tokens * width * (size.activations + size.kept)
    return kept, kept + max(cast + passed, forward if reference else 0) + logits


def needs(s: Settings, base: Path | str, checkpoint: Path | str | None = None, workers: int = 1) -> list[Need]:
    """What a run needs, model by model.

    Args:
        checkpoint: the one that `agentq eval` measures; None for training.
        workers: number of processes that collect, each with engines of its own.
    """
    return [*_sampled(s, base, checkpoint, workers), *_trained(s, base, checkpoint)]


def _sampled(s: Settings, base: Path | str, checkpoint: Path | str | None, workers: int) -> Iterator[Need]:
    devices = read_devices(s.model.devices)
    critic = getattr(s, "critic", None)
    own = isinstance(base, Path) and s.train.lora_rank > 0  # one engine for the base and its adapters
    served = read_name(s.run.engine) if s.run.engine else None
    ranks = base if critic is not None and critic.model == "base" else None
    other = read_name(critic.model) if critic is not None and critic.model not in ("base", "none") else None
    policy = base if checkpoint is None else checkpoint
    named = {"base": None if own and served else ranks if checkpoint is not None else base, "critic": other}
    named["policy"] = served or (None if own and checkpoint is None else policy)
    for role, name in named.items():
        path = None if name is None else path_in(name)
        if path is None or (isinstance(name, str) and not name.startswith("vllm:")):
            continue
        size = size_of(path, devices[0])
        b = _bytes(s, devices[0], size)
        vllm = isinstance(name, str)
        amount = size.parameters * b // len(devices) + GIB if vllm else workers * to_sample(size, b)
        asleep = vllm and s.model.sleep > 0 and devices[0].startswith("cuda")
        for device in devices if vllm else devices[:1]:
            yield Need(f"{role} {name}", device, amount, 0 if asleep else amount)


def _trained(s: Settings, base: Path | str, checkpoint: Path | str | None) -> Iterator[Need]:
    t = s.train
    if checkpoint is not None or not isinstance(t, Train):
        return
    devices = training_devices(t.devices, s.model.devices)
    size, n = size_of(base, devices[0]), len(devices)
    b, bf16 = _bytes(s, devices[0], size), dtype_on(devices[0], s.model.dtype) == torch.bfloat16
    loss, copy = getattr(s, "policy_gradient", None), b * size.parameters if t.lora_rank else 0
    second = 4 * size.parameters if loss is not None and loss.kl_weight and not t.lora_rank else 0
    again = t.gradient_checkpointing
    kept, peak = to_train(
        size, b, lora_rank=t.lora_rank, bf16=bf16, gradient_checkpointing=again, reference=second // n
    )
    if n == 1:
        on_cpu = devices[0] == "cpu"
        yield Need("learner", devices[0], kept, max(peak, kept + copy) if on_cpu else peak)
        if copy and not on_cpu:
            yield Need("merged learner", "cpu", 0, copy)
        return
    share, loading = kept // n + peak - kept, size.parameters * (b if t.lora_rank else 4)
    if devices[0] == "cpu":  # the whole model in one process, and the shares that it has given to all
        yield Need("learner", "cpu", 0, max(n * share, 2 * loading, kept + 2 * second))
        return
    yield from (Need("learner", device, 0, share) for device in devices)
    yield Need("loading of the learner", "cpu", 0, loading)


def learner_bytes(s: Settings, base: Path | str) -> int:
    """Bytes that the learner of a run always keeps on the device where models sample; 0 if it has its own device."""
    if (
        not isinstance(s.train, Train)
        or not isinstance(base, Path)
        or not trains_where_it_samples(s.train.devices, s.model.devices)
    ):
        return 0
    return sum(need.sampling for need in _trained(s, base, None))


def _bytes(s: Settings, device: str, size: Size) -> int:
    found = dtype_on(device, s.model.dtype)
    return found.itemsize if isinstance(found, torch.dtype) else size.own_bytes


def check_memory(s: Settings, base: Path | str, checkpoint: Path | str | None = None, workers: int = 1) -> None:
    """Raises ConfigError if the run needs more memory than is free; the message names settings that would fit.

    Also if it trains all weights of a quantized checkpoint, which has to be said before anything is collected.
    `workers`: see `needs`.
    """
    if checkpoint is None and isinstance(base, Path) and isinstance(s.train, Train) and not s.train.lora_rank:
        check_unquantized(base)
    if not s.model.memory:
        return
    short = _short(s, base, checkpoint, workers)
    if short is None:
        return
    device, need, free = short
    tried = [(words, changed) for words, changed in _smaller(s) if _short(changed, base, checkpoint, workers) is None]
    served = ", or a server that runs it, http://HOST/v1#MODEL" if checkpoint is not None else ""
    remedy = f"{tried[0][0]} would fit" if tried else f"choose a smaller model or a larger device{served}"
    raise ConfigError(
        f"the models must fit into the memory of {device}, {free / GIB:.1f} GiB free; they need about "
        f"{need / GIB:.1f} GiB: {remedy} (--model.memory false tries all the same)"
    )


def _short(s: Settings, base: Path | str, checkpoint: Path | str | None, workers: int) -> tuple[str, int, int] | None:
    """The first device with too little memory, its need and what is free."""
    found = needs(s, base, checkpoint, workers)
    for device in dict.fromkeys(need.device for need in found):
        here = [need for need in found if need.device == device]
        need = RESERVED + max(sum(each.sampling for each in here), sum(each.training for each in here))
        if need > (free := free_bytes(device)):
            return device, need, free
    return None


def _smaller(s: Settings) -> Iterator[tuple[str, Settings]]:
    """Settings that need less memory, as words of the command line, smallest change first."""
    if not isinstance(s.train, Train):
        yield "--model.dtype bfloat16", _changed(s, {"model": {"dtype": "bfloat16"}})
        return
    again: dict[str, Any] = {"gradient_checkpointing": True}
    adapters: dict[str, Any] = {"lora_rank": s.train.lora_rank or 16}
    tried: tuple[dict[str, dict[str, Any]], ...] = ({"train": again}, {"train": adapters}, {"train": again | adapters})
    for changes in (*tried, {"train": again | adapters, "model": {"dtype": "bfloat16"}}):
        words = [f"--{key}.{name} {value}" for key, some in changes.items() for name, value in some.items()]
        new = [word for word in words if word != f"--train.lora_rank {s.train.lora_rank}"]
        yield " ".join(new).replace("True", "true"), _changed(s, changes)


def _changed(s: Settings, changes: dict[str, dict[str, Any]]) -> Settings:
    return s.model_copy(update={key: getattr(s, key).model_copy(update=some) for key, some in changes.items()})


def free_bytes(device: str) -> int:
    """Memory that is free on a device: of a GPU, or of this machine within the limit of its container."""
    if device.startswith("cuda"):
        return int(torch.cuda.mem_get_info(torch.device(device))[0])
    return free_memory()
