"""Environments as TRL takes them: methods are tools with schemas, `reset` takes a row, `get_reward` scores.

`offered` finds tools as GRPOTrainer of TRL 1.16 does. With the peers, that trainer itself takes two steps.
"""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentq import envs
from agentq.envs.trl_env import WebWorld, factory, rows
from agentq.errors import ConfigError
from agentq.types import Command, EnvAction, Verb

ROOT = Path(__file__).parents[1]
PEERS = ROOT / "build" / "peers" / "bin" / "python"
TOOLS = {Command.SELECT: ("element", "option"), Command.GOTO: ("path",), Command.SCROLL: ("direction",)}
TOOLS |= {Command.ASK_USER: ("question",), Verb.RUN: ("code",), Verb.SAY: ("line",)}


def offered(world: Any) -> dict[str, Callable[..., str]]:
    members = [name for name, _ in inspect.getmembers(type(world), predicate=inspect.isfunction)]
    assert {"reset", "get_reward"} <= set(members)
    hidden = ("reset", "get_reward")
    return {name: getattr(world, name) for name in members if name not in hidden and not name.startswith("_")}


def arguments(action: EnvAction) -> dict[str, Any]:
    names = TOOLS.get(action.command, ("element", "text"))
    given = [value for value in (action.element, action.text) if value is not None]
    return dict(zip(names, given, strict=False))


@pytest.mark.parametrize("name", ["booking", "shop", "apps/1"])
def test_an_expert_who_calls_the_tools_is_paid(name: str) -> None:
    if name.startswith("apps"):
        pytest.importorskip("pydantic_monty")
    world, expert, twin = factory(name)(), envs.expert(name), envs.make(name)
    tools = offered(world)
    for row in rows(3, start=5):
        task = envs.task(name, "train", row["index"])
        page = twin.reset(task)
        assert world.reset(**row) == f"{task.instruction}\n\n{page.text}"
        over = False
        while not over:
            action = expert(task, twin).env_action
            result = twin.step(action)
            over = result.terminated or result.truncated
            assert tools[action.command.value.lower()](**arguments(action)) == result.observation.text
        assert world.get_reward() == result.reward == 1
        with pytest.raises(ValueError, match="the task has ended"):
            world.stop()


def test_the_schema_of_every_tool_can_be_read() -> None:
    schema = pytest.importorskip("transformers.utils").get_json_schema
    told = {name: schema(tool)["function"] for name, tool in offered(factory("booking")()).items()}
    assert set(told) == {"click", "type", "select", "submit", "clear", "goto", "scroll", "ask_user", "stop"}
    assert told["type"]["parameters"]["required"] == ["element", "text"]
    assert told["click"]["parameters"]["properties"]["element"]["type"] == "integer"


def test_a_mistake_costs_nothing_but_its_step() -> None:
    world = factory("shop", "test")()
    assert isinstance(world, WebWorld)
    world.reset(index=3, environment="x")
    assert "no element [999]" in world.click(999) and world.get_reward() == 0


def test_worlds_of_tools_are_refused() -> None:
    class Tools:
        language = "tool"
        tools = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]  # noqa: RUF012

        def reset(self, seed: int) -> dict[str, str]:
            return {"instruction": "q", "text": "t"}

        def step(self, command: str, element: int | None, text: str | None) -> dict[str, str]:
            return {"text": "t"}

    envs.register("tools-for-trl", Tools)
    with pytest.raises(ConfigError, match="must be web commands, code or lines; got tool"):
        factory("tools-for-trl")


@pytest.mark.rest
@pytest.mark.skipif(not PEERS.exists(), reason="TRL needs an environment of its own: make bench-setup")
@pytest.mark.parametrize("name", ["booking", "apps/1"])
def test_trl_trains_two_steps_on_what_the_tools_do(name: str) -> None:
    monty = {"MONTY_BIN": str(Path(sys.executable).with_name("monty"))}  # it is not beside the Python of the peers
    words = [PEERS, "-W", "ignore", ROOT / "benchmarks" / "worlds_trl.py", name]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=os.environ | monty)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["steps"], found["moved"], len(found["logs"])) == (2, True, 2)
    for step in found["logs"]:
        assert step["reward"] == 0.5 and step["reward_std"] > 0.7  # one episode of two is the expert's
        assert step["tools/call_frequency"] > 1 and step["tools/failure_frequency"] == 0
