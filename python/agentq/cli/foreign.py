"""Detects another project's package of the same name. Imports nothing from agentq, which may be that project's."""

from __future__ import annotations

import sys
from pathlib import Path


def foreign_package() -> str | None:
    """A message if a distribution `agentq` is installed, which overwrites files of `agentq-search`; otherwise None."""
    for found in (info for folder in sys.path for info in Path(folder).glob("agentq-*.dist-info")):
        return (  # importlib.metadata takes 30 ms to import
            f"agentq must come from the package agentq-search alone; got another project's, {found.stem.replace('-', ' ')}, too: "
            "pip uninstall agentq, then pip install --force-reinstall agentq-search"
        )
    return None
