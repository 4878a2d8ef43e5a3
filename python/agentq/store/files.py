"""The plain files of a run directory: JSON written whole or not at all, appended lines, facts about the environment."""

from __future__ import annotations

import importlib.metadata
import json
import math
import os
import platform
import subprocess
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from agentq.errors import StoreError
from agentq.store.codec import jsonable
from agentq.store.durable import disk_named, sync, write_whole
from agentq.store.system import FLAGS

PACKAGES = (
    "agentq-search",
    "numpy",
    "pydantic",
    "torch",
    "transformers",
    "tokenizers",
    "safetensors",
    "peft",
    "vllm",
    "playwright",
)


def write_json(path: Path, value: Any) -> None:
    """`write_whole` of a value as JSON. Raises StoreError if writing fails."""
    write_whole(path, (json.dumps(value, indent=2, default=jsonable) + "\n").encode())


def read_json(path: Path) -> Any:
    """Raises StoreError if `path` cannot be read or is no JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StoreError(f"{path} must be readable; got {error.strerror}") from error
    except ValueError as error:
        raise StoreError(f"{path} is damaged: it must be JSON; got {error}") from error


def read_object(path: Path) -> dict[str, Any]:
    """`read_json` of a file that holds a JSON object. Raises StoreError if it holds anything else."""
    return as_object(read_json(path), path)


def as_object(found: Any, source: Path | str) -> dict[str, Any]:
    """The JSON object `found`. Raises StoreError, which names its source, if it is anything else."""
    if not isinstance(found, dict):
        raise StoreError(f"{source} is damaged: it must be a JSON object; got {type(found).__name__}")
    return found


def first_difference(
    stored: Mapping[str, Any], given: Mapping[str, Any], grows: Collection[str] = ()
) -> tuple[str, Any, Any] | None:
    """The first dotted key, in order, at which two nested settings differ, with both values (None: absent).

    `grows`: keys of numbers that may be higher in `given`.
    """
    flat_stored, flat_given = dict(flatten(stored)), dict(flatten(given))
    for key in sorted(flat_stored.keys() | flat_given.keys()):
        was, now = flat_stored.get(key), flat_given.get(key)
        if was != now and not (key in grows and was is not None and now is not None and now > was):
            return key, was, now
    return None


def flatten(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, value) of every leaf."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def environment_info(config: Mapping[str, Any]) -> dict[str, Any]:
    """What results depend on besides the settings: versions, source commit, platform, seeds."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "versions": versions,
        "commit": source_commit(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu_count": os.cpu_count(),
        "seeds": {key: value for key, value in flatten(config) if key.split(".")[-1] == "seed"},
    }


def note_model(run: Path, name: str, told: Mapping[str, Any]) -> None:
    """Note in a run's env.json where and how a model ran."""
    noted = read_object(run / "env.json") if (run / "env.json").exists() else {}
    models = noted.setdefault("models", {})
    if told and models.get(name) != told:
        models[name] = dict(told)
        write_json(run / "env.json", noted)


def source_commit() -> str | None:
    """The git commit of agentq's own source, with `+changes` if tracked files differ; None if it is no checkout."""
    folder = Path(__file__).parent

    def git(*words: str) -> str:
        done = subprocess.run(("git", *words), cwd=folder, capture_output=True, text=True, timeout=10, check=True)
        return done.stdout.strip()

    try:
        git("ls-files", "--error-unmatch", Path(__file__).name)  # not a project around an installed package
        return git("rev-parse", "HEAD") + ("+changes" if git("status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def metric_line(stage: str, step: int, metrics: Mapping[str, Any]) -> str:
    """One line of metrics.jsonl. A number that is not finite becomes null, which every JSON reader accepts."""
    values = {name: value.item() if hasattr(value, "item") else value for name, value in metrics.items()}
    finite = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}
    return json.dumps({"stage": stage, "step": step, **finite}) + "\n"


class Lines:
    """The end of a file of lines, for appending: each line is on the disk when `append` returns."""

    def __init__(self, path: Path) -> None:
        """Raises StoreError if `path` cannot be opened for writing, or is a link."""
        self.path = path
        with disk_named(path):
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | FLAGS
            self._handle = os.open(path, flags, 0o666)
            sync(path.parent)

    def append(self, line: str) -> None:
        """Add a line that ends in a newline. Raises StoreError, without adding it, if writing fails."""
        data = line.encode()
        with disk_named(self.path):
            size = os.fstat(self._handle).st_size
            try:
                while data:
                    data = data[os.write(self._handle, data) :]
                os.fsync(self._handle)
            except OSError:
                os.ftruncate(self._handle, size)
                raise

    def close(self) -> None:
        """Release the file; call it once."""
        os.close(self._handle)


def cut_torn_line(path: Path) -> None:
    """Drop a last line that a killed writer or a power cut left incomplete, and sync the rest."""
    if not path.exists():
        return
    with open(os.open(path, os.O_RDWR | FLAGS), "rb+") as file:
        data = file.read()
        whole = len(data) - len(_torn(data))
        if whole != len(data):
            file.truncate(whole)
        os.fsync(file.fileno())


def _torn(data: bytes) -> bytes:
    """The incomplete end of `data`. Only the last line can be torn, and even its first bytes may be missing."""
    end = data.rfind(b"\n") + 1
    if end != len(data):
        return data[end:]
    last = data[data.rfind(b"\n", 0, max(0, end - 1)) + 1 :]
    return b"" if _row(last) is not None or not last else last


def _row(line: bytes) -> dict[str, Any] | None:
    """A row of metrics.jsonl; None if the line is invalid."""
    try:
        row = json.loads(line)
    except ValueError:
        return None
    known = isinstance(row, dict) and isinstance(row.get("stage"), str) and isinstance(row.get("step"), int)
    return row if known else None


def read_metrics(path: Path, lost: list[str] | None = None) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl in order. A step logged again after a resume appears once, with its last values.

    A torn last line is left out. Another invalid line raises `StoreError`; with `lost`, that gets the message instead.
    """
    if not path.exists():
        return []
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StoreError(f"{path} must be readable; got {error.strerror}") from error
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    for number, line in enumerate(data.removesuffix(_torn(data)).split(b"\n")[:-1], start=1):
        row = _row(line)
        if row is None:
            text = line[:60].decode(errors="replace")
            damage = f"{path} is damaged: line {number} must be a JSON object; got {text!r}"
            if lost is None:
                raise StoreError(damage)
            lost.append(damage)
            continue
        rows[row["stage"], row["step"]] = row
    return list(rows.values())
