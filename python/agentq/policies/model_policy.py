"""The policy over an engine: renders histories, samples proposals, parses them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from agentq.agent.actions import parse_action
from agentq.agent.patterns import action_pattern
from agentq.agent.prompts import Messages, policy_messages
from agentq.errors import ConfigError
from agentq.policies.protocol import Engine, Gives, SampleRequest
from agentq.types import Action, History, Proposal, StopReason


class ModelPolicy:
    """`Policy` on an `Engine`. With `constrained`, every action can be parsed and names elements of the page."""

    def __init__(
        self,
        engine: Engine,
        *,
        max_new_tokens: int = 96,
        constrained: bool = False,
        compose: Callable[[History], Messages] = policy_messages,
        parse: Callable[..., Action] | None = None,
        stop: Sequence[str] = (),
    ) -> None:
        """A policy with a prompt and a grammar.

        Args:
            max_new_tokens: limit per action, with any thinking before it.
            compose: makes the messages of the prompt from a history.
            parse: reads an answer: `parse(text, cut=False)`; `cut`: the text ended at the token limit. None: by the
                grammar of the history's language.
            stop: texts at which an action ends.

        Raises:
            ConfigError: for a constrained policy on an engine without patterns.
        """
        if constrained and Gives.PATTERNS not in engine.gives:
            raise ConfigError(
                f"constrained actions need an engine that can restrict answers to a pattern; got {engine.name}: turn "
                "run.constrained off, or use a checkpoint or vLLM 0.12 or newer, with a tokenizer that loads here"
            )
        self.engine, self.constrained = engine, constrained
        self.max_new_tokens, self.compose, self.parse, self.stop = max_new_tokens, compose, parse, tuple(stop)

    @property
    def version(self) -> int:
        return self.engine.version

    async def propose(self, history: History, k: int, *, seed: int, temperature: float = 1.0) -> list[Proposal]:
        """See `Policy.propose`."""
        prompt = self.engine.render(history, self.compose, max_new_tokens=self.max_new_tokens)
        pattern = action_pattern(history) if self.constrained else ""
        parse = self._parser(history)
        request = SampleRequest(prompt, k, seed, temperature, self.max_new_tokens, pattern=pattern, stop=self.stop)
        return [
            Proposal(
                action=self._read(parse, prompt.said(sample), cut=sample.stop_reason is StopReason.LENGTH),
                prompt_ids=prompt.ids,
                token_ids=sample.token_ids,
                logps=sample.logps,
                stop_reason=sample.stop_reason,
                policy_version=sample.version,
                temperature=temperature,
            )
            for sample in await self.engine.sample(request)
        ]

    def write(self, history: History, text: str) -> Proposal:
        """An action from another source as a proposal of this policy. Its log-probabilities are unknown (NaN)."""
        tokens = self.engine.encode_answer(text)
        return Proposal(
            action=self._parser(history)(text),
            prompt_ids=self.engine.render(history, self.compose, max_new_tokens=self.max_new_tokens).ids,
            token_ids=tokens,
            logps=np.full(len(tokens), np.nan, dtype=np.float32),
            stop_reason=StopReason.EOS,
            policy_version=self.version,
            temperature=1.0,
        )

    def _read(self, parse: Callable[..., Action], text: str, *, cut: bool) -> Action:
        """The action of an answer. One that is unreadable and was cut off says so first."""
        action = parse(text, cut=cut)
        if cut and action.env_action is None:
            return replace(action, parse_error=f"cut off at max_new_tokens {self.max_new_tokens}: {action.parse_error}")
        return action

    def _parser(self, history: History) -> Callable[..., Action]:
        return self.parse or partial(parse_action, language=history.language)
