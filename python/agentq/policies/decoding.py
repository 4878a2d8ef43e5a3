"""Continuous batching: each step computes one token per sample of the running requests. Independent of the model.

    1. admit    waiting requests take free rows
    2. compute  one forward pass over the prompts of new rows and the next token of each branch of the others
    3. draw     one token per sample
    4. part     samples of a branch that drew the same token stay together; a row leaves when all its samples have ended

If memory does not suffice for a step, all its requests wait again, and from then on half as many are computed at once.
A sample depends on its prompt and seed alone, so they get the same answers.

Source of scheduling per step instead of per batch of requests: Yu et al. 2022, "Orca", OSDI 2022, section 4.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from agentq import _core
from agentq.errors import ModelError, says_no_memory
from agentq.policies.columns import Columns, Growth, PromptRow, SharedColumns
from agentq.policies.masks import hold, parted
from agentq.policies.protocol import SampledAnswer, SampleRequest, before_stop
from agentq.policies.renderer import Renderer
from agentq.policies.trial import not_finite
from agentq.policies.usage import Usage
from agentq.types import StopReason

PROMPT_TOKENS = 2048  # limit for new rows in one step, unless a single prompt is longer; bounds activation memory


class Answering:
    """A running request: the tokens and log-probabilities of each sample so far. `samples` is filled at the end."""

    growth: Growth

    def __init__(self, request: SampleRequest, version: int, letter_ids: list[int], matcher: Any) -> None:
        self.request, self.version, self.arrived = request, version, time.perf_counter()
        self.letter_ids, self.letter_logps = letter_ids, tuple[float, ...]()
        k, most = request.k, request.max_new_tokens
        self.uniforms = np.random.Generator(np.random.Philox(key=request.seed)).random((most, k))
        self.samples: list[SampledAnswer] = []
        self.begin(matcher)

    def begin(self, matcher: Any) -> None:
        """Forget all tokens. `matcher`: of the request's pattern at its start."""
        k = self.request.k
        self.tokens: list[list[int]] = [[] for _ in range(k)]
        self.logps: list[list[float]] = [[] for _ in range(k)]
        self.branches, self.matchers = [list(range(k))], [matcher]  # the samples and the pattern's state of each branch
        self.row: PromptRow | None = None


@dataclass(slots=True)
class Limit:
    """How many requests are computed at once. Halved when memory does not suffice."""

    rows: int


class Decoding:
    """Computes at most `limit` requests at once. `matcher` compiles a pattern. `halted` stops further steps."""

    def __init__(
        self, columns: Columns, renderer: Renderer, usage: Usage, *, limit: Limit, matcher: Callable[[str], Any]
    ) -> None:
        self.columns, self.renderer, self.usage = columns, renderer, usage
        self.limit, self.matcher, self.halted = limit, matcher, False
        self.waiting: deque[Answering] = deque()
        self.rows: list[Answering] = []

    def add(self, request: SampleRequest, version: int) -> Answering:
        """Queue a request. `version` is recorded in its samples. Raises ModelError for an invalid pattern or letter."""
        letter_ids = self.renderer.letter_ids(request.letters)
        self.waiting.append(Answering(request, version, letter_ids, self._matcher_of(request)))
        return self.waiting[-1]

    def remove(self, answering: Answering) -> None:
        """Remove a waiting or running request."""
        (self.waiting if answering in self.waiting else self.rows).remove(answering)

    def _matcher_of(self, request: SampleRequest) -> Any:
        return self.matcher(request.pattern) if request.pattern else None

    @torch.inference_mode()
    def step(self) -> list[Answering]:
        """Compute one token per sample. Returns the requests whose samples have all ended."""
        try:
            return self._step()
        except Exception as error:
            if len(self.rows) < 2 or not says_no_memory(error):
                raise
        self._begin_again()
        return []

    def _begin_again(self) -> None:
        """Return all rows to the waiting requests, and compute half as many at once."""
        n = len(self.rows)
        self.limit.rows = n // 2
        told = f"agentq: the model must have memory for {n} prompts at once; it has not, and goes on with {n // 2}"
        print(told, file=sys.stderr)
        while self.rows:
            a = self.rows.pop()
            del a.growth
            a.begin(self._matcher_of(a.request))
            self.waiting.appendleft(a)

    def _step(self) -> list[Answering]:
        begun = time.perf_counter()
        self._admit()
        logits = self.columns.forward([a.growth for a in self.rows])
        tokens, logps = self._draw(logits)
        n = 0
        for a in self.rows:
            stop = n + len(a.branches)
            if a.letter_ids and not a.growth.tokens:
                a.letter_logps = tuple(torch.log_softmax(logits[n], dim=-1)[a.letter_ids].tolist())
            self._part(a, tokens[n:stop], logps[n:stop])
            n = stop
        ended = [a for a in self.rows if not a.branches]
        self.rows = [a for a in self.rows if a.branches]
        for a in ended:
            self._end(a)
        self.usage.seconds += time.perf_counter() - begun
        return ended

    def _admit(self) -> None:
        """Give free rows to waiting requests while their prompts fit into this step."""
        room = PROMPT_TOKENS
        while self.waiting and len(self.rows) < self.limit.rows:
            a = self.waiting[0]
            a.row = a.row or self.columns.begin(a.request.prompt.ids, adapted=a.request.adapted)
            if room < min(a.row.num_new, PROMPT_TOKENS):
                break
            room -= a.row.num_new
            a.growth = Growth(a.row)
            self.rows.append(self.waiting.popleft())
            tally = self.usage.of(a.request.role)
            tally.queue_s += time.perf_counter() - a.arrived

    def _draw(self, logits: Tensor) -> tuple[list[list[int]], list[list[float]]]:
        """The next tokens of all samples and their log-probabilities, from `[N, V]` logits, one row per branch."""
        branches = [(a, samples) for a in self.rows for samples in a.branches]
        uniforms = np.zeros((len(branches), max(len(samples) for _, samples in branches)))
        for row, (a, samples) in zip(uniforms, branches, strict=True):
            row[: len(samples)] = a.uniforms[len(a.tokens[samples[0]]), samples]
        temperatures = np.array([a.request.temperature for a, _ in branches])
        allowed = hold(logits, [matcher for a in self.rows for matcher in a.matchers])
        if logits.device.type == "cpu":
            tokens, logps = _core.draw_tokens(logits.numpy(), allowed.numpy(), uniforms, temperatures)
        else:
            warmth = torch.from_numpy(temperatures).float()
            drawn = draw(logits, allowed, torch.from_numpy(uniforms), warmth)
            tokens, logps = (x.cpu().numpy() for x in drawn)
        if not np.isfinite(logps).all():
            columns: Any = self.columns
            raise ModelError(not_finite(columns.decoder if isinstance(columns, SharedColumns) else columns.model))
        return tokens.tolist(), logps.tolist()

    def _part(self, a: Answering, tokens: list[list[int]], logps: list[list[float]]) -> None:
        """Append the drawn tokens to the samples. Unfinished samples that drew the same token stay one branch."""
        branches, matchers = list[list[int]](), list[Any]()
        parents, grown = list[int](), list[int]()
        for parent, samples in enumerate(a.branches):
            apart: dict[int, list[int]] = {}
            for sample, token, logp in zip(samples, tokens[parent], logps[parent], strict=False):
                a.tokens[sample].append(token)
                a.logps[sample].append(logp)
                if not self._over(a, sample) and len(a.tokens[sample]) < a.request.max_new_tokens:
                    apart.setdefault(token, []).append(sample)
            branches += apart.values()
            parents += [parent] * len(apart)
            grown += apart
            matchers += parted(a.matchers[parent], list(apart))
        a.branches, a.matchers, a.growth = branches, matchers, Growth(a.growth.row, grown, parents)

    def _over(self, a: Answering, sample: int) -> bool:
        """Whether a sample ends with an end token or a stop text."""
        tokens = a.tokens[sample]
        if tokens[-1] in self.renderer.end_ids or not a.request.stop:
            return tokens[-1] in self.renderer.end_ids
        longest = max(map(len, a.request.stop))  # a token is at least a byte, and a character at most four
        end = self.renderer.decode(np.asarray(tokens[-4 * longest :]))
        return any(stop in end for stop in a.request.stop)

    def _end(self, a: Answering) -> None:
        for sample, (tokens, logps) in enumerate(zip(a.tokens, a.logps, strict=True)):
            ids, told = np.asarray(tokens, dtype=np.int32), np.asarray(logps, dtype=np.float32)
            reason = StopReason.EOS if self._over(a, sample) else StopReason.LENGTH
            text = before_stop(self.renderer.decode(ids), a.request.stop)
            a.samples.append(SampledAnswer(text, ids, told, reason, a.version, a.letter_logps))
        tally = self.usage.of(a.request.role)
        tally.requests += 1
        tally.prompt_tokens += len(a.request.prompt.ids)
        tally.cached_tokens += a.growth.row.num_cached
        tally.shortened += a.request.prompt.shortened > 0
        tally.generated_tokens += sum(map(len, a.tokens))
        del a.row, a.growth  # with the last reference to a row, its keys and values are freed


def draw(logits: Tensor, allowed: Tensor, uniforms: Tensor, temperatures: Tensor) -> tuple[Tensor, Tensor]:
    """`_core.draw_tokens` on an accelerator.

    Args:
        logits: `[N, V]`.
        allowed: `[N, V]` the same logits, with minus infinity for forbidden tokens.
        uniforms: `[N, M]` in [0, 1), float64.
        temperatures: `[N]` at least 0; 0 takes the likeliest token.

    Returns:
        Tokens `[N, M]` and log-probabilities `[N, M]` in nats. If a row of logits has NaN, plus infinity, or nothing
        but minus infinity, its log-probabilities are NaN.
    """
    warm = temperatures > 0
    some_warm, all_warm = bool(warm.any()), bool(warm.all())  # while they are on the CPU
    uniforms = uniforms.float().clamp_max_(1 - 2**-24).to(logits.device)  # the largest float32 below 1
    temperatures, warm = temperatures.to(logits.device), warm.to(logits.device)[:, None]
    if some_warm:
        cumulative = torch.softmax(allowed / torch.where(warm, temperatures[:, None], 1.0), dim=-1).cumsum(dim=-1)
        tokens = torch.searchsorted(cumulative, uniforms * cumulative[:, -1:], right=True)
        tokens.clamp_max_(logits.shape[1] - 1)  # NaN gives V
    if not all_warm:
        likeliest = allowed.argmax(dim=-1, keepdim=True).expand_as(uniforms)
        tokens = torch.where(warm, tokens, likeliest) if some_warm else likeliest
    return tokens, torch.log_softmax(logits, dim=-1).gather(-1, tokens)
