"""Directories written beside and renamed, and a training run's state in one. Nothing pickled."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from agentq.errors import ModelError
from agentq.learn.sharding import Ranks, like, whole

FORMAT = 1
ALONE = Ranks()


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """A new directory beside `path` that takes its place when the block ends well, and vanishes when it does not."""
    beside, old = path.with_name(path.name + ".new"), path.with_name(path.name + ".old")
    if old.exists() and not path.exists():  # killed between the two renames below
        old.rename(path)
    for left in (beside, old):
        shutil.rmtree(left, ignore_errors=True)
    beside.mkdir(parents=True)
    try:
        yield beside
        _sync(beside)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    if path.exists():
        path.rename(old)
    beside.rename(path)
    shutil.rmtree(old, ignore_errors=True)


def save_state(
    directory: Path,
    parameters: Mapping[str, Tensor],
    optimizer: torch.optim.Optimizer,
    position: Mapping[str, Any],
    *,
    ranks: Ranks = ALONE,
) -> None:
    """Write `directory/step-N` for `position["step"]`, then delete earlier ones: at any moment the newest is whole.

    Rank 0 gathers all of a sharded learner's state in its memory and writes what one process would have written.
    """
    weights = {name: whole(p, here=ranks.first).contiguous() for name, p in parameters.items()}
    moments = {
        f"{name}/{key}": whole(value, here=ranks.first).contiguous()
        for name, parameter in parameters.items()
        for key, value in optimizer.state[parameter].items()
    }
    step = directory / f"step-{int(position['step']):08d}"
    if ranks.first and not step.exists():
        with replaced(step) as beside:
            save_file(weights, beside / "weights.safetensors")
            save_file(moments, beside / "optimizer.safetensors")
            (beside / "position.json").write_text(json.dumps({"format": FORMAT, **position}, indent=1) + "\n")
        for earlier in _steps(directory)[:-1]:
            shutil.rmtree(earlier, ignore_errors=True)
    ranks.wait()


def load_position(directory: Path) -> dict[str, Any] | None:
    """What `save_state` last wrote about where the run stands; None where it wrote nothing yet.

    Raises:
        ModelError: if the file cannot be read, or a newer agentq wrote it.
    """
    steps = _steps(directory)
    if not steps:
        return None
    try:
        position: dict[str, Any] = json.loads((steps[-1] / "position.json").read_text())
        version = int(position["format"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{steps[-1]} must be a training checkpoint; got a damaged position.json") from error
    if version > FORMAT:
        raise ModelError(f"{steps[-1]} must have format {FORMAT} or older; got {version}, from a newer agentq")
    return position


def load_state(directory: Path, parameters: Mapping[str, Tensor], optimizer: torch.optim.Optimizer) -> None:
    """Put the newest checkpoint's weights and optimiser state in place.

    Raises:
        ModelError: if a file is damaged or its weights are not this model's; nothing has changed then.
    """
    step = _steps(directory)[-1]
    try:
        weights, moments = (_Stored(step / f"{name}.safetensors") for name in ("weights", "optimizer"))
    except Exception as error:  # safetensors' own error class is a bare Exception
        raise ModelError(f"{step} must be a training checkpoint; got a damaged file ({error})") from error
    ours = {name: list(p.shape) for name, p in parameters.items()}
    theirs = weights.shapes
    if ours != theirs:
        differ = sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))
        raise ModelError(f"{step} must hold this model's weights; got other shapes in {len(differ)}, first {differ[0]}")
    state: dict[str, dict[str, Tensor]] = {name: {} for name in parameters}
    for entry in moments.shapes:
        name, _, key = entry.rpartition("/")
        state[name][key] = like(moments.read(entry), parameters[name])
    with torch.no_grad():
        for name, p in parameters.items():
            p.copy_(like(weights.read(name), p))
            optimizer.state[p] = state[name]


class _Stored:
    """A safetensors file read tensor by tensor: the ranks of one machine need not all hold the whole of it."""

    def __init__(self, file: Path) -> None:
        opened: Any = safe_open(file, "pt")
        self.read: Callable[[str], Tensor] = opened.get_tensor
        self.shapes: dict[str, list[int]] = {name: opened.get_slice(name).get_shape() for name in list(opened.keys())}


def _steps(directory: Path) -> list[Path]:
    """Whole checkpoints, oldest first."""
    return sorted(p for p in directory.glob("step-*") if p.suffix == "")


def _sync(directory: Path) -> None:
    for file in directory.rglob("*"):
        if file.is_file():
            with file.open("rb") as handle:
                os.fsync(handle.fileno())
