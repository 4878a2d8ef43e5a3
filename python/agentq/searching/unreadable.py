"""The end of an episode whose agent no longer writes actions, as in WebArena's `early_stop` (arXiv:2307.13854)."""

from __future__ import annotations

from dataclasses import replace

from agentq.agent.actions import parse_action
from agentq.types import History, StepResult


def ended_if_unreadable(result: StepResult, history: History, most: int) -> StepResult:
    """The result of the last action of `history`, truncated if the last `most` actions are unreadable; 0: as it is."""
    if not most or result.terminated or result.broken:
        return result
    last = history.actions[-most:]
    readable = any(parse_action(text, language=history.language).env_action for text in last)
    return result if readable or len(last) < most else replace(result, truncated=True)
