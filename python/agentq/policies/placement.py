"""Where models of this process run: devices, types and threads. Imports torch only where it asks for the hardware."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentq.errors import ConfigError

if TYPE_CHECKING:
    import torch

SMALL = 100_000_000  # parameters below which one thread is faster than several
MOST_ON_CPU = 4  # processes that `cores` starts to train (ours): more only wait for each other on models that fit a CPU


def read_devices(given: str, key: str = "model.devices") -> tuple[str, ...]:
    """The devices that a setting names, as torch spells them: `0-2` as `cuda:0`, `cuda:1`, `cuda:2`.

    Raises:
        ConfigError: if the text names no device, or a GPU that this machine lacks.
    """
    numbers = re.fullmatch(r"\d+(-\d+)?(,\d+(-\d+)?)*", given)
    if given not in ("auto", "cpu", "cuda", "mps") and numbers is None:
        raise ConfigError(f"{key} must be auto, cpu, mps, cuda or numbers of GPUs such as 0-3; got '{given}'")
    gpus, mps = _accelerators()
    if given == "auto":
        return ("cuda:0",) if gpus else ("mps",) if mps else ("cpu",)
    if given == "cpu":
        return ("cpu",)
    if given == "mps" and mps:
        return ("mps",)
    wanted: list[int] = []
    for part in given.split(",") if numbers else ["0"]:
        first, _, last = part.partition("-")
        wanted += range(int(first), int(last or first) + 1)
    if given == "mps" or not wanted or max(wanted) >= gpus:
        found, all_of_them = f"{gpus} CUDA devices" + (" and mps" if mps else ""), f": 0-{gpus - 1} names all"
        more = all_of_them if gpus > 1 else ""
        raise ConfigError(f"{key} must name devices of this machine, which has {found}; got '{given}'{more}")
    return tuple(f"cuda:{number}" for number in dict.fromkeys(wanted))


def _accelerators() -> tuple[int, bool]:
    """Number of CUDA devices, and whether there is MPS. A build of torch for CPUs has neither: it is not loaded."""
    if "torch" not in sys.modules and sys.platform == "linux" and version("torch").endswith("+cpu"):
        return 0, False
    import torch

    return torch.cuda.device_count(), torch.backends.mps.is_available()


def one_device(given: str, key: str, *, instead: str) -> str:
    """The single device that a setting names. Raises ConfigError for several; `instead`: what takes several."""
    devices = read_devices(given, key)
    if len(devices) > 1:
        raise ConfigError(f"{key} must be one device here; got '{given}': {instead}")
    return devices[0]


def cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def training_devices(train: str, model: str) -> tuple[str, ...]:
    """The device of each process that trains, by the settings `train.devices` and `model.devices`.

    Numbers of GPUs give one process per GPU. Where models sample on the CPU, a single number is a number of processes,
    and `cores` one per core. Empty, and `cores` on a GPU: this process, on the device of `model.devices`, or on the CPU
    if that is MPS.

    Raises:
        ConfigError: as `read_devices`, if `model.devices` names several and `train` is empty, or as `check_trains`.
    """
    check_trains(train, "train.devices")
    if train == "cores" and read_devices(model) == ("cpu",):
        return ("cpu",) * min(cores(), MOST_ON_CPU)
    if train in ("", "cores"):
        found = one_device(model, "model.devices", instead="--train.devices names those that train")
        return ("cpu",) if found == "mps" else (found,)
    if train.isdecimal() and read_devices(model) == ("cpu",):
        if int(train) < 1:
            raise ConfigError(f"train.devices must be at least 1 process on the CPU; got {train}")
        return ("cpu",) * int(train)
    devices = read_devices(train, "train.devices")
    return ("cpu",) if devices == ("mps",) else devices


def check_trains(device: object, key: str = "device") -> None:
    """Raises ConfigError for MPS, which has no float64: losses are sums in float64."""
    if str(device).partition(":")[0] == "mps":
        raise ConfigError(f"{key} must be the CPU or a CUDA device, since MPS has no float64; got '{device}'")


def trains_off_mps(train: str, model: str) -> bool:
    """Whether models sample on MPS and the policy trains on the CPU without being told to, by the same settings."""
    return train != "cpu" and read_devices(model) == ("mps",) and training_devices(train, model) == ("cpu",)


def trains_where_it_samples(train: str, model: str) -> bool:
    """Whether the policy trains on a device on which it also samples, by the same settings."""
    return bool(set(read_devices(model)) & set(training_devices(train, model)))


@contextmanager
def only_devices(devices: Sequence[str]) -> Iterator[None]:
    """Within the block, processes that start see only these GPUs."""
    before = os.environ.get("CUDA_VISIBLE_DEVICES")
    visible = before.split(",") if before else []
    numbers = [int(name.removeprefix("cuda:")) for name in devices if name.startswith("cuda:")]
    if numbers:
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(visible[n] if visible else str(n) for n in numbers)
    try:
        yield
    finally:
        if before is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = before
        elif numbers:
            del os.environ["CUDA_VISIBLE_DEVICES"]


def dtype_on(device: str, dtype: str) -> torch.dtype | str:
    """The type of weights on a device, for transformers; "auto" there means the checkpoint's own."""
    import torch

    if dtype == "auto":
        if device == "cpu":
            return "auto" if multiplies_bfloat16(device) else torch.float32
        return torch.bfloat16
    found: torch.dtype = getattr(torch, dtype)
    return found


def multiplies_bfloat16(device: str) -> bool:
    """Whether a device has instructions for products in bfloat16.

    Without them torch's products of 32 rows and more take 4 to 9 times as long as in float32.
    """
    import torch

    if device != "cpu":
        return True
    if not hasattr(torch.cpu, "get_capabilities"):  # torch < 2.11
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    found = torch.cpu.get_capabilities()
    return any(found.get(name) for name in ("avx512_bf16", "amx_bf16", "bf16"))


def told_threads() -> int:
    """OMP_NUM_THREADS; 0 if it is not set."""
    return int(os.environ.get("OMP_NUM_THREADS", "0").partition(",")[0])


def use_threads(wanted: int, model: Any) -> None:
    """Set torch's threads for a model on a CPU. 0: OMP_NUM_THREADS, else 1 for a small model, else one per core."""
    import torch

    wanted = wanted or told_threads()
    if not wanted:
        small = sum(p.numel() for p in model.parameters()) < SMALL
        wanted = 1 if small else cores()
    if wanted != torch.get_num_threads():
        torch.set_num_threads(wanted)


def told(model: Any) -> dict[str, Any]:
    """Device, type, attention and threads of a loaded model, for env.json."""
    import torch

    weight = model.get_input_embeddings().weight
    name = {"gpu": torch.cuda.get_device_name(weight.device)} if weight.device.type == "cuda" else {}
    return {
        "device": str(weight.device),
        **name,
        "dtype": str(weight.dtype).removeprefix("torch."),
        "attention": str(model.get_decoder().config._attn_implementation),
        "threads": torch.get_num_threads(),
    }


def release(device: torch.device) -> None:
    """Give memory that torch keeps for later use back to the device."""
    import torch

    if device.type == "cuda":
        torch.cuda.empty_cache()


def free_memory() -> int:
    """Bytes that are free on this machine, within the limit of its container."""
    free = [1 << 62]
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemAvailable:"):
            free.append(int(line.split()[1]) << 10)
    limit, used, stat = (_lines(f"/sys/fs/cgroup/memory.{name}") for name in ("max", "current", "stat"))
    if limit and used and limit[0].isdigit():
        files = sum(int(line.split()[1]) for line in stat if line.startswith("inactive_file "))  # dropped when needed
        free.append(int(limit[0]) - int(used[0]) + files)
    return min(free)


def _lines(file: str) -> list[str]:
    try:
        return Path(file).read_text().splitlines()
    except OSError:
        return []
