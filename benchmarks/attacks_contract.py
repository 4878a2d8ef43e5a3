"""Attacks by an environment of a user's own: one class, used in every supported way."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from attack import agentq, attack

from agentq import envs
from agentq.envs.remote.env_server import EnvServer
from agentq.types import Command, EnvAction, Split

OWN = """
class Door:
    name = "door"

    def reset(self, seed):
        self.pushed = 0
        return {"instruction": f"Push {seed % 3} times and stop", "text": f"heading {self.pushed}\\nbutton Push [1]"}

    def step(self, command, element, text):
        self.pushed += command == "CLICK" and element == 1
        odd = command == "CLICK" and element != 1
        return {
            "text": f"heading {self.pushed}\\nbutton Push [1]",
            "terminated": command == "STOP",
            "error_kind": "no_such_element" if odd else None,
        }


def make():
    return Door()
"""
PUSH, STOP = EnvAction(Command.CLICK, 1), EnvAction(Command.STOP)


def _pages(name: str) -> tuple[str, ...]:
    """The pages of an episode of four steps."""
    task, env = envs.task(name, Split.TRAIN, 2), envs.make(name)
    pages = (task.instruction, env.reset(task).text, *(env.step(a).observation.text for a in (PUSH, PUSH, None, STOP)))
    env.close()
    return pages


@attack(
    "1.5",
    "one class with reset and step as FILE.py:make, registered and served; and agentq env check of it",
    expected="6 pages, the same each way; env check: exit 0, 0 broken",
)
def one_class(folder: Path) -> str:
    file = folder / "door.py"
    file.write_text(OWN, encoding="utf-8")
    found: dict[str, object] = {}
    exec(OWN, found)
    envs.register("door", found["make"])  # type: ignore[arg-type]
    with tempfile.TemporaryDirectory() as short, EnvServer(f"{file}:make", sys.executable, f"{short}/at", 2) as server:
        ways = [_pages(name) for name in (f"{file}:make", "door", f"door@{server.at}")]
    same = "the same each way" if len(set(ways)) == 1 else f"{len(set(ways))} kinds"
    checked = agentq("env", "check", f"{file}:make", "--tasks=2", cwd=folder)
    broken = sum(line.startswith("BROKEN") for line in checked.out.splitlines())
    return f"{len(ways[0])} pages, {same}; env check: exit {checked.code}, {broken} broken"
