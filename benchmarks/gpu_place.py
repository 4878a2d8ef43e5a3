"""Where a part of gpu.py runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import learner_workload as workload
import torch
from inference_engines import random_checkpoint

PEAK_FLOPS = {  # dense bfloat16, from the data sheets
    "B200": 2250e12,
    "H200": 989e12,
    "H100 PCIe": 756e12,
    "H100": 989e12,
    "A100": 312e12,
    "L40S": 362e12,
    "RTX 4090": 165e12,
}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a part runs: `shape` full or tiny, the device, the folder for its files."""

    shape: str
    device: str
    folder: Path

    @property
    def tiny(self) -> bool:
        return self.shape == "tiny"

    @property
    def regime(self) -> workload.Regime:
        return (workload.QUICK if self.tiny else workload.REGIMES)["C"]

    def checkpoint(self, shape: str) -> Path:
        """A random checkpoint of a shape; of the shape `tiny` if that is asked for. Made once."""
        name = "tiny" if self.tiny else shape
        path = self.folder / "models" / name
        if not path.exists():
            beside = path.with_name(f"{name}.partial")
            random_checkpoint(beside, name, self.device).joinpath("config.json").stat()
            beside.rename(path)
        return path


class Skipped(Exception):
    """Why a part cannot run here."""


def gpu_name(device: str) -> str:
    return torch.cuda.get_device_name() if device.startswith("cuda") else ""
