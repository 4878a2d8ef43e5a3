"""The machine and the commit that a benchmark's figures come from."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any


def machine(*packages: str) -> dict[str, Any]:
    """The machine, and the versions of those `packages` that are installed."""
    cpu = ""
    if (info := Path("/proc/cpuinfo")).exists():
        cpu = next((x.split(":")[1].strip() for x in info.read_text().splitlines() if x.startswith("model name")), "")
    versions = {}
    for package in packages:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return {
        "platform": platform.platform(),
        "processor": cpu or platform.processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "packages": versions,
    }


def commit() -> str:
    """The commit of the working tree, with "-dirty" if it has changes; empty without git."""
    words = ["git", "describe", "--always", "--dirty", "--abbrev=7", "--exclude=*"]
    try:
        return subprocess.run(words, cwd=Path(__file__).parent, capture_output=True, text=True).stdout.strip()
    except FileNotFoundError:
        return ""


def target(value: float, target: float, at_most: bool = False) -> dict[str, Any]:
    return {"value": value, "target": target, "met": value <= target if at_most else value >= target}
