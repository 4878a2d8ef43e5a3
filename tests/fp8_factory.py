"""Checkpoints whose linear layers have weights of 8 bits, as DeepSeek and Qwen publish them."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

BLOCK, LARGEST = 128, 448.0  # rows and columns that share a scale; of float8_e4m3fn


def as_fp8(checkpoint: Path) -> Path:
    """The checkpoint, rewritten with scaled blocks."""
    weights = checkpoint / "model.safetensors"
    found: dict[str, torch.Tensor] = {}
    for name, value in load_file(weights).items():
        if name.endswith("proj.weight"):
            found[name], found[f"{name}_scale_inv"] = _blocks(value.float())
        else:
            found[name] = value
    save_file(found, weights, {"format": "pt"})
    config = json.loads((checkpoint / "config.json").read_text())
    how = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [BLOCK, BLOCK], "fmt": "e4m3"}
    (checkpoint / "config.json").write_text(json.dumps(config | {"quantization_config": how}))
    return checkpoint


def _blocks(value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    rows, columns = value.shape
    scales = torch.zeros(-(-rows // BLOCK), -(-columns // BLOCK))
    scaled = torch.empty_like(value)
    for i, j in torch.cartesian_prod(*map(torch.arange, scales.shape)).tolist():
        place = (slice(i * BLOCK, (i + 1) * BLOCK), slice(j * BLOCK, (j + 1) * BLOCK))
        scales[i, j] = value[place].abs().max() / LARGEST
        scaled[place] = value[place] / scales[i, j]
    return scaled.to(torch.float8_e4m3fn), scales
