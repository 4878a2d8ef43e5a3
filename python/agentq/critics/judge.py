"""The outcome judge: without a checker, a model reads the end of an episode and decides whether it has succeeded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from agentq.agent.prompts import Messages, judge_messages, step_messages
from agentq.agent.verdicts import parse_judgement
from agentq.errors import ConfigError
from agentq.policies.protocol import Engine, Gives, SampleRequest
from agentq.types import History, StepResult, StopReason

CUT_OFF = "the judge's answer is whole"
NO_RUBRIC = "judgement without a rubric"  # counted among the failed attempts of the engine
JUDGE_TOKENS = 256  # of an answer, unless told otherwise


@dataclass(frozen=True, slots=True)
class Judgement:
    """Each thing that the user asked for, and whether it holds."""

    findings: tuple[tuple[str, bool], ...]

    @property
    def success(self) -> bool:
        """Whether all findings hold; false without findings."""
        return bool(self.findings) and all(holds for _, holds in self.findings)

    @property
    def share(self) -> float:
        """Share of the findings that hold; 0 without findings."""
        return sum(holds for _, holds in self.findings) / max(1, len(self.findings))


class OutcomeJudge:
    """Judges commands and final page by a rubric that the model derives from the instruction.

    An answer that is cut off or has no rubric is no success; `Usage.faults` counts those without one. After
    arXiv:2408.07199, where GPT-4V reads a condensed history and a screenshot, and four constraints must hold.

    `sees`: it gets the observation's screenshot, if there is one. Raises ConfigError for an engine without pictures.
    """

    def __init__(self, engine: Engine, *, sees: bool = False, max_new_tokens: int = JUDGE_TOKENS) -> None:
        if sees and Gives.TOKEN_IDS in engine.gives:
            raise ConfigError(
                f"a judge that sees must be a server that is sent chats; got {engine.name}, sent token ids"
            )
        self.engine, self.sees = engine, sees
        self.max_new_tokens = max_new_tokens

    async def judge(self, history: History) -> Judgement:
        """The judgement of an episode; `history` is that after its last action."""
        return await self._ask(history, judge_messages)

    async def score(self, history: History) -> float:
        """How far an episode has succeeded, in [0, 1]: the share of what was asked for that holds."""
        return (await self.judge(history)).share

    async def step(self, history: History) -> Judgement:
        """The judgement of the step that is held at the end of an episode: whether it leads to the goal."""
        return await self._ask(history, step_messages)

    async def _ask(self, history: History, compose: Callable[[History], Messages]) -> Judgement:
        if not self.sees:
            history = replace(history, observation=replace(history.observation, screenshot=b""))
        prompt = self.engine.render(history, compose, max_new_tokens=self.max_new_tokens)
        request = SampleRequest(prompt, temperature=0.0, max_new_tokens=self.max_new_tokens, role="judge")
        (answer,) = await self.engine.sample(request)
        findings = parse_judgement(prompt.said(answer))
        if not findings:
            self.engine.usage.faults[NO_RUBRIC] += 1
        if findings and answer.stop_reason is StopReason.LENGTH:
            findings.append((CUT_OFF, False))
        return Judgement(tuple(findings))

    async def settle(self, history: History, result: StepResult) -> StepResult:
        """The result of an episode's last step with the judge's verdict as reward: 1 for success, else 0."""
        success = (await self.judge(history)).success
        return replace(result, reward=float(success), success=success)
