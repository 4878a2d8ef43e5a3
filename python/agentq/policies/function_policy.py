"""The policy over a user's function or object, which calls a model in its own way."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np

from agentq.agent.actions import parse_action
from agentq.errors import ModelError
from agentq.policies.protocol import Policy
from agentq.types import History, Proposal, StopReason

Answer = Callable[[History, int], Sequence[str] | Awaitable[Sequence[str]]]


class FunctionPolicy:
    """`Policy` over `answer(history, k)`, which returns 1 to k texts. An `async` one may run several times at once.

    The function controls seeds and temperatures itself. Its proposals have no tokens and no log-probabilities, so
    they can be searched and evaluated but not trained on.
    """

    version = 0

    def __init__(self, answer: Answer) -> None:
        self.answer = answer

    async def propose(self, history: History, k: int, *, seed: int, temperature: float = 1.0) -> list[Proposal]:
        """See `Policy.propose`. Raises ModelError if the function returns something else."""
        await asyncio.sleep(0)  # a plain function never waits, so this alone lets an interrupt in
        given = self.answer(history, k)
        texts = await given if inspect.isawaitable(given) else given
        if (
            isinstance(texts, str)
            or not isinstance(texts, Sequence)
            or not all(isinstance(text, str) for text in texts)
        ):
            raise ModelError(f"{self._name}(history, k) must return a list of texts; got {texts!r:.60}")
        if not 1 <= len(texts) <= k:
            raise ModelError(f"{self._name}(history, k) must return 1 to k texts, here at most {k}; got {len(texts)}")
        none = np.empty(0, np.int32)
        return [
            Proposal(
                action=parse_action(text, language=history.language),
                prompt_ids=none,
                token_ids=none,
                logps=np.empty(0, np.float32),
                stop_reason=StopReason.EOS,
                policy_version=self.version,
                temperature=temperature,
            )
            for text in texts
        ]

    @property
    def _name(self) -> str:
        return getattr(self.answer, "__name__", type(self.answer).__name__)


class CheckedPolicy:
    """A user's own `Policy`, whose proposals are checked."""

    def __init__(self, given: Policy) -> None:
        self.given = given

    @property
    def version(self) -> int:
        return self.given.version

    async def propose(self, history: History, k: int, *, seed: int, temperature: float = 1.0) -> list[Proposal]:
        """See `Policy.propose`. Raises ModelError if the policy returns something else than 1 to k proposals."""
        await asyncio.sleep(0)  # as above
        given: Any = self.given.propose(history, k, seed=seed, temperature=temperature)
        found = await given if inspect.isawaitable(given) else given
        name = f"{type(self.given).__name__}.propose"
        if not isinstance(found, list | tuple) or not all(isinstance(each, Proposal) for each in found):
            raise ModelError(
                f"{name} must return a list of agentq.types.Proposal; got {found!r:.60}: a function "
                "(history, k) -> texts is also a policy"
            )
        if not 1 <= len(found) <= k:
            raise ModelError(f"{name} must return 1 to k proposals, here at most {k}; got {len(found)}")
        return list(found)
