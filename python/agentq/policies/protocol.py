"""What policies and engines are. A policy proposes actions; an engine samples text for policies, critics and judges.

Sampling calls are coroutines. Searches of many tasks wait at the same time, and an engine may serve their requests in
large batches or as a stream.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Flag, auto
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from agentq.agent.prompts import Messages
from agentq.policies.usage import Usage
from agentq.types import History, Proposal, StopReason

MAX_LIKELIEST = 20  # log-probabilities per token that OpenAI's API and vLLM return at most


class Gives(Flag):
    """What an engine returns for a sample besides its text. Training needs TOKEN_IDS and LOGPS."""

    TEXT = 0
    TOKEN_IDS = auto()  # ids of the prompt and of the samples
    LOGPS = auto()  # log-probabilities of the sampled tokens at temperature 1
    SEEDS = auto()  # equal requests give equal samples
    PATTERNS = auto()  # answers match `SampleRequest.pattern`
    BASE = auto()  # samples without the published adapter, see `SampleRequest.adapted`
    LETTERS = auto()  # log-probabilities of `SampleRequest.letters`


@dataclass(frozen=True, slots=True)
class Prompt:
    """The input of an engine. `ids` `[P]` int32: the tokens that its model reads; may be empty.

    `shortened`: number of oldest actions, and of ends of pages, that were left out because the context has no room
    for them. `thinking`: the opening mark of thinking at the prompt's end; empty without one.
    """

    messages: Messages
    ids: np.ndarray
    shortened: int = 0
    thinking: str = ""

    def said(self, answer: SampledAnswer) -> str:
        """The text of an answer. If it was cut off, it goes on with the prompt's thinking until that is closed."""
        return self.thinking + answer.text if answer.stop_reason is StopReason.LENGTH else answer.text


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """`k` samples of one prompt at a temperature >= 0 (0: greedy). `role`: the role for which usage is counted.

    `pattern`: a regular expression that whole answers match unless they are cut off; empty for none. It needs an engine
    that gives PATTERNS. Log-probabilities are those of the unconstrained model; an engine that cannot compute them
    returns neither log-probabilities nor token ids.

    `stop`: texts that end an answer. The answer's text ends before the stop, its tokens with it. `adapted`: whether a
    published adapter is applied; if not, the engine's first weights answer.

    `letters`: characters whose log-probabilities as the answer's first token are returned; empty for none. Each must be
    one token after a prompt. It needs an engine that gives LETTERS.
    """

    prompt: Prompt
    k: int = 1
    seed: int = 0
    temperature: float = 1.0
    max_new_tokens: int = 96
    role: str = "policy"
    pattern: str = ""
    stop: tuple[str, ...] = ()
    adapted: bool = True
    letters: str = ""

    @property
    def held(self) -> str:
        """The pattern that the answer is held to: `pattern`, or any of the letters."""
        return self.pattern or (f"[{self.letters}]" if self.letters else "")


@dataclass(frozen=True, slots=True)
class SampledAnswer:
    """One answer. `token_ids` `[T]` int32 and `logps` `[T]` float32 in nats at temperature 1; empty if not given.

    `version`: version of the weights that sampled the answer. `letter_logps`: log-probabilities of the requested
    letters in nats, up to a common constant. A letter that is not among the likeliest tokens that a server reports has
    the least reported log-probability, which is an upper bound.
    """

    text: str
    token_ids: np.ndarray
    logps: np.ndarray
    stop_reason: StopReason
    version: int
    letter_logps: tuple[float, ...] = ()


def with_floor(told: Mapping[Any, float], wanted: Sequence[Any]) -> tuple[float, ...]:
    """The log-probabilities of the tokens that are wanted; the least of those `told` for a token that is not."""
    floor = min(told.values(), default=0.0)
    return tuple(told.get(token, floor) for token in wanted)


def before_stop(text: str, stop: Sequence[str]) -> str:
    """`text` up to the first of the stops."""
    return text[: min((at for each in stop if (at := text.find(each)) >= 0), default=len(text))]


def without_tokens(sample: SampledAnswer) -> SampledAnswer:
    """The text alone, for a sample whose log-probabilities are not those of the unconstrained model."""
    return replace(sample, token_ids=np.empty(0, np.int32), logps=np.empty(0, np.float32))


class Engine(Protocol):
    """A language model that serves many requests at the same time."""

    name: str
    gives: Gives

    @property
    def version(self) -> int:
        """Version of the weights being served."""
        ...

    @property
    def usage(self) -> Usage:
        """Requests, tokens and time so far."""
        ...

    def render(self, history: History, compose: Callable[[History], Messages], *, max_new_tokens: int) -> Prompt:
        """The prompt that `compose` makes of a history; the oldest actions are left out if it would not fit."""
        ...

    def encode_answer(self, text: str) -> np.ndarray:
        """`[T]` int32 ids of a whole answer, the end token last; empty if the engine does not report token ids."""
        ...

    async def sample(self, request: SampleRequest) -> list[SampledAnswer]:
        """`request.k` samples, which depend only on the request and the weights. The prompt is prefilled once."""
        ...

    def publish(self, checkpoint: Path) -> int:
        """Serve a checkpoint's weights, of the same shapes. Returns the new version, which later samples carry.

        Raises:
            ModelError: if they cannot be loaded; the engine then keeps the old weights.
        """
        ...

    def close(self) -> None:
        """Release processes, connections and caches. No request may follow."""
        ...


@runtime_checkable
class Sleeper(Protocol):
    """An engine that can free its device while the policy trains there."""

    def sleep(self) -> None:
        """Free the device until `publish`, which wakes the engine with the new weights. No request may come between."""
        ...


class Policy(Protocol):
    """Samples actions."""

    @property
    def version(self) -> int:
        """Version of the weights; every proposal records it."""
        ...

    async def propose(self, history: History, k: int, *, seed: int, temperature: float = 1.0) -> list[Proposal]:
        """`k` proposals at a history; equal (history, k, seed, version) give equal proposals, whatever else is sampled.

        Args:
            history: what to act on.
            k: at least 1.
            seed: seed of the samples.
            temperature: at least 0; 0 is greedy. Recorded log-probabilities are always those at temperature 1.
        """
        ...
