"""An OpenAI-compatible server as an engine. Its abilities are probed at the start and declared in `gives`.

A server that accepts and returns token ids (vLLM) continues prompts that are rendered here. Any other server gets
messages and returns text alone. In messages, the marks of known chat templates and those that the server reports are
broken.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import date as Date
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from agentq.agent.thinking import only_ends
from agentq.errors import ConfigError, MissingExtra, ModelError
from agentq.policies.continuous import ContinuousEngine, EngineReply
from agentq.policies.fence import Fence
from agentq.policies.marks import KNOWN, literals
from agentq.policies.openai_answers import Tokens, Written, in_order
from agentq.policies.openai_chats import Chats, billed
from agentq.policies.openai_client import BROKEN_OFF, NO_CONNECTION, OpenAIClient, Refused
from agentq.policies.openai_probes import CHAT, PROBE, Probes, card_of
from agentq.policies.patience import FIRST_WAIT_S, Standing, Unavailable, patiently
from agentq.policies.protocol import (
    MAX_LIKELIEST,
    Gives,
    Prompt,
    SampledAnswer,
    SampleRequest,
    before_stop,
    with_floor,
    without_tokens,
)
from agentq.policies.published import Published
from agentq.policies.refusals import Refusals
from agentq.policies.renderer import DATE, NO_LIMIT, Renderer, load_renderer
from agentq.policies.weights import check_weights, is_adapter
from agentq.types import StopReason

START_PATIENCE_S = 10.0  # for a server that has never answered, not even 429; its address may be wrong
THINKING = "<think>\n"
SAME_SEED = 3  # attempts to get two equal samples: under load, rounding exchanges a token now and then (ours)


class OpenAIEngine(ContinuousEngine):
    """`Engine` over a server. Failed requests are repeated, so a server that restarts costs only time."""

    def __init__(
        self,
        url: str,
        model: str = "",
        *,
        tokenizer: str | Path | None = None,
        context: int = 0,
        chats: bool = False,
        template: Mapping[str, Any] = MappingProxyType({}),
        date: Date = DATE,
        slots: int = 64,
        timeout_s: float = 600.0,
        patience_s: float = 600.0,
    ) -> None:
        """Probe what the server gives.

        Args:
            url: up to /v1. The key, if the server needs one, is in OPENAI_API_KEY or in that of `key_name`.
            model: its name on the server; may be empty if the server has one model.
            tokenizer: the model's tokenizer, by name or path. By default that of the served checkpoint, if it can be
                loaded here.
            context: tokens of a prompt and its answer; 0: as many as the server takes. If the server counts them, they
                are estimated (`fitting.CHARACTERS`).
            chats: whether the server is sent messages even if it takes token ids: they may hold pictures.
            template: arguments of the chat template, here or on the server.
            date: see `Renderer`.
            slots: number of requests that may run at the same time.
            timeout_s: time after which a request is cancelled and sent again.
            patience_s: how long the server may be unavailable.

        Raises:
            MissingExtra: without the openai package.
            ConfigError: if the server does not know the model, or a tokenizer is named and it accepts no token ids.
            ModelError: if no server answers as OpenAI's would, the tokenizer differs from the server's, or the
                reported log-probabilities are not those at temperature 1.
        """
        self._server = OpenAIClient(url, timeout_s)
        super().__init__(f"{url}#{model}" if model else url, Gives.TEXT, None, slots=slots)
        self.patience_s, self.context, self.template, self.date = patience_s, context, template, date
        self._start_s = min(START_PATIENCE_S, patience_s)
        self.chats = chats
        self._restoring = asyncio.Lock()
        self._probed: list[int] = []  # the probe's tokens
        self._refusals, self._standing = Refusals(self.usage), Standing(self._answers)
        self._chats = Chats(
            *(self._server, self.usage, self._standing),
            patience_s=self._start_s,
            crowded_s=patience_s,
            template=template,
        )
        try:
            self._background.wait(self._start(url, model, tokenizer))
        except BaseException:
            self.close()
            raise

    async def _start(self, url: str, model: str, tokenizer: str | Path | None) -> None:
        card = await card_of(self._server, model, self._start_s, self.patience_s)
        self.name, self._server.model = f"{url}#{card.id}", card.id
        self._published = Published(self._server, card.root or card.id)
        probes = Probes(self._server, self.name, self._start_s, self.patience_s)
        self._probed = [] if self.chats else await probes.tokens()
        if self._probed:
            self.renderer = await self._renderer(
                tokenizer, min(self.context or NO_LIMIT, card.max_model_len or NO_LIMIT)
            )
        elif tokenizer is not None:
            raise ConfigError(f"a tokenizer must go with a server that takes token ids; got {tokenizer} for {url}")
        if self.renderer is not None:
            self.gives |= Gives.TOKEN_IDS | Gives.LOGPS | Gives.PATTERNS | Gives.LETTERS
            with suppress(Refused, Unavailable):  # no route: it may compute on a CPU, where vLLM confuses adapters
                self.gives |= Gives.TEXT if await self._published.on_cpu() else Gives.BASE
        else:
            self.fence = Fence([*KNOWN, *literals(await self._server.marks())])
            self._chats.name = self.name
            self._chats.honours_n, self._chats.counts_one = await probes.gives_two()
            self.gives |= Gives.LETTERS if await probes.tells_likeliest() else Gives.TEXT
        if "seed" not in self._server.names and await self._honours_seeds():
            self.gives |= Gives.SEEDS
        self._chats.patience_s = self.patience_s

    async def _renderer(self, tokenizer: str | Path | None, context_tokens: int) -> Renderer | None:
        """The renderer for the server's tokenizer; None if none is named and the server's cannot be loaded."""
        name = tokenizer or self._published.root
        try:
            load = partial(load_renderer, name, context_tokens, template=self.template, date=self.date)
            renderer = await asyncio.to_thread(load)
        except (ModelError, MissingExtra):
            if tokenizer is None:
                return None
            raise
        if renderer.tokenizer(PROBE, verbose=False)["input_ids"] != self._probed:
            raise ModelError(f"the tokenizer must be that of {self.name}; got another: {name}")
        return renderer

    async def _honours_seeds(self) -> bool:
        """Whether equal seeds give equal samples, and different seeds different ones."""
        prompt = Prompt([{"role": "user", "content": PROBE}], np.array(self._probed, dtype=np.int32))

        async def texts(seed: int) -> list[str]:
            ask = partial(self._attempt, SampleRequest(prompt, 2, seed, 1.0, 12))
            answer = await patiently(ask, who=self.name, patience_s=self._start_s, crowded_s=self.patience_s)
            return [sample.text for sample in answer.samples]

        found: list[list[str]] = []
        for _ in range(SAME_SEED):
            found.append(await texts(1))
            if found[-1] in found[:-1]:
                return found[-1] != await texts(1 << 20)
        return False

    async def _ask(self, request: SampleRequest) -> EngineReply:
        ask = partial(self._checked, request)
        reply = patiently(ask, who=self.name, patience_s=self.patience_s, usage=self.usage, standing=self._standing)
        return await (self._refusals.bear(reply, request) if self.renderer is None else reply)

    async def _answers(self) -> None:
        """Return if the server answers a short prompt."""
        if self.renderer is None:
            await self._server.chat(CHAT, 1, 0, 1.0, 1)
        else:
            await self._server.complete(PROBE, 1, 0, 1.0, 1)

    async def _checked(self, request: SampleRequest) -> EngineReply:
        """One attempt, which counts only if the server had the published weights."""
        try:
            answer = await self._attempt(request)
            if not self._published.marked or await self._published.intact():
                return answer
        except Refused:
            if await self._published.intact():
                raise
        async with self._restoring:
            await self._published.restore()
        raise Unavailable("a server without the published weights", kind="weights lost")

    async def _attempt(self, request: SampleRequest) -> EngineReply:
        k, seed = request.k, request.seed % 2**31  # a range that all servers accept
        settings, letters = (request.temperature, request.max_new_tokens), request.letters
        if self.renderer is not None:
            ids, pattern = request.prompt.ids.tolist(), request.held
            model, likeliest = "" if request.adapted else self._published.base, min(len(letters), MAX_LIKELIEST)
            written = await self._server.complete(
                ids, k, seed, *settings, likeliest=likeliest, pattern=pattern, stop=request.stop, model=model
            )
            used = written.usage or Tokens()
            with billed(self.usage, request.role, used):
                samples = [self._sample_of(choice, request) for choice in in_order(written.choices, k)]
            for sample in samples:
                if pattern and sample.stop_reason is StopReason.EOS and not re.fullmatch(pattern, sample.text):
                    raise ModelError(
                        f"{self.name} must restrict answers to a pattern, as vLLM 0.12 does; got {sample.text[:80]!r}: "
                        "update the server, or turn run.constrained off"
                    )
            if pattern:  # vLLM applies the mask before it computes log-probabilities
                samples = [without_tokens(sample) for sample in samples]
            return EngineReply(samples, used.prompt_tokens, used.cached_tokens, used.completion_tokens)
        reply = await self._chats.sample(request, self.version)
        if not self.begins and any(only_ends(sample.text) for sample in reply.samples):
            self.begins = THINKING
        return reply

    def _sample_of(self, choice: Written, request: SampleRequest) -> SampledAnswer:
        ids, logps = choice.tokens()
        assert self.renderer is not None
        text = before_stop(self.renderer.decode(ids), request.stop)
        letter_logps = with_floor(choice.likeliest(), request.letters)
        return SampledAnswer(text, ids, logps, choice.stop_reason, self.version, letter_logps)

    async def _load(self, checkpoint: Path) -> None:
        """See `ContinuousEngine._load`; the server must run vLLM and see the directory.

        It is tried again where the connection failed, since what a server refuses to load it would refuse again.
        """
        since = time.monotonic()
        while True:
            try:
                return await self._put(checkpoint)
            except Unavailable as error:
                self.usage.faults[error.kind] += 1
                if error.kind not in (NO_CONNECTION, BROKEN_OFF) or time.monotonic() - since > self.patience_s:
                    raise
                await asyncio.sleep(FIRST_WAIT_S)

    async def _put(self, checkpoint: Path) -> None:
        if is_adapter(checkpoint):
            await self._published.put_adapter(checkpoint)
        else:
            check_weights(checkpoint, like=self._published.root, cpu=await self._published.on_cpu())
            await self._published.put(checkpoint)

    def close(self) -> None:
        """See `Engine.close`."""
        self._background.wait(self._server.close())
        super().close()
