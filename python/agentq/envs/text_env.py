"""The Env over an environment of the contract in `contract.py`: its episodes, steps and pages, in process or behind a
server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from agentq.envs.browser.budget import MAX_TOKENS, fit
from agentq.envs.protocol import BROKEN_IN_A_ROW, RESETS
from agentq.envs.replies import AboutReply, AdviceReply, ResetReply, StepReply, one_line
from agentq.envs.site import printable
from agentq.envs.tools import Tool, Toolbox, told_of
from agentq.envs.web_env import Advice
from agentq.errors import ConfigError, EnvError
from agentq.types import Command, EnvAction, Language, Observation, Split, Status, StepResult, Task, Verb
from agentq.verbs import verb


class TextEnv:
    """One live session; see `agentq.envs.protocol.Env`. Subclasses define `start` and `_act`.

    `cut`: number of lines of the present page beyond the token budget of an observation. `instruction`: what the latest
    reset gave; empty before the first one.
    """

    def __init__(self, name: str, max_steps: int, tools: Sequence[dict[str, Any]] = ()) -> None:
        self.name, self.max_steps = name, max_steps
        self._toolbox = Toolbox(map(Tool.read, tools))
        self.cut, self.instruction = 0, ""
        self._shown = self._last = Observation("")  # the page; the page with the notes of a step, as returned
        self._steps = -1  # -1: no episode
        self._over = False

    def reset(self, task: Task) -> Observation:
        """Start `task` afresh. A task without an instruction gets it here, as `instruction`.

        Raises:
            ConfigError: for another environment's task.
            EnvError: if it does not start, gives no instruction, or gives another one than the task has.
        """
        if task.env != self.name:
            raise ConfigError(f"task.env must be '{self.name}'; got '{task.env}'")
        start = self.start(task.seed)
        if not start.instruction:
            raise EnvError(f"an instruction must not be empty; got '' at the reset with seed {task.seed}")
        if task.instruction and start.instruction != task.instruction:
            said = f"'{one_line(task.instruction)}'; got '{one_line(start.instruction)}'"
            raise EnvError(f"a seed must give one instruction, {said}")
        self._shown = self._last = self._observation(start.text, start.url)
        self._steps, self._over, self.instruction = 0, False, start.instruction
        return self._shown

    def start(self, seed: int) -> ResetReply:
        """The beginning of the episode of `seed`. Raises EnvError if it does not begin."""
        raise NotImplementedError

    def step(self, env_action: EnvAction | None) -> StepResult:
        """Act. An action that the environment does not accept is data on the result."""
        self._check_begun()
        if self._over:
            raise EnvError("step needs a running episode; this one is over, call reset")
        result = self._unreadable() if env_action is None else self._refused(env_action) or self._act(env_action)
        self._steps += 1
        if not result.terminated and self._steps >= self.max_steps:
            result = replace(result, truncated=True)
        self._last, self._over = result.observation, result.terminated or result.truncated
        return result

    def advice(self) -> Advice:
        """What the environment's own expert does next."""
        hint = self._hint()
        command = verb(hint.command)
        status = Status.DONE if command is Command.STOP else Status.CONTINUE
        return Advice(EnvAction(command, hint.element, hint.text), hint.thought, hint.explanation, status)

    def _hint(self) -> AdviceReply:
        """The next step of the expert, if there is one."""
        raise NotImplementedError

    def close(self) -> None:
        """Forget the episode."""
        self._steps = -1

    def _refused(self, action: EnvAction) -> StepResult | None:
        """The result of a call that does not fit its tool; the environment is not asked."""
        complaint = self._toolbox.complaint(action) if action.command is Verb.CALL else None
        if complaint is None:
            return None
        kind, message = complaint
        return StepResult(self._noted({"error": message}), error_kind=kind, error_message=message)

    def _act(self, action: EnvAction) -> StepResult:
        raise NotImplementedError

    def _check_begun(self) -> None:
        if self._steps < 0:
            raise EnvError("the environment needs a session; call reset first")

    def _told(self, action: EnvAction, outcome: StepReply) -> StepResult:
        """The result of a step that the environment has carried out."""
        self._shown = self._observation(outcome.text, outcome.url)
        notes = {"error": outcome.error_message, "user": outcome.answer}
        terminated = outcome.terminated or action.command is Command.STOP
        return StepResult(
            self._noted({word: said for word, said in notes.items() if said}),
            outcome.reward,
            terminated,
            outcome.truncated and not terminated,
            outcome.success,
            outcome.error_kind,
            outcome.error_message,
        )

    def _unreadable(self) -> StepResult:
        message = "unreadable action"
        return StepResult(self._noted({"error": message}), error_kind="unreadable", error_message=message)

    def _noted(self, notes: dict[str, str]) -> Observation:
        """The page, and below it notes about this step."""
        below = [f"{word} {printable(said)}" for word, said in notes.items()]
        return replace(self._shown, text="\n".join([self._shown.text, *below]))

    def _observation(self, text: str, url: str) -> Observation:
        """A page, without line ends other than \\n and within the token budget."""
        kept, self.cut = fit([_clean(line) for line in text.split("\n")], MAX_TOKENS)
        return Observation("\n".join(kept), printable(url))


class EnvExpert:
    """The expert of an environment that has one."""

    plan = ""

    def __call__(self, task: Task, env: object) -> Advice:
        """The next step from where `env` is."""
        assert isinstance(env, TextEnv)
        return env.advice()


def _clean(line: str) -> str:
    """A line with a space for each character that cannot be printed."""
    return line if line.isprintable() else "".join(c if c.isprintable() else " " for c in line)


def asked(action: EnvAction) -> dict[str, str | int | None]:
    """An action as the arguments of the contract's `step`, in order."""
    return {"command": action.command.value, "element": action.element, "text": action.text}


def tasks_by_reset(
    name: str, seeds: Sequence[int], split: Split, about: AboutReply, instruction: Callable[[int], str]
) -> list[Task]:
    """Tasks by seed of an environment with the description `about`.

    `instruction(seed)` resets the environment, and is tried RESETS times. A seed that does not start has a task without
    an instruction, which is asked for again at its reset.

    Raises:
        EnvError: if BROKEN_IN_A_ROW consecutive seeds do not start.
    """
    found, failed = [], 0
    taken, language = tuple(map(Command, about.commands)), Language(about.language)
    tools = told_of(about.tools)
    for seed in seeds:
        try:
            said, failed = _asked(instruction, seed), 0
        except EnvError:
            said, failed = "", failed + 1
            if failed == BROKEN_IN_A_ROW:
                raise
        found.append(Task(name, seed, split, said, taken, language, about.keeps_pages, tools=tools))
    return found


def _asked(instruction: Callable[[int], str], seed: int) -> str:
    for _ in range(RESETS - 1):
        with suppress(EnvError):
            return instruction(seed)
    return instruction(seed)
