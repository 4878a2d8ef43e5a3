"""The expert of the suite: takes a job's steps in turn, and finds their elements in the observation alone."""

from __future__ import annotations

import re
import shlex
from typing import Any

from agentq.envs.suite.job import Job, draw
from agentq.envs.web_env import Advice
from agentq.errors import EnvError
from agentq.types import ELEMENT_COMMANDS, Command, EnvAction, Status, Task

_LOOKING = (Command.FIND, Command.SCROLL, Command.WAIT)
_TRIES = 3


class SuiteExpert:
    """A step is `COMMAND text` or `COMMAND role name text`. A name of several words is quoted; a part of it will do.

    `READ pattern AS word` reads the observation: a group of the pattern is `{word}` in later steps.
    """

    plan = "do the steps of the task in turn"

    def __init__(self, job: Job) -> None:
        self.job = job
        self.read: dict[tuple[int, str], str] = {}  # (seed, word) -> what was read

    def __call__(self, task: Task, env: Any) -> Advice:
        """The next step from the page that is shown."""
        taken = [action for action in env.done if action.command not in _LOOKING]
        shown, values = env.snapshot().observation.text, draw(task.seed)
        steps = [step for step in self.job.steps if not step.startswith("READ ")]
        if len(taken) >= len(steps):
            return Advice(EnvAction(Command.STOP), "all is done", "stop", Status.DONE)
        at = self.job.steps.index(steps[len(taken)])
        for step in self.job.steps[:at]:
            if step.startswith("READ ") and (task.seed, step) not in self.read:
                pattern = step.removeprefix("READ ").rpartition(" AS ")[0].format(**values)
                if found := re.search(pattern, shown):
                    self.read[task.seed, step] = found[1]
        for (seed, step), text in self.read.items():
            if seed == task.seed:
                values[step.rpartition(" AS ")[2]] = text
        return Advice(
            self._action(steps[len(taken)].format(**values), shown, env), "the next step", "go on", Status.CONTINUE
        )

    def _action(self, step: str, shown: str, env: Any) -> EnvAction:
        verb, *words = shlex.split(step)
        command = Command(verb)
        if command not in ELEMENT_COMMANDS:
            return EnvAction(command, None, " ".join(words) or None)
        role, name, text = words[0], words[1], " ".join(words[2:]) or None
        if element := find(shown, role, name):
            return EnvAction(command, element, text)
        looked = [action for action in env.done[-_TRIES:] if action.command in _LOOKING]
        if len(looked) >= _TRIES:
            raise EnvError(f"the page must show {role} {name}; got none")
        return EnvAction(Command.FIND, None, name) if not looked else EnvAction(Command.SCROLL, None, "DOWN")


def find(shown: str, role: str, name: str) -> int:
    """The id of a control in an observation: with this role and name, else with it as a part, or as its field; or 0."""
    exact, part = re.escape(name), rf"[^\[\]|\n]*{re.escape(name)}[^\[\]|\n]*"
    for form in (rf"{exact} \[(\d+)\]", rf"{part} \[(\d+)\]", rf"\[(\d+)\].*\(field {exact}\b"):
        if found := re.search(rf"(?:^|[ |]){role} {form}", shown, re.MULTILINE):
            return int(found[1])
    return 0
