"""One learner in several processes (ranks): each holds a share of the weights and computes a share of every step.

It uses torch's FSDP2 (`fully_shard`): a layer's weights are gathered for its forward and backward pass and then
dropped. Gradients are summed over the ranks, since losses are divided by the size of the whole step. `accelerate
launch` and `torchrun` work alike, as they set the same environment variables.

A collective call waits for all ranks, so all must make the same calls in the same order. In one process it is a no-op.
"""

from __future__ import annotations

import atexit
import copy
import os
import sys
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers import AutoConfig, AutoModelForCausalLM

from agentq.errors import ConfigError, ModelError
from agentq.learn.recompute import layers_of
from agentq.policies.adapters import TRAINED, base_of, merged
from agentq.policies.renderer import load_tokenizer
from agentq.policies.saved import complete, without_bars
from agentq.policies.transformers_engine import load_checkpoint
from agentq.store.durable import replaced
from agentq.types import Sample

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ranks:
    """The processes of one learner. `index` is this one's, in [0, size); rank 0 writes files."""

    index: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        return self.index == 0

    def gather(self, value: T) -> list[T]:
        """`[size]` every rank's value, on every rank. Collective."""
        found: list[Any] = [value] * self.size
        if self.size > 1:
            dist.all_gather_object(found, value)
        return found

    def wait(self) -> None:
        """Wait until every rank gets here. Collective."""
        self.gather(None)

    def agree(self, what: str, value: Callable[[], int]) -> None:
        """Raises ValueError unless every rank has the same value. Collective."""
        if self.size > 1 and len(set(found := self.gather(value()))) > 1:
            other = next(i for i, theirs in enumerate(found) if theirs != found[0])
            raise ValueError(f"{what} must be the same in every process; got others in process {other} than in 0")


def join(device: torch.device | str) -> Ranks:
    """The processes that `accelerate launch` or `torchrun` started together, or this one alone."""
    if not dist.is_initialized() and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        if torch.device(device).type != "cpu":
            torch.accelerator.set_device_index(int(os.environ.get("LOCAL_RANK", "0")))
        timeout = timedelta(hours=1)  # the others wait while rank 0 writes a large model
        if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
            rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
            dist.init_process_group(timeout=timeout, store=_store_of_attempt(timeout), rank=rank, world_size=size)
        else:
            dist.init_process_group(timeout=timeout)
        atexit.register(_leave)
    return Ranks(dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else Ranks()


def _store_of_attempt(timeout: timedelta) -> Any:
    """torchrun's store under a prefix of this attempt.

    torchrun keeps one store for all attempts. Without a prefix, ranks that are started again may read the addresses of
    those that died, and wait for them for ever (pytorch issue 135712).
    """
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    c10d: Any = dist  # its stubs lack the stores
    store = c10d.TCPStore(address, port, is_master=False, timeout=timeout)
    return c10d.PrefixStore(f"attempt{os.environ['TORCHELASTIC_RESTART_COUNT']}", store)


def _leave() -> None:
    """Leave the group in order; after an error the others may wait for ever, so do not wait for them.

    gloo's threads need the interpreter to drop their last tensors, so they get a moment: while it ends, they would
    abort the process (pytorch issue 190489).
    """
    if not hasattr(sys, "last_value") and dist.is_initialized():
        dist.destroy_process_group()
        time.sleep(0.2)


def check_launcher(*, bf16: bool, gradient_checkpointing: bool) -> None:
    """Check the configuration of `accelerate` against the learner's arguments.

    Raises:
        ConfigError: if it asks for something that the learner does not do, since no setting may be ignored.
    """
    for key, variable, ours in (
        ("mixed_precision", "ACCELERATE_MIXED_PRECISION", "bf16" if bf16 else "no"),
        ("fsdp_activation_checkpointing", "FSDP_ACTIVATION_CHECKPOINTING", str(gradient_checkpointing).lower()),
        ("fsdp_offload_params", "FSDP_OFFLOAD_PARAMS", "false"),
    ):
        asked = os.environ.get(variable, ours)
        if asked not in (ours, "no", "false"):
            raise ConfigError(f"accelerate's {key} must be {ours}, as the learner's own settings say; got {asked}")


class Placed:
    """A model in its place for training: whole on one rank, sharded over several."""

    def __init__(self, model: Any, ranks: Ranks, device: torch.device | str, *, from_first: bool = False) -> None:
        """Shard `model` in place over more than one rank, layer by layer, so that `device` never holds all of it.

        `from_first`: the other ranks get the weights of rank 0 (see `load`).
        """
        self.model, self.ranks = model, ranks
        if ranks.size > 1:
            if not from_first:
                ranks.agree("a model's first weights", lambda: _fingerprint(dict(model.named_parameters())))
            self._skeleton = _with_parameters(model, lambda _, p: p.detach().to("meta"))
            weights = {name: p.detach() for name, p in model.named_parameters()} if from_first else {}
            self._root = _shard(model, torch.device(device))
            _scatter(model, weights)
        elif base_of(model).device != torch.device(device):
            model.to(device)
        self.parameters: dict[str, torch.nn.Parameter] = dict(model.named_parameters())
        self.origin: str | Path | None = None  # the checkpoint that the model is from

    def run(self, function: Callable[..., T], *args: Any, **options: Any) -> T:
        """Run `function(model, ...)`, which may call the model. Collective, as is a backward pass from it."""
        if self.ranks.size == 1:
            return function(self.model, *args, **options)
        found: T = self._root(function, *args, **options)
        if not torch.is_grad_enabled():  # no backward pass will drop the gathered weights, which would become stale
            self._root.reshard()
        return found

    def whole(self, *, here: bool = True) -> Any:
        """The model unsharded: itself on one rank, else a copy on the CPU, or None unless `here`. Collective."""
        if self.ranks.size == 1:
            return self.model
        full = {name: whole(p, here=here) for name, p in self.parameters.items()}
        return _with_parameters(self._skeleton, lambda name, _: full[name]) if here else None

    def merged(self, *, here: bool = True) -> Any:
        """`whole` with adapters merged; the trained model is unchanged. Collective."""
        model = self.whole(here=here)
        return merged(model, in_place=model is not self.model) if here else None

    def save(self, path: Path, tokenizer: Any, *, adapters_only: bool) -> None:
        """Rank 0 writes a checkpoint, see `Learner.save`. Collective."""
        first = self.ranks.first
        model = self.whole(here=first) if adapters_only else self.merged(here=first)
        if first:
            with replaced(path) as beside, without_bars():
                model.save_pretrained(
                    beside, **({"selected_adapters": [TRAINED]} if adapters_only else _as_loaded(model))
                )
                if tokenizer is not None:
                    tokenizer.save_pretrained(beside)
                if not adapters_only:
                    complete(beside, model.config, self.origin)
        self.ranks.wait()


def _as_loaded(model: Any) -> dict[str, Any]:
    """Keep transformers from quantizing weights again that it dequantized when it loaded them, as without a GPU.

    It would leave out the config that tells their scales.
    """
    done = [
        step for each in getattr(model, "_weight_conversions", None) or () for step in getattr(each, "operations", ())
    ]
    return {"save_original_format": False} if any(type(step).__name__.endswith("Dequantize") for step in done) else {}


def load(path: str | Path, ranks: Ranks, *, device: str, dtype: torch.dtype | str, attention: str) -> tuple[Any, Any]:
    """Model and tokenizer of a checkpoint: on `device` for one rank; of several, rank 0 alone reads the weights.

    Those of the other ranks take no memory until `Placed` writes them (`from_first`). Collective.

    Raises:
        ModelError: on every rank, if rank 0 cannot load the checkpoint.
    """
    model: Any = None
    tokenizer: Any = None
    told: Any = None
    if ranks.first:
        try:
            place = device if ranks.size == 1 else "cpu"
            model, tokenizer = load_checkpoint(path, device=place, dtype=dtype, attention=attention)
            told = {name: p.dtype for name, p in model.named_parameters()}, dict(model.named_buffers())
        except ModelError as error:
            told = error
    told = ranks.gather(told)[0]
    if isinstance(told, ModelError):
        raise told
    if not ranks.first:
        config, tokenizer = AutoConfig.from_pretrained(path), load_tokenizer(path)
        with torch.device("meta"):
            chosen = {} if attention == "auto" else {"attn_implementation": attention}
            skeleton = AutoModelForCausalLM.from_config(config, **chosen)
        model = _with_parameters(skeleton, lambda name, p: torch.empty(p.shape, dtype=told[0][name]))
        for name, buffer in told[1].items():
            module, _, own = name.rpartition(".")
            setattr(model.get_submodule(module), own, buffer)
    return model, tokenizer


def _scatter(model: Any, weights: dict[str, Tensor]) -> None:
    """Give every rank its share of rank 0's weights, one by one."""
    parameters = dict(model.named_parameters())
    for name in list(weights):
        p, value = parameters[name], weights.pop(name)
        share = distribute_tensor(value.to(p.device), p.device_mesh, p.placements)
        with torch.no_grad():
            p.to_local().copy_(share.to_local())


def whole(x: Tensor, *, here: bool = True) -> Tensor:
    """The whole of a sharded tensor on the CPU, if `here` (else empty); other tensors unchanged. Collective."""
    if not isinstance(x, DTensor):
        return x.detach()
    full: Tensor = x.full_tensor().detach()
    return full.cpu() if here else full.new_empty(0)


def like(x: Tensor, other: Tensor) -> Tensor:
    """`x`, which every rank has whole, on the device of `other` and sharded like it; scalars are not sharded."""
    x = x.to(other.device)
    if not isinstance(other, DTensor) or x.shape != other.shape:
        return x
    return distribute_tensor(x, other.device_mesh, other.placements, src_data_rank=None)


def fingerprint_of(items: Sequence[Sequence[Sample]]) -> int:
    """A number that changes with the items' token ids or their order."""
    found = 0
    for item in items:
        for sample in item:
            for ids in (sample.prompt_ids, sample.token_ids):
                found = zlib.crc32(len(ids).to_bytes(8, "little") + ids.astype("<i8").tobytes(), found)
        found = zlib.crc32(b"/", found)
    return found


def _fingerprint(parameters: Mapping[str, Tensor]) -> int:
    """A fingerprint from integer sums of the bits, which are exact on every machine."""
    kinds = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    sums = [(name, int(p.detach().view(kinds[p.element_size()]).sum())) for name, p in parameters.items()]
    return zlib.crc32(repr(sums).encode())


class _Root(torch.nn.Module):
    """A module for FSDP2 to hook into: embedding, last norm and head are gathered while a function runs."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, function: Callable[..., T], *args: Any, **options: Any) -> T:
        return function(self.model, *args, **options)


def _shard(model: Any, device: torch.device) -> Any:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh, root = init_device_mesh(device.type, (dist.get_world_size(),)), _Root(model)
    parts: list[Any] = [*layers_of(model), root]
    for part in parts:
        fully_shard(part, mesh=mesh)
        part.set_gradient_divide_factor(1.0)  # FSDP2 would take the mean
        part.set_force_sum_reduction_for_comms(True)  # gloo supports no other
    return root


def _with_parameters(model: Any, new: Callable[[str, Tensor], Tensor]) -> Any:
    """A copy of the model with `new(name, parameter)` for each parameter; tied ones stay tied."""
    memo = {
        id(p): torch.nn.Parameter(new(name, p), requires_grad=p.requires_grad) for name, p in model.named_parameters()
    }
    return copy.deepcopy(model, memo)
