"""Language-model agents that get better by searching.

Importing the package loads nothing heavy; each name below is fetched from its own module when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentq._core import Forest, ucb1_score
    from agentq.errors import AgentqError, ConfigError, EnvError, MissingExtra, ModelError, StoreError
    from agentq.types import (
        Action,
        EnvAction,
        History,
        Observation,
        PreferencePair,
        Proposal,
        Sample,
        Split,
        Step,
        StepResult,
        Task,
        Trajectory,
    )

__version__ = "0.1.0"

_HOME = {
    "Forest": "agentq._core",
    "ucb1_score": "agentq._core",
    "AgentqError": "agentq.errors",
    "ConfigError": "agentq.errors",
    "EnvError": "agentq.errors",
    "MissingExtra": "agentq.errors",
    "ModelError": "agentq.errors",
    "StoreError": "agentq.errors",
    "Action": "agentq.types",
    "EnvAction": "agentq.types",
    "History": "agentq.types",
    "Observation": "agentq.types",
    "PreferencePair": "agentq.types",
    "Proposal": "agentq.types",
    "Sample": "agentq.types",
    "Split": "agentq.types",
    "Step": "agentq.types",
    "StepResult": "agentq.types",
    "Task": "agentq.types",
    "Trajectory": "agentq.types",
}

__all__ = [
    "Action",
    "AgentqError",
    "ConfigError",
    "EnvAction",
    "EnvError",
    "Forest",
    "History",
    "MissingExtra",
    "ModelError",
    "Observation",
    "PreferencePair",
    "Proposal",
    "Sample",
    "Split",
    "Step",
    "StepResult",
    "StoreError",
    "Task",
    "Trajectory",
    "ucb1_score",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'agentq' has no attribute {name!r}")
    try:
        home = importlib.import_module(_HOME[name])
    except ModuleNotFoundError as error:
        if error.name != "agentq._core":
            raise
        raise ImportError(
            f"agentq.{name} needs the compiled core, which is not built: run `make setup`, or `pip install -e .` "
            "in the source folder"
        ) from error
    value = getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
