"""`booking` behind a network that fails: environments of `benchmarks/flaky.py`, by the contract for own classes."""

from __future__ import annotations

import random
from typing import Any

from agentq import envs
from agentq.errors import EnvError
from agentq.types import Command, EnvAction

FAILS = 0.05  # share of steps


class Flaky:
    """`booking`, of which a share of steps fails; `told`: as a fault of the world, else as a failure of the agent."""

    name = "flaky"

    def __init__(self, fails: float, *, told: bool) -> None:
        self.env = envs.make("booking")
        self.max_steps = self.env.max_steps
        self.fails, self.told, self.rng = fails, told, random.Random(0)
        self.text = ""

    def reset(self, seed: int) -> dict[str, Any]:
        """The first page of a task of `booking` with the same seed."""
        task = envs.task_from_seed("booking", seed)
        page = self.env.reset(task)
        self.text = page.text
        return {"instruction": task.instruction, "text": page.text, "url": page.url}

    def step(self, command: str | None, element: int | None, text: str | None) -> dict[str, Any]:
        """One action, or the fault."""
        if self.rng.random() < self.fails:
            if self.told:
                raise EnvError("the site must answer; got a time-out")
            return {"text": self.text, "terminated": True}
        found = self.env.step(None if command is None else EnvAction(Command(command), element, text))
        self.text = found.observation.text
        return {
            "text": self.text,
            "url": found.observation.url,
            "reward": found.reward,
            "terminated": found.terminated,
            "truncated": found.truncated,
            "success": found.success,
            "error_kind": found.error_kind,
            "error_message": found.error_message,
        }

    def snapshot(self) -> tuple[str, Any]:
        """The state of the site."""
        return self.text, self.env.snapshot()  # type: ignore[attr-defined]

    def restore(self, token: tuple[str, Any]) -> None:
        """Go back to it."""
        self.text, site = token
        self.env.restore(site)  # type: ignore[attr-defined]


def clean() -> Flaky:
    """No step fails."""
    return Flaky(0.0, told=True)


def faults() -> Flaky:
    """Steps fail, and the environment says so: agentq sets the episode aside, or searches around it."""
    return Flaky(FAILS, told=True)


def failures() -> Flaky:
    """Steps fail, and end the episode as if the agent had failed."""
    return Flaky(FAILS, told=False)
