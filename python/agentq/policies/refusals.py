"""Prompts that a server does not answer though it answers others: too long for it, or stopped by a filter."""

from __future__ import annotations

import sys
from collections.abc import Awaitable

import numpy as np

from agentq.errors import ModelError
from agentq.policies.continuous import EngineReply
from agentq.policies.openai_client import Refused
from agentq.policies.patience import BadAnswer, PromptFailing
from agentq.policies.protocol import SampledAnswer, SampleRequest
from agentq.policies.usage import Usage
from agentq.types import StopReason

NO_IDS, NO_LOGPS = np.empty(0, dtype=np.int32), np.empty(0, dtype=np.float32)
MOST_IN_A_ROW, MOST_AT_FIRST = 64, 8  # then it is the server, not the prompt (ours)


class Refusals:
    """Answers nothing in the server's place, which policies, critics and judges count as unreadable.

    The server's reason is told once on stderr, since the empty answer does not have it.
    """

    def __init__(self, usage: Usage) -> None:
        self.usage, self.in_a_row, self.most = usage, 0, MOST_AT_FIRST
        self._told = False

    async def bear(self, asked: Awaitable[EngineReply], request: SampleRequest) -> EngineReply:
        """The reply, or empty answers if the prompt was refused: HTTP 400, 403, 413 or 422, or it alone fails.

        Raises:
            ModelError: if the server fails in another way, or refuses too many prompts in a row.
        """
        try:
            reply = await asked
        except ModelError as error:
            cause = error.__cause__
            refused = (isinstance(error, Refused) and error.said) or isinstance(error, PromptFailing)
            unfit = isinstance(cause, BadAnswer) and not cause.passing
            if not (refused or unfit) or self.in_a_row >= self.most:
                raise
            if not self._told:
                self._told = True
                print(f"agentq: {error}; answers to such prompts count as unreadable", file=sys.stderr)
            self.in_a_row += 1
            self.usage.faults["prompt refused"] += 1
            answer = SampledAnswer("", NO_IDS, NO_LOGPS, StopReason.REFUSED, 0, (0.0,) * len(request.letters))
            return EngineReply([answer] * request.k, 0, 0, 0)
        self.in_a_row, self.most = 0, MOST_IN_A_ROW
        return reply
