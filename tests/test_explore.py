"""What `agentq env check` tries without an expert: tasks of one step, lines that are offered, calls with arguments."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agentq import envs
from agentq.agent.calls import called
from agentq.envs import instances, makers
from agentq.envs.check import UNTRIED, Finding, check
from agentq.envs.explore import plausible
from agentq.envs.tools import told_of
from agentq.types import Language, Split, Task

TRANSFER = {
    "type": "function",
    "function": {
        "name": "transfer",
        "parameters": {
            "type": "object",
            "properties": {
                "source": {"type": "string"},
                "amount": {"type": "integer", "minimum": 5},
                "now": {"type": "boolean"},
                "kind": {"enum": ["cash", "card"]},
                "notes": {"type": "array"},
                "more": {"type": "object"},
                "any": True,
                "unasked": {"type": "string"},
            },
            "required": ["source", "amount", "now", "kind", "notes", "more", "any"],
        },
    },
}


class Question:
    """One question and one answer, as in most benchmarks of reasoning."""

    language, max_steps = "text", 1
    drawn: Iterator[float] = iter(())

    def reset(self, seed: int) -> dict[str, Any]:
        self.seed = seed
        return {"instruction": f"Add {seed} and 1", "text": f"{seed} + 1 ="}

    def step(self, command: str, element: int | None, text: str | None) -> dict[str, Any]:
        won = text == str(self.seed + 1)
        reward = 0.0 if command == "STOP" else next(self.drawn, float(won))
        return {"text": "done", "reward": reward, "success": won, "terminated": True}


class Dice:
    """A game whose line must be in brackets, and whose dice are everybody's, as in many libraries of games."""

    language, max_steps = "text", 10

    def reset(self, seed: int) -> dict[str, Any]:
        random.seed(seed)
        return {"instruction": "Play dice", "text": f"game {seed}\nSay [roll the two dice] or [end]."}

    def step(self, command: str, element: int | None, text: str | None) -> dict[str, Any]:
        rolled = f"rolled {random.randrange(10**9)}" if text == "[roll the two dice]" else "not a move"
        return {"text": f"{rolled}\nSay [roll the two dice] or [end].", "terminated": command == "STOP"}


class Bank:
    """A tool that needs arguments."""

    language, max_steps, tools = "tool", 6, [TRANSFER]

    def reset(self, seed: int) -> dict[str, Any]:
        return {"instruction": f"Move {seed} euros from rent to food", "text": "ready"}

    def step(self, command: str, element: int | None, text: str | None) -> dict[str, Any]:
        return {"text": f"done {text}", "terminated": command == "STOP"}


@pytest.fixture(autouse=True)
def forgets_names() -> Iterator[None]:
    yield
    makers._made.clear()
    makers._here.clear()


def findings(make: Callable[[], Any], n: int = 3) -> dict[str, Finding]:
    """By the first word of the promise."""
    envs.register("mine", make)
    return {each.promise.partition(" ")[0]: each for each in check("mine", n)}


def test_a_task_of_one_step_is_tried_by_the_action_that_ends_it() -> None:
    found = findings(Question)
    assert UNTRIED not in [each.said for each in found.values()]
    assert found["Equal"].holds and found["An"].holds
    lucky = type("Lucky", (Question,), {"drawn": iter(range(10**6))})
    found = findings(lucky)
    assert found["Equal"].holds is False and "is not deterministic: reward" in found["Equal"].said
    rich = type("Rich", (Question,), {"drawn": iter([7.0] * 1000)})
    assert "a return must be in [0, 1]; got 7" in str([each.said for each in findings(rich).values()])
    rounded = type("Rounded", (Question,), {"drawn": iter([sum([0.05] * 20)] * 1000)})
    assert "a return" not in str([each.said for each in findings(rounded).values()])


def test_dice_that_sessions_share_are_found_without_an_expert() -> None:
    found = findings(Dice, 5)["Equal"]
    assert found.holds is False and "[roll the two dice] is not deterministic: 'rolled " in found.said


def test_a_walk_gives_tools_the_arguments_that_they_ask_for() -> None:
    found = findings(Bank)
    assert found["Equal"].holds and UNTRIED not in [each.said for each in found.values()]
    task = Task("mine", 0, Split.TRAIN, "Move 5 from rent to food", language=Language.TOOL, tools=told_of([TRANSFER]))
    for seed in range(20):
        name, given = called(plausible("ready", task, random.Random(seed)))
        assert name == "transfer" and "unasked" not in given
        assert 5 <= given["amount"] < 9 and given["kind"] in ("cash", "card") and given["now"] in (True, False)
        assert given["source"] in (*task.instruction.split(), "ready") and (given["notes"], given["more"]) == ([], {})


def test_a_walk_says_what_a_complaint_offers() -> None:
    task = Task("mine", 0, Split.TRAIN, "Walk to the goal", language=Language.TEXT)
    page = "you see a wall\nerror a move must be one of turn left, go forward; got 2"
    said = {plausible(page, task, random.Random(seed)).text for seed in range(200)}
    assert {"go forward", "you see a wall", "0"} <= said


def test_findings_keep_the_names_of_files_and_hidden_differences_in_mind() -> None:
    assert str(Finding("Every task begins.", False, "my_env.py:8: no")).endswith(" my_env.py:8: no.")
    assert str(Finding("Every task begins.", False, "my sites/env.py:8: no")).endswith(" my sites/env.py:8: no.")
    assert str(Finding("Every task begins.", False, "task 3: no")).endswith(" Task 3: no.")

    class Hidden(Question):
        def reset(self, seed: int) -> dict[str, Any]:
            return super().reset(seed) | {"instruction": "Guess the code", "text": "four digits"}

    said = findings(Hidden)["Tasks"].said
    assert "tasks are distinct by instruction and first page" in said and "they differ in something hidden" in said


def test_a_message_is_the_first_line_with_words() -> None:
    assert instances.told(LookupError("\n*****\n  Resource 'words' not found.\n  Use ..")).startswith(
        "LookupError: Resource 'words' not found. ("
    )
    assert instances.told(KeyError("x")).startswith("KeyError: 'x' (") and instances.told(ValueError("")).startswith(
        "ValueError:  ("
    )
