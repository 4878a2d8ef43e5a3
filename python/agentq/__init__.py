"""Language-model agents that get better by searching. These names are what a script needs.

    search, evaluate, train         search one task, measure a model, train by a recipe; each has an _async twin
    SearchResult, Evaluation        what the first two return
    Env, Policy, Critic             the interfaces you can implement
    Learner, RunStore, Forest       the parts, for your own loops
    PreferencePair, node_pairs      training data

Importing the package loads nothing heavy. Each name is fetched from its module when it is first used. Everything else
is imported from the module that defines it, such as `agentq.errors` or `agentq.types`.

It sets MKL_CBWR to AUTO,STRICT unless it is set: training with several threads on a CPU then gives the same weights bit
for bit when it is resumed or repeated. Products of float32 matrices take up to a fifth longer.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

# MKL reads this at its first product. Without it, some processors' products depend on where in memory the numbers lie.
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")

if TYPE_CHECKING:
    from agentq._core import Forest
    from agentq.api import evaluate, evaluate_async, search, search_async
    from agentq.credit.pairs import node_pairs
    from agentq.critics.protocol import Critic
    from agentq.envs.protocol import Env
    from agentq.errors import AgentqError, EnvError
    from agentq.learn.learner import Learner
    from agentq.policies.protocol import Policy
    from agentq.results import Evaluation, SearchResult
    from agentq.store.run import RunStore
    from agentq.training import train, train_async
    from agentq.types import (
        Action,
        EnvAction,
        History,
        Observation,
        PreferencePair,
        Split,
        Task,
        Trajectory,
    )

_HOME = {
    "Action": "agentq.types",
    "AgentqError": "agentq.errors",
    "Critic": "agentq.critics.protocol",
    "Env": "agentq.envs.protocol",
    "EnvAction": "agentq.types",
    "EnvError": "agentq.errors",
    "Evaluation": "agentq.results",
    "Forest": "agentq._core",
    "History": "agentq.types",
    "Learner": "agentq.learn.learner",
    "Observation": "agentq.types",
    "Policy": "agentq.policies.protocol",
    "PreferencePair": "agentq.types",
    "RunStore": "agentq.store.run",
    "SearchResult": "agentq.results",
    "Split": "agentq.types",
    "Task": "agentq.types",
    "Trajectory": "agentq.types",
    "evaluate": "agentq.api",
    "evaluate_async": "agentq.api",
    "node_pairs": "agentq.credit.pairs",
    "search": "agentq.api",
    "search_async": "agentq.api",
    "train": "agentq.training",
    "train_async": "agentq.training",
}

__all__ = [
    "Action",
    "AgentqError",
    "Critic",
    "Env",
    "EnvAction",
    "EnvError",
    "Evaluation",
    "Forest",
    "History",
    "Learner",
    "Observation",
    "Policy",
    "PreferencePair",
    "RunStore",
    "SearchResult",
    "Split",
    "Task",
    "Trajectory",
    "evaluate",
    "evaluate_async",
    "node_pairs",
    "search",
    "search_async",
    "train",
    "train_async",
]

if TYPE_CHECKING:
    __version__: str

if not TYPE_CHECKING:  # type checkers know the names above, and would take any name from this

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            from importlib.metadata import PackageNotFoundError, version  # takes 30 ms

            try:
                return version("agentq-search")
            except PackageNotFoundError:  # a source folder on sys.path
                return "unknown"
        if name not in _HOME:
            raise AttributeError(f"module 'agentq' has no attribute {name!r}")
        try:
            home = importlib.import_module(_HOME[name])
        except ModuleNotFoundError as error:
            if error.name == "agentq._core":
                raise ImportError(
                    f"agentq.{name} needs the compiled core, which is not built: run `make setup`, or "
                    "`pip install -e .` in the source folder"
                ) from error
            if error.name in ("torch", "transformers"):
                from agentq.errors import MissingExtra

                raise MissingExtra(f"agentq.{name} needs {error.name}: pip install 'agentq-search[train]'") from error
            raise
        value = getattr(home, name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
