"""An engine that presses the last control of any page and approves of every page; a person who answers questions."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np

from agentq.agent.prompts import Messages
from agentq.critics.judge import OutcomeJudge
from agentq.critics.ranker import LLMRanker
from agentq.envs.browser.guard import FinalStep
from agentq.envs.browser.pool import BrowserPool
from agentq.live.solve import Solution, Watcher, solve
from agentq.policies.budget import Budget, Budgeted
from agentq.policies.model_policy import ModelPolicy
from agentq.policies.protocol import Gives, Prompt, SampledAnswer, SampleRequest
from agentq.policies.usage import Usage
from agentq.searching.selection import SearchSettings
from agentq.types import History, StopReason

GOAL = "press it"
NOTHING = np.empty(0, np.int32)


class Pressing:
    """`Engine`: the policy clicks the last control, the judge says yes, the critic nothing.

    It waits `pause_s` at the first page that says thanks.
    """

    name, gives, version = "pressing", Gives.TEXT, 0

    def __init__(self, pause_s: float = 0.0) -> None:
        self.usage, self.pause_s = Usage(), pause_s

    def render(self, history: History, compose: Callable[[History], Messages], *, max_new_tokens: int) -> Prompt:
        return Prompt(compose(history), NOTHING)

    def encode_answer(self, text: str) -> np.ndarray:
        return NOTHING

    async def sample(self, request: SampleRequest) -> list[SampledAnswer]:
        self.usage.of(request.role).requests += 1
        text = request.prompt.messages[-1]["content"]
        if "heading Thanks" in text:
            await asyncio.sleep(self.pause_s)
            self.pause_s = 0.0
        controls = re.findall(r"\[(\d+)\]", text.rpartition("OBSERVATION:")[2])
        command = f"CLICK [{controls[-1]}]" if controls else "STOP"
        said = {"judge": "it is pressed: YES", "critic": "none"}.get(request.role, f"COMMANDS: {command}")
        sample = SampledAnswer(said, NOTHING, NOTHING.astype(np.float32), StopReason.EOS, 0)
        return [sample] * request.k

    def publish(self, checkpoint: Path) -> int:
        raise NotImplementedError

    def close(self) -> None:
        """Do nothing: it holds no resources."""


class Told:
    """A person who answers `says(step)`; records what was asked."""

    def __init__(self, says: Callable[[FinalStep], bool]) -> None:
        self.says = says
        self.asked: list[FinalStep] = []

    def allows(self, step: FinalStep) -> bool:
        self.asked.append(step)
        return self.says(step)


def pressed(url: str, browsers: BrowserPool, told: Told, *, calls: int, pause_s: float = 0.0) -> Solution:
    """A run on the site at `url` with a budget of model calls; `pause_s`: see `Pressing`."""
    engine = Budgeted(Pressing(pause_s), Budget(calls=calls))
    policy, critic, judge = ModelPolicy(engine), LLMRanker(engine), OutcomeJudge(engine)
    watcher, settings = Watcher(told.allows), SearchSettings(1000, 2)
    return solve(GOAL, url, policy, browsers, watcher, settings, critic=critic, judge=judge)
