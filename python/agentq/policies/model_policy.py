"""The policy over an engine: renders histories, samples proposals, parses them."""

from __future__ import annotations

import numpy as np

from agentq.agent.actions import parse_action
from agentq.agent.patterns import action_pattern
from agentq.agent.prompts import policy_messages
from agentq.errors import ConfigError
from agentq.policies.protocol import Engine, Gives, SampleRequest
from agentq.types import History, Proposal, StopReason


class ModelPolicy:
    """`Policy` on an `Engine`. With `constrained`, every action can be parsed and names elements of the page.

    Raises ConfigError for a constrained policy on an engine without patterns.
    """

    def __init__(self, engine: Engine, *, max_new_tokens: int = 96, constrained: bool = False) -> None:
        if constrained and Gives.PATTERNS not in engine.gives:
            raise ConfigError(
                f"constrained actions need an engine that can hold answers to a pattern; got {engine.name}"
            )
        self.engine, self.constrained = engine, constrained
        self.max_new_tokens = max_new_tokens

    @property
    def version(self) -> int:
        return self.engine.version

    async def propose(self, history: History, k: int, *, seed: int, temperature: float = 1.0) -> list[Proposal]:
        """See `Policy.propose`."""
        prompt = self.engine.render(history, policy_messages, max_new_tokens=self.max_new_tokens)
        pattern = action_pattern(history) if self.constrained else ""
        request = SampleRequest(prompt, k, seed, temperature, self.max_new_tokens, pattern=pattern)
        return [
            Proposal(
                action=parse_action(sample.text, cut=sample.stop_reason is StopReason.LENGTH),
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
            action=parse_action(text),
            prompt_ids=self.engine.render(history, policy_messages, max_new_tokens=self.max_new_tokens).ids,
            token_ids=tokens,
            logps=np.full(len(tokens), np.nan, dtype=np.float32),
            stop_reason=StopReason.EOS,
            policy_version=self.version,
            temperature=1.0,
        )
