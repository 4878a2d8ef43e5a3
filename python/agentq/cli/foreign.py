"""Detects another project's package of the same name. Imports nothing from agentq, which may be that project's."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution


def foreign_package() -> str | None:
    """A message if a distribution `agentq` is installed, which overwrites files of `agentq-search`; otherwise None."""
    try:
        found = distribution("agentq")
    except PackageNotFoundError:
        return None
    return (
        f"agentq must come from the package agentq-search alone; got another project's, agentq {found.version}, too: "
        "pip uninstall agentq, then pip install --force-reinstall agentq-search"
    )
