"""The policy over a transformers checkpoint: renders histories, samples proposals, parses them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from agentq.agent.actions import parse_action
from agentq.agent.prompts import policy_messages
from agentq.policies.engine import TransformersEngine
from agentq.types import History, Proposal, StopReason


class TransformersPolicy:
    """`Policy` on a `TransformersEngine`."""

    def __init__(self, engine: TransformersEngine, *, max_new_tokens: int = 96) -> None:
        self.engine = engine
        self.max_new_tokens = max_new_tokens

    @property
    def version(self) -> int:
        return self.engine.version

    def propose(
        self, histories: Sequence[History], k: int, *, seeds: Sequence[int], temperature: float = 1.0
    ) -> list[list[Proposal]]:
        """See `Policy.propose`."""
        room = self.max_new_tokens
        prompts = [self.engine.encode_history(h, policy_messages, max_new_tokens=room) for h in histories]
        generated = self.engine.generate(
            prompts, k, seeds=seeds, temperature=temperature, max_new_tokens=self.max_new_tokens
        )
        return [
            [
                Proposal(
                    action=parse_action(self.engine.decode(sample.token_ids)),
                    prompt_ids=prompt,
                    token_ids=sample.token_ids,
                    logps=sample.logps,
                    stop_reason=sample.stop_reason,
                    policy_version=self.version,
                    temperature=temperature,
                )
                for sample in samples
            ]
            for prompt, samples in zip(prompts, generated, strict=True)
        ]

    def write(self, history: History, text: str) -> Proposal:
        """Another's action as this policy would have sampled it; its log-probabilities are unknown (NaN)."""
        tokens = self.engine.encode_answer(text)
        return Proposal(
            action=parse_action(text),
            prompt_ids=self.engine.encode_history(history, policy_messages, max_new_tokens=self.max_new_tokens),
            token_ids=tokens,
            logps=np.full(len(tokens), np.nan, dtype=np.float32),
            stop_reason=StopReason.EOS,
            policy_version=self.version,
            temperature=1.0,
        )
