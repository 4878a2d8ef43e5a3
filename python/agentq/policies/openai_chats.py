"""Chats with a server that returns text alone, and that may give only one choice per request."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from types import MappingProxyType
from typing import Any

from agentq.policies.continuous import EngineReply
from agentq.policies.fitting import estimated
from agentq.policies.openai_answers import Chat, Tokens, in_order
from agentq.policies.openai_client import OpenAIClient, Refused
from agentq.policies.patience import BadAnswer, Standing, patiently
from agentq.policies.protocol import MAX_LIKELIEST, SampledAnswer, SampleRequest, before_stop, with_floor
from agentq.policies.refusals import NO_IDS, NO_LOGPS
from agentq.policies.usage import Usage

SMALLEST, CUT = 1000, 4  # a server that reads so many tokens, and a CUT-th of what it was sent, cuts prompts (ours)

Ask = Callable[[int, int], Coroutine[Any, Any, Chat]]  # by the number of choices and the seed


class Chats:
    """Requests to /chat/completions.

    Attributes:
        name: of the server and its model, for messages.
        honours_n: whether one request brings several choices.
        counts_one: whether usage has the generated tokens of one of several choices only.
        patience_s: how long the server may be unavailable to the request for one of several choices.
    """

    def __init__(
        self,
        server: OpenAIClient,
        usage: Usage,
        standing: Standing,
        *,
        patience_s: float,
        crowded_s: float,
        template: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """`usage` counts the failures. `crowded_s`: see `patiently`. `template`: see `OpenAIClient.chat`."""
        self.name, self.honours_n, self.patience_s = server.url, True, patience_s
        self._server, self._usage, self._standing = server, usage, standing
        self._crowded_s, self._template = crowded_s, template
        self.counts_one, self._told = False, set[str]()

    async def sample(self, request: SampleRequest, version: int) -> EngineReply:
        """`request.k` samples, marked with the version of the weights.

        If the server refuses n = k or returns fewer, the missing ones are asked for one by one, and later all of them.
        A request for one that fails is repeated alone: the others' answers have been paid for.

        Raises:
            Fault: if the request for all k has failed.
            ModelError: if the server refuses the prompt, or does not answer a request for one.
        """
        k, seed, letters = request.k, request.seed % 2**31, request.letters  # a range that all servers accept
        chat = partial(self._server.chat, request.prompt.messages, stop=request.stop, template=self._template)
        settings, likeliest = (request.temperature, request.max_new_tokens), MAX_LIKELIEST if letters else 0

        def ask(n: int, s: int) -> Coroutine[Any, Any, Chat]:
            return chat(n, s, *settings, likeliest=likeliest)

        samples, total = list[SampledAnswer](), Tokens()
        if self.honours_n and k > 1:
            with suppress(Refused):  # if n was not the reason, a single choice is refused too
                told = await ask(k, seed)
                samples, total = self._read(told, min(k, len(told.choices)) or k, request, version)
        if len(samples) < k:
            seeds = [(seed + i) % 2**31 for i in range(len(samples), k)]
            for some, used in await self._one_by_one(ask, seeds, request, version):
                samples, total = samples + some, total + used
            self.honours_n = self.honours_n and k == 1
        if not (total.prompt_tokens or total.completion_tokens):
            self._tell("reports no tokens, so tokens and prices are not counted")
        return EngineReply(samples, total.prompt_tokens, total.cached_tokens, total.completion_tokens)

    async def _one_by_one(
        self, ask: Ask, seeds: list[int], request: SampleRequest, version: int
    ) -> list[tuple[list[SampledAnswer], Tokens]]:
        """A sample of each seed with its usage. One that fails for good ends the requests for the others."""

        async def one(seed: int) -> tuple[list[SampledAnswer], Tokens]:
            return self._read(await ask(1, seed), 1, request, version)

        if request.k == 1:  # the caller repeats it
            return [await one(*seeds)]
        patient = partial(patiently, who=self.name, patience_s=self.patience_s, crowded_s=self._crowded_s)
        told = partial(patient, usage=self._usage, standing=self._standing)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(told(partial(one, seed))) for seed in seeds]
        except ExceptionGroup as failed:
            first = failed.exceptions[0]
            raise first from first.__cause__  # which tells what was wrong
        return [task.result() for task in tasks]

    def _read(self, told: Chat, n: int, request: SampleRequest, version: int) -> tuple[list[SampledAnswer], Tokens]:
        """`n` samples of an answer and its usage. Raises BadAnswer if it has fewer, or one that was broken off."""
        used, letters = told.usage or Tokens(), request.letters
        if self.counts_one:  # llama.cpp; the choices are alike, so in the mean this is right
            used = used.model_copy(update={"completion_tokens": used.completion_tokens * max(1, len(told.choices))})
        if (read := used.prompt_tokens) >= SMALLEST and (sent := estimated(request.prompt.messages)) > CUT * read:
            self._tell(f"read {read} tokens of a prompt of about {sent}: let it take more, or set model.context")
        with billed(self._usage, request.role, used):
            samples = [
                SampledAnswer(
                    *(before_stop(c.message.text, request.stop), NO_IDS, NO_LOGPS, c.stop_reason, version),
                    with_floor(c.likeliest(), letters),
                )
                for c in in_order(told.choices, n)
            ]
        return samples, used

    def _tell(self, what: str) -> None:
        """Say something about the server on stderr, once per kind."""
        if (kind := what.split()[0]) not in self._told:
            self._told.add(kind)
            print(f"agentq: {self.name} {what}", file=sys.stderr)


@contextmanager
def billed(usage: Usage, role: str, used: Tokens) -> Iterator[None]:
    """Count the tokens of an answer that turns out not to fit, since the server has counted them."""
    try:
        yield
    except BadAnswer:
        tally = usage.of(role)
        tally.prompt_tokens += used.prompt_tokens
        tally.cached_tokens += used.cached_tokens
        tally.generated_tokens += used.completion_tokens
        raise
