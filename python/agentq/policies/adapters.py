"""LoRA by peft: adding adapters, finding the model below them, merging them."""

from __future__ import annotations

import copy
import json
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from agentq.errors import ModelError
from agentq.policies.weights import check_whole
from agentq.run_settings import SEEDS

TRAINED, START = "default", "start"  # names of the trained adapter, and of a frozen copy of what it began with
STRENGTH = 2  # factor of B A x in adapters made here: alpha / rank
# Fields of peft's file that `read_adapter` reads, whose effect shows in the weights' names, or that have no effect.
FREE = frozenset({
    "r", "lora_alpha", "use_rslora", "target_modules", "exclude_modules", "layers_to_transform", "layers_pattern",
    "fan_in_fan_out", "task_type", "auto_mapping", "base_model_name_or_path", "revision", "inference_mode",
    "lora_dropout", "peft_version",
})  # fmt: skip
FREE_STARTS = ("gaussian", "orthogonal", "eva")  # initial values after which the base model is unchanged


def with_adapters(model: Any, rank: int, *, seed: int) -> Any:
    """A peft model over `model`: rank-`rank` adapters with alpha = 2 * rank on all linear layers of the decoder.

    `seed` draws the first factor; the second is 0, so the model's outputs are unchanged at first.

    Raises:
        ValueError: for a seed outside [0, 2^32).
        ModelError: if peft refuses the model, or it has an adapter already.

    Source: Hu et al. 2021, arXiv:2106.09685; alpha = 2 * rank is ours.
    """
    if not 0 <= seed < SEEDS:
        raise ValueError(f"seed must be in [0, {SEEDS}); got {seed}")
    check_whole(model)
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=rank, lora_alpha=STRENGTH * rank, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    if outside := _outside_decoder(model):  # what reads pictures: text has no gradient there
        config.exclude_modules = outside
    with torch.random.fork_rng(), warnings.catch_warnings():
        # peft reads an attribute that transformers has renamed
        warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing", category=FutureWarning)
        # experts are not linear layers and get no adapters
        warnings.filterwarnings("ignore", message=r"The following (rank|alpha)_pattern keys", category=RuntimeWarning)
        torch.manual_seed(seed)
        try:
            return get_peft_model(model, config)
        except ValueError as error:
            said = " ".join(str(error).split())[:200]
            raise ModelError(
                f"a model must take adapters on its linear layers; got {type(model).__name__}: {said} "
                "(--train.lora_rank 0 trains all weights)"
            ) from error


def _outside_decoder(model: Any) -> list[str]:
    """Names of the linear layers of a causal LM that are neither in its decoder nor its head."""
    text = {id(module) for module in model.get_decoder().modules()} | {id(model.get_output_embeddings())}
    linear = [(name, module) for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)]
    return [name for name, module in linear if id(module) not in text]


def base_of(model: Any) -> Any:
    """The transformers causal LM itself, with adapters inside if there are any."""
    return model.get_base_model() if hasattr(model, "merge_and_unload") else model


def merged(model: Any, *, in_place: bool = False) -> Any:
    """The model with adapters merged into its weights: a copy on the CPU if there are adapters, else the model itself.

    Weights of 16 bits are rounded once, after the sum in float32.
    """
    if not hasattr(model, "merge_and_unload"):
        return model
    if not in_place:  # tensors are copied to the CPU one by one, since a GPU may have no room for a second model
        tensors = [*model.named_parameters(), *model.named_buffers()]
        memo = {id(x): _on_cpu(x) for _, x in tensors}
        model = copy.deepcopy(model, memo).cpu()
    return model.merge_and_unload()


def _on_cpu(x: Tensor) -> Tensor:
    """A copy of a parameter or buffer in main memory."""
    copied = x.detach().to("cpu", copy=True)
    return torch.nn.Parameter(copied, requires_grad=x.requires_grad) if isinstance(x, torch.nn.Parameter) else copied


def adapter_weights(model: Any) -> dict[str, Tensor]:
    """The weights of the trained adapter under the names of peft's files."""
    from peft import get_peft_model_state_dict

    found: dict[str, Tensor] = get_peft_model_state_dict(model, adapter_name=TRAINED)
    return found


def load_adapter(model: Any, weights: Mapping[str, Tensor], name: str = TRAINED) -> None:
    """Give an adapter of a peft model new weights.

    Raises:
        ModelError: if they are not those of an adapter of the same rank on the same layers.
    """
    from peft import get_peft_model_state_dict, set_peft_model_state_dict

    wanted = {key: value.shape for key, value in get_peft_model_state_dict(model, adapter_name=name).items()}
    differ = sorted(
        key for key in wanted.keys() | weights.keys() if wanted.get(key) != getattr(weights.get(key), "shape", None)
    )
    if differ:
        raise ModelError(
            f"an adapter must have the shapes of the model's; got others in {len(differ)}, first {differ[0]}: "
            "train it with target_modules='all-linear' and the same rank, or merge it into its model "
            "(peft's merge_and_unload)"
        )
    set_peft_model_state_dict(model, dict(weights), adapter_name=name)


def read_adapter(path: Path) -> tuple[dict[str, Tensor], int]:
    """Weights and rank of an adapter in peft's layout, for adapters with alpha = 2 * rank.

        B <- B * strength / 2            strength: alpha / rank, or alpha / sqrt(rank) with `use_rslora`

    So an adapter made elsewhere with another alpha gives the same model here.

    Raises:
        ModelError: if a file is missing or damaged, or the adapter is more than LoRA of one rank and one alpha.
    """
    from peft import LoraConfig
    from safetensors.torch import load_file

    plain = LoraConfig().to_dict()
    try:
        config = plain | json.loads((path / "adapter_config.json").read_text())
        rank = int(config["r"])
        strength = config["lora_alpha"] / (math.sqrt(rank) if config["use_rslora"] else rank)
        weights = load_file(path / "adapter_model.safetensors")
    except Exception as error:  # safetensors raises a bare Exception
        raise ModelError(
            f"{path} must be a LoRA adapter in peft's layout; got {type(error).__name__}: {error}"
        ) from error
    if more := _more_than_lora(config, plain):
        raise ModelError(
            f"an adapter must be LoRA with one rank, one alpha and nothing else; got {more} in {path}: "
            "merge it into its model (peft's merge_and_unload)"
        )
    if strength != STRENGTH:
        factor = strength / STRENGTH
        weights |= {name: w.float() * factor for name, w in weights.items() if name.endswith("lora_B.weight")}
    return weights, rank


def _more_than_lora(config: Mapping[str, Any], plain: Mapping[str, Any]) -> str:
    """The fields by which an adapter is not the plain LoRA that agentq computes, with their values; mostly none."""
    found = {name: value for name, value in sorted(config.items()) if value and value != plain.get(name)}
    if found.get("init_lora_weights") in FREE_STARTS:
        del found["init_lora_weights"]
    return ", ".join(f"{name}={value!r}"[:80] for name, value in found.items() if name not in FREE)


def keep_start(model: Any) -> None:
    """Add a frozen copy of the trained adapter: the weights with which training begins."""
    model.add_adapter(START, model.peft_config[TRAINED])
    load_adapter(model, adapter_weights(model), START)
    model.set_adapter(TRAINED)


@contextmanager
def at_start(model: Any) -> Iterator[None]:
    """Within the block, a peft model has the weights with which its training began. For use without gradients."""
    if START not in model.peft_config:
        with model.disable_adapter():
            yield
        return
    model.set_adapter(START)
    try:
        yield
    finally:
        model.set_adapter(TRAINED)


class Switch:
    """Applies a model's adapters to some tokens of a batch: B A x is multiplied by 0 for the others."""

    def __init__(self, model: Any) -> None:
        self._on: Tensor | None = None  # [T, 1]; None: everywhere
        for name, module in model.named_modules():
            if name.endswith(f"lora_B.{TRAINED}"):
                module.register_forward_hook(self._masked)

    def _masked(self, module: Any, inputs: Any, output: Tensor) -> Tensor:
        return output if self._on is None else output * self._on.to(output.dtype)

    @contextmanager
    def on(self, counts: Sequence[int], adapted: Sequence[bool], device: torch.device) -> Iterator[None]:
        """Within the block, a batch has `counts` tokens of each row, which are `adapted` or not."""
        if not all(adapted):
            rows = torch.tensor(adapted, dtype=torch.float32).repeat_interleave(torch.tensor(counts))
            self._on = rows[:, None].to(device)
        try:
            yield
        finally:
            self._on = None
