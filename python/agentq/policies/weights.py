"""Identifies checkpoints by their files, and checks whether they may be published. Needs no torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from agentq.errors import ConfigError, ModelError

MODEL_FILES = (".safetensors", ".bin", ".json", ".jinja", ".model")
COMPUTED = ".rotary_emb.inv_freq"  # follows from the config, and was once saved (Llama 2)
TIED = frozenset({"lm_head.weight"})  # with a tied head, a checkpoint may or may not contain it


def fingerprint(model: Path | str) -> str:
    """16 hex digits that change with weights, tokenizer or template. If `model` is no directory, its name is hashed."""
    if isinstance(model, str) and not Path(model).is_dir():
        return hashlib.sha256(model.encode()).hexdigest()[:16]
    model = Path(model)
    found = hashlib.sha256(b"" if model.is_dir() else str(model).encode())
    for file in sorted(model.iterdir()) if model.is_dir() else ():
        if file.suffix in MODEL_FILES:
            found.update(f"/{file.name}/".encode())
            with file.open("rb") as handle:
                found.update(hashlib.file_digest(handle, "sha256").digest())
    return found.hexdigest()[:16]


def stamp(checkpoint: Path) -> str:
    """32 hex digits that change with a checkpoint's path, and with names, sizes or times of its files."""
    files = [(file.name, file.stat()) for file in sorted(checkpoint.iterdir())] if checkpoint.is_dir() else []
    facts = [str(checkpoint.resolve()), *((name, found.st_size, found.st_mtime_ns) for name, found in files)]
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:32]


def is_adapter(checkpoint: Path) -> bool:
    """Whether a checkpoint is a LoRA adapter in peft's layout."""
    return (checkpoint / "adapter_config.json").is_file()


def adapter_of(checkpoint: Path) -> Path:
    """Path of the adapter of a checkpoint that was trained by adapters."""
    return checkpoint.with_name(f"{checkpoint.name}.adapter")


def check_whole(base: Any, *, plain: bool = False) -> None:
    """Check that a checkpoint, by name or path, or a loaded model is no adapter, and if `plain` is not quantized.

    Raises:
        ModelError: if it is a LoRA adapter in peft's layout, or transformers has loaded one into the model.
        ConfigError: as `check_unquantized`.
    """
    if isinstance(base, str | Path):
        found, name = is_adapter(Path(base)), str(base)
    else:
        found, name = getattr(base, "_hf_peft_config_loaded", False), f"a {type(base).__name__} with one"
    if found:
        raise ModelError(
            f"the base of training and of adapters must be a whole checkpoint; got an adapter, {name}: "
            "merge it into its model (peft's merge_and_unload) and save that with its tokenizer"
        )
    if plain:
        check_unquantized(base)


def check_unquantized(base: Any) -> None:
    """Check that all weights of a checkpoint, by name or path, or of a loaded model can be trained.

    Raises:
        ConfigError: if they are quantized.
    """
    if how := quantization_of(base):
        raise ConfigError(
            f"training all weights must begin with 16 or 32 bits per weight; got {how} weights "
            f"in {base if isinstance(base, str | Path) else type(base).__name__}: take the checkpoint that is not "
            "quantized, or train adapters (--train.lora_rank 16)"
        )


def quantization_of(base: Any) -> str:
    """How a checkpoint, by name or path, or a loaded model has its weights quantized, such as fp8; "" if they are not.

    Without a GPU, transformers turns weights of 8 bits into bfloat16 whatever type it is asked for. So the config is
    read, before any weights are.
    """
    config = getattr(base, "config", None)
    if isinstance(base, str | Path):
        from transformers import AutoConfig

        with suppress(Exception):  # configs raise anything; loading it tells why
            config = AutoConfig.from_pretrained(base)
    if not (how := getattr(config, "quantization_config", None)):
        return ""
    named = how if isinstance(how, dict) else how.to_dict()
    return str(named.get("quant_method"))


def check_weights(checkpoint: Path, *, like: str | Path, cpu: bool) -> None:
    """Check a checkpoint's files against the model that vLLM serves, as far as that model has files here.

    Raises:
        ModelError: if a file is missing or damaged, or a tensor is missing, unknown or of another shape. On a CPU, also
            if the head is tied to the embedding, because vLLM 0.32 packs the head once and would keep the old one.
    """
    shapes = _shapes(checkpoint)
    if cpu and (not TIED & shapes.keys() or _config(checkpoint).get("tie_word_embeddings")):
        raise ModelError(
            "weights published to vLLM on a CPU must have a separate output head; got one tied to the embedding, which "
            f"vLLM does not exchange, in {checkpoint}: publish an adapter instead"
        )
    if Path(like).is_dir():
        wanted = _shapes(Path(like)) if _files(Path(like)) else shapes  # a base may have its weights in *.bin
        check_shapes(shapes, wanted, like=str(like))


def check_shapes(found: Mapping[str, list[int]], wanted: Mapping[str, list[int]], *, like: str) -> None:
    """Raises ModelError unless tensors have the wanted names and shapes."""
    differ = {name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name)}
    differ -= TIED & (found.keys() ^ wanted.keys())
    if differ:
        raise ModelError(
            f"published weights must have the names and shapes of {like}'s; "
            f"got others in {len(differ)} tensors, first {min(differ)}"
        )


def shapes_of(weights: Mapping[str, Any]) -> dict[str, list[int]]:
    """The shapes of tensors by name."""
    return {name: list(tensor.shape) for name, tensor in weights.items()}


def load_weights(checkpoint: Path) -> dict[str, Any]:
    """The torch tensors of a checkpoint by name. Raises ModelError if a file is missing or damaged."""
    from safetensors.torch import load_file

    if is_adapter(checkpoint):
        raise ModelError(f"an adapter must be merged for this engine (Learner.save); got {checkpoint}")
    _shapes(checkpoint)
    tensors = (item for file in _files(checkpoint) for item in load_file(file).items())
    return {name: tensor for name, tensor in tensors if not name.endswith(COMPUTED)}


def _config(checkpoint: Path) -> dict[str, Any]:
    file = checkpoint / "config.json"
    return dict(json.loads(file.read_text())) if file.is_file() else {}


def _files(checkpoint: Path) -> list[Path]:
    """The files from which transformers and vLLM load weights: a checkpoint may have the same in other layouts."""
    index = checkpoint / "model.safetensors.index.json"
    if not index.is_file():
        return sorted(checkpoint.glob("model*.safetensors")) or sorted(checkpoint.glob("*.safetensors"))
    try:
        named = sorted(set(json.loads(index.read_text())["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{index} must name the file of each tensor; got a damaged one ({error})") from error
    return [checkpoint / name for name in named]


def _shapes(checkpoint: Path) -> dict[str, list[int]]:
    from safetensors import safe_open

    shapes: dict[str, list[int]] = {}
    for file in _files(checkpoint):
        try:
            with safe_open(file, "np") as opened:
                names = [name for name in list(opened.keys()) if not name.endswith(COMPUTED)]
                shapes |= {name: opened.get_slice(name).get_shape() for name in names}
        except Exception as error:  # safetensors raises a bare Exception
            raise ModelError(f"{file} must be a safetensors file; got a damaged one ({error})") from error
    if not shapes:
        raise ModelError(f"a published checkpoint must hold *.safetensors; got none in {checkpoint}")
    return shapes
