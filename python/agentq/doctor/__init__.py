"""`agentq doctor`: examines a machine, a model and an environment, and says what to do about each fault.

A check is a function of the `Patient` that returns a `Diagnosis`. Checks run in the order of `checks.CHECKS`, since
later ones use what earlier ones have loaded: `machine` needs no torch, `reading` a tokenizer, `acting` the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from agentq.model_settings import ModelSettings

if TYPE_CHECKING:
    from agentq.policies.protocol import Engine
    from agentq.types import EnvAction, History, Sample

Verdict = Literal["ok", "warn", "fail", "skipped"]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A verdict, what was found, and what to do; `remedy` is empty if there is nothing to do, or `found` says it."""

    verdict: Verdict
    found: str
    remedy: str = ""


@dataclass(slots=True)
class Patient:
    """What is examined, and what the checks so far have found.

    Attributes:
        model: an engine's name, or the path of a checkpoint.
        env: the name of an environment.
        settings: how the model runs and answers.
        vllm: arguments of vLLM's engine.
        renderer: the `Renderer` of the model's tokenizer; None if only a server has it.
        engine: the model, once it is loaded.
        firsts: the first pages of some tasks.
        samples: actions sampled on them, with token ids and log-probabilities.
        proposed: at most four different actions among them.
        readable: the share of sampled actions that could be read; None before there are any.
        fits: whether the learner fits into memory; None if that is unknown.
    """

    model: Path | str
    env: str
    settings: ModelSettings = field(default_factory=ModelSettings)
    vllm: Mapping[str, Any] = field(default_factory=dict)
    renderer: Any = None
    engine: Engine | None = None
    firsts: list[History] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    proposed: list[EnvAction] = field(default_factory=list)
    readable: float | None = None
    fits: bool | None = None
