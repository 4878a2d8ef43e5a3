"""The plain files of a run directory: JSON written whole or not at all, metric lines, environment facts."""

from __future__ import annotations

import importlib.metadata
import json
import math
import os
import platform
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agentq.errors import StoreError
from agentq.store.codec import jsonable

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
    """Write `value` beside `path`, then rename: a reader sees the old file or the new one, whole."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(json.dumps(value, indent=2, default=jsonable) + "\n", encoding="utf-8")
    beside.replace(path)


def read_json(path: Path) -> Any:
    """Raises StoreError if `path` cannot be read or is no JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StoreError(f"{path} must be readable; got {error.strerror}") from error
    except ValueError as error:
        raise StoreError(f"{path} is damaged: it must be JSON; got {error}") from error


def first_difference(stored: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[str, Any, Any] | None:
    """The first dotted key, in order, at which two nested settings differ, with both values (None: absent)."""
    flat_stored, flat_given = dict(flatten(stored)), dict(flatten(given))
    for key in sorted(flat_stored.keys() | flat_given.keys()):
        if flat_stored.get(key) != flat_given.get(key):
            return key, flat_stored.get(key), flat_given.get(key)
    return None


def flatten(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, value) of every leaf."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def environment_info(config: Mapping[str, Any]) -> dict[str, Any]:
    """What a result depends on besides the settings: versions, source commit, platform, seeds."""
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


def source_commit() -> str | None:
    """The git commit of agentq's own source, with `+changes` if tracked files differ; None where it is no checkout."""
    folder = Path(__file__).parent

    def git(*words: str) -> str:
        done = subprocess.run(("git", *words), cwd=folder, capture_output=True, text=True, timeout=10, check=True)
        return done.stdout.strip()

    try:
        git("ls-files", "--error-unmatch", Path(__file__).name)  # not some other project around an installed package
        return git("rev-parse", "HEAD") + ("+changes" if git("status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def metric_line(stage: str, step: int, metrics: Mapping[str, Any]) -> str:
    """One line of metrics.jsonl. A number that is not finite becomes null, which every JSON reader knows."""
    values = {name: value.item() if hasattr(value, "item") else value for name, value in metrics.items()}
    finite = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}
    return json.dumps({"stage": stage, "step": step, **finite}) + "\n"


def cut_torn_line(path: Path) -> None:
    """Drop what a killed writer left of its last line."""
    if not path.exists():
        return
    with path.open("rb+") as file:
        data = file.read()
        whole = data.rfind(b"\n") + 1
        if whole != len(data):
            file.truncate(whole)


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl in order. A step logged again after a resume counts once, with its last values.

    A torn last line is left out; any other line that is no JSON raises `StoreError`.
    """
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    for number, line in enumerate(lines[:-1], start=1):
        try:
            row = json.loads(line)
            rows[row["stage"], row["step"]] = row
        except (ValueError, KeyError, TypeError) as error:
            raise StoreError(f"{path} is damaged: line {number} must be a JSON object; got {line[:60]!r}") from error
    return list(rows.values())
