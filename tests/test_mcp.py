"""MCP servers as environments, over stdio and HTTP: `apps` as tools, solved by an expert; servers that fail."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentq import envs
from agentq.agent.calls import call
from agentq.errors import EnvError
from agentq.types import Command, EnvAction

pytest.importorskip("mcp")
pytest.importorskip("pydantic_monty")
from agentq.envs.apps import api, draw
from agentq.envs.apps.env import sandbox
from agentq.envs.mcp_world import McpSession, McpWorld, ToolResult, shown

SERVER = f"{sys.executable} -m agentq.envs.apps.mcp_server"
EXAMPLE = f"{Path(__file__).parents[1] / 'examples' / 'mcp_apps.py'}:make"
TWO = """
import os, sys, time
from mcp.server import MCPServer
server = MCPServer("two")
@server.tool()
def die() -> str:
    os._exit(1)
@server.tool()
def sleep() -> str:
    time.sleep(60)
@server.tool()
def fail(a: int) -> str:
    raise ValueError("no " + str(a))
@server.tool()
def long() -> str:
    return "a" * 10_000
server.run()
"""


def expert(name: str, seed: int) -> list[EnvAction]:
    """The calls that the expert's code makes on a copy of the task, in order."""
    state, goal = draw.begin(name, seed)
    calls: list[EnvAction] = []

    def note(app: str, function: str, args: tuple[Any, ...], given: Any) -> Any:
        if app != "api_docs":
            calls.append(call(f"{app}_{function}", dict(given)))
        return api.call(state, app, function, args, given)

    names = sandbox().start
    for block in goal.expert:
        ran = sandbox().run(names, block, note)
        assert ran.state is not None and not ran.error
        names = ran.state
    return calls


@pytest.fixture(scope="module")
def apps() -> Iterator[Any]:
    env = envs.make(EXAMPLE)
    yield env
    env.close()


@pytest.mark.parametrize("index", [0, 1, 7, 20])
def test_the_expert_solves_apps_by_calls_and_one_call_less_does_not(apps: Any, index: int) -> None:
    task = envs.task(EXAMPLE, "train", index)
    every = expert("apps/1", task.seed)
    for calls, solves in ((every, True), (every[:-1], False)):
        apps.reset(task)
        for action in calls:
            result = apps.step(action)
            assert result.error_kind is None, (action, result)
        end = apps.step(EnvAction(Command.STOP))
        assert (end.terminated, end.success, end.reward == 1) == (True, solves, solves)


def test_the_agent_is_not_offered_the_tools_of_the_driver(apps: Any) -> None:
    task = envs.task(EXAMPLE, "train", 0)
    names = [each["function"]["name"] for each in json.loads(task.tools)]
    assert len(names) == 110 and "music_show_song" in names and "judge_task" not in names
    apps.reset(task)
    assert apps.step(call("judge_task", {})).error_kind == "no_such_tool"
    assert apps.step(call("music_show_song", {"song_id": "x", "access_token": "t"})).error_kind == "bad_argument"
    assert apps.step(call("music_show_song", {"song_id": 1, "access_token": "t"})).error_kind == "tool_error"


@pytest.fixture(scope="module")
def over_http() -> Iterator[McpSession]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([*SERVER.split(), "--http", str(port)])
    try:
        session = reached(f"http://127.0.0.1:{port}/mcp")
        yield session
        session.close()
    finally:
        process.kill()
        process.wait()


def test_read_only_tools_change_nothing(over_http: McpSession) -> None:
    marked = {tool.name: tool.read_only for tool in over_http.tools}
    assert marked["notes_show_notes"] and marked["music_login"]
    assert not marked["notes_create_note"] and not marked["supervisor_complete_task"] and not marked["begin_task"]


@pytest.mark.rest
def test_the_example_keeps_what_search_relies_on() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "agentq", "env", "check", EXAMPLE, "--tasks", "1"],  # a session starts a server
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_server_over_http_is_the_same(over_http: McpSession) -> None:
    begun = json.loads(over_http.call("begin_task", {"env": "apps/1", "seed": 3}).text)
    assert begun["instruction"] == draw.begin("apps/1", 3)[1].instruction
    assert json.loads(over_http.call("judge_task").text) == {"reward": 0.0}
    assert over_http.call("no_such_tool") == ToolResult("no tool no_such_tool", None, True)


def reached(url: str) -> McpSession:
    for _ in range(120):
        try:
            return McpSession(url)
        except EnvError:
            time.sleep(0.5)
    raise AssertionError(f"no server at {url}")


@pytest.mark.rest
def test_a_server_that_dies_or_hangs_is_a_fault_of_the_world(tmp_path: Path) -> None:
    (tmp_path / "two.py").write_text(TWO)
    server = f"{sys.executable} {tmp_path / 'two.py'}"
    begun = {"instruction": "do it", "text": "begin"}
    world = McpWorld(server, lambda session, seed: begun, lambda session, seed, answer: 0.0, deadline_s=10.0)
    world.reset(0)
    failed = world.step("CALL", None, str(call("fail", {"a": 3})))
    assert failed["error_kind"] == "tool_error" and "fail" in failed["text"]
    assert len(world.step("CALL", None, str(call("long", {})))["text"]) < 6100
    assert world.step("RUN", None, "x = 1")["error_kind"] == "not_taken"
    died = world.step("CALL", None, str(call("die", {})))
    assert died["error_kind"] == "session_lost" and died["truncated"]
    assert world.reset(1)["text"] == "begin"
    assert world.step("CALL", None, str(call("fail", {"a": 3})))["error_kind"] == "tool_error"
    world.close()
    hung = McpSession(server, deadline_s=1.0)
    with pytest.raises(EnvError, match="must answer"):
        hung.call("sleep")
    hung.close()


def test_what_is_no_server_is_said_in_a_line() -> None:
    with pytest.raises(EnvError, match=r"no-such-command-here must be an MCP server; got FileNotFoundError"):
        McpSession("no-such-command-here")


def test_a_result_without_text_is_shown() -> None:
    assert shown(ToolResult("")) == "no output"
