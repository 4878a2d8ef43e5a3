"""What policies and engines are. A policy proposes actions; an engine samples text for policies, critics and judges.

All calls are coroutines: searches of many tasks wait at once, and an engine makes of what waits what suits it best, one
large batch or a steady stream.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Flag, auto
from pathlib import Path
from typing import Protocol

import numpy as np

from agentq.agent.prompts import Messages
from agentq.policies.usage import Usage
from agentq.types import History, Proposal, StopReason


class Gives(Flag):
    """What an engine gives of its samples besides their text. Training needs TOKEN_IDS and LOGPS."""

    TEXT = 0
    TOKEN_IDS = auto()  # those that it read and sampled
    LOGPS = auto()  # of the sampled ones, at temperature 1
    SEEDS = auto()  # equal requests give equal samples
    PATTERNS = auto()  # answers held to `SampleRequest.pattern`


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is sent to an engine; `ids` `[P]` int32 as its model reads it, empty where the engine does not tell."""

    messages: Messages
    ids: np.ndarray


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """`k` samples of one prompt at a temperature >= 0 (0: greedy); `role` is whom it is accounted to.

    `pattern`: a regular expression that whole answers match, unless they are cut off; empty: none. Only for engines
    that give PATTERNS. Log-probabilities stay those of the free model; an engine without them gives none, nor
    token ids.
    """

    prompt: Prompt
    k: int = 1
    seed: int = 0
    temperature: float = 1.0
    max_new_tokens: int = 96
    role: str = "policy"
    pattern: str = ""


@dataclass(frozen=True, slots=True)
class SampledAnswer:
    """One answer. `token_ids` `[T]` int32 and `logps` `[T]` float32 in nats at temperature 1; empty where not given.

    `version` is that of the weights that sampled it.
    """

    text: str
    token_ids: np.ndarray
    logps: np.ndarray
    stop_reason: StopReason
    version: int


def without_tokens(sample: SampledAnswer) -> SampledAnswer:
    """The text of a sample whose log-probabilities are not those of the free model."""
    return replace(sample, token_ids=np.empty(0, np.int32), logps=np.empty(0, np.float32))


class Engine(Protocol):
    """A language model that can be asked by many at once."""

    name: str
    gives: Gives

    @property
    def version(self) -> int:
        """Of the weights."""
        ...

    @property
    def usage(self) -> Usage:
        """What it was asked and what it took so far."""
        ...

    def render(self, history: History, compose: Callable[[History], Messages], *, max_new_tokens: int) -> Prompt:
        """The prompt that `compose` makes of a history; without its oldest actions where it would not fit."""
        ...

    def encode_answer(self, text: str) -> np.ndarray:
        """`[T]` int32 ids of a whole answer, the end token last; empty where the engine does not tell."""
        ...

    async def sample(self, request: SampleRequest) -> list[SampledAnswer]:
        """`request.k` samples; they depend on the request and the weights alone. The prompt is prefilled once."""
        ...

    def publish(self, checkpoint: Path) -> int:
        """Move to a checkpoint's weights, of the same shapes; returns the new version, that of every later sample.

        Raises:
            ModelError: if they cannot be loaded; the engine then goes on as before.
        """
        ...

    def close(self) -> None:
        """Let go of processes, connections and caches; nothing is asked after."""
        ...


class Policy(Protocol):
    """Samples actions."""

    @property
    def version(self) -> int:
        """Of the weights; marks every proposal."""
        ...

    async def propose(self, history: History, k: int, *, seed: int, temperature: float = 1.0) -> list[Proposal]:
        """`k` proposals at a history; equal (history, k, seed, version) give equal ones, whatever is asked beside.

        Args:
            history: what to act on.
            k: at least 1.
            seed: of the samples.
            temperature: at least 0; 0 is greedy. Recorded log-probabilities are always at 1.
        """
        ...
