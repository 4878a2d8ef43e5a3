"""The settings of models. See `config`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from agentq.config import Section

CriticMethod = Literal["pick_best", "listwise", "letters"]


class CriticSettings(Section):
    """How the critic ranks the proposals of a node."""

    method: CriticMethod = Field(
        default="pick_best",
        description="pick_best: K - 1 answers, one after another; listwise: one answer ranks all; letters: the "
        "probabilities of the letters in one pass.",
    )
