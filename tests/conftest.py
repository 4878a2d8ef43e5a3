"""What every test run prints first: the versions that a failure may depend on."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

NAMES = ("agentq", "numpy", "pydantic", "torch", "transformers", "playwright", "hypothesis")


def pytest_report_header() -> str:
    found = [f"python {platform.python_version()}"]
    for name in NAMES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"{name} absent")
    return ", ".join(found)
