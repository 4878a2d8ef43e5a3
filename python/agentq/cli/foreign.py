"""Detects another project's package of the same name. Imports nothing from agentq, which may be that project's."""

from __future__ import annotations

import sys
from pathlib import Path


def foreign_package() -> str | None:
    """A message if a distribution `agentq` is installed, which overwrites files of `agentq-search`; otherwise None."""
    for folder in map(Path, sys.path):
        for found in folder.glob("agentq-*.dist-info"):  # importlib.metadata takes 30 ms to import
            return (
                "agentq must come from the package agentq-search alone; got another project's, agentq "
                f"{found.stem.removeprefix('agentq-')}, too: "
                "pip uninstall agentq, then pip install --force-reinstall agentq-search"
            )
    return None
