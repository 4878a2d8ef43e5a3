"""A task on a live MCP server: reading is free, a call that changes something waits for the user and is made once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentq.agent.calls import call
from agentq.critics.judge import OutcomeJudge
from agentq.critics.ranker import LLMRanker
from agentq.envs.browser.guard import FinalStep
from agentq.errors import ConfigError
from agentq.live.options import LiveOptions
from agentq.live.solve import Outcome, Solution, Watcher
from agentq.policies.budget import Budget, Budgeted
from agentq.policies.model_policy import ModelPolicy
from agentq.searching.selection import SearchSettings
from tests.scripted_engine import Scripted

pytest.importorskip("mcp")
from agentq.envs.mcp_world import McpSession
from agentq.live.tools import solve_with_tools

NOTES = """
import sys
from mcp.server import MCPServer
from mcp.types import ToolAnnotations
server = MCPServer("notes")
file = sys.argv[1]
@server.tool(annotations=ToolAnnotations(readOnlyHint=True))
def show() -> str:
    return "notes: " + open(file).read()
@server.tool()
def add(text: str) -> str:
    open(file, "a").write(text + ";")
    return "added"
server.run()
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[McpSession, Path]]:
    folder = tmp_path_factory.mktemp("server")
    (folder / "server.py").write_text(NOTES)
    session = McpSession(f"{sys.executable} {folder / 'server.py'} {folder / 'notes'}")
    yield session, folder / "notes"
    session.close()


@pytest.fixture
def notes(server: tuple[McpSession, Path]) -> tuple[McpSession, Path]:
    """A server whose notes are in a file, which is empty."""
    server[1].write_text("")
    return server


def agent() -> Scripted:
    """Adds milk or beer, and looks."""

    def answer(role: str, prompt: str) -> str | list[str]:
        if role == "judge":
            page = prompt.partition("FINAL PAGE:")[2]
            good = "notes: milk;" in page or ('held {"name": "add"' in page and '"milk"' in page)
            return f"milk is noted: {'YES' if good else 'NO'}"
        if role == "critic":
            return "none"
        seen = prompt.rpartition("OBSERVATION:")[2]
        if "notes: milk" in seen:
            return "COMMANDS: STOP"
        return (
            ["I look.\n<tool_call>" + str(call("show", {})) + "</tool_call>"]
            if "added" in seen
            else [
                f"COMMANDS: {call('add', {'text': 'milk'})}",
                f"COMMANDS: {call('add', {'text': 'beer'})}",
            ]
        )

    return Scripted(answer)


def solved(session: McpSession, watcher: Watcher) -> Solution:
    engine = Budgeted(agent(), Budget(calls=200))
    models = {"critic": LLMRanker(engine), "judge": OutcomeJudge(engine)}
    return solve_with_tools("note milk", session, ModelPolicy(engine), watcher, SearchSettings(1000, 2), **models)


def test_a_call_with_effects_is_held_asked_about_and_made_once(notes: tuple[McpSession, Path]) -> None:
    session, file = notes
    asked: list[tuple[FinalStep, str]] = []

    def allows(step: FinalStep) -> bool:
        asked.append((step, file.read_text()))
        return True

    solution = solved(session, Watcher(allows))
    assert solution.outcome is Outcome.DONE and file.read_text() == "milk;"
    ((step, before),) = asked
    assert before == "" and step.action == call("add", {"text": "milk"})
    assert step.lines()[-2:][0] == "  text = milk" and "CALL add of " in step.lines()[-1]
    assert solution.carried_out == (step,) and solution.counts["sent"] == solution.counts["allowed_by_person"] == 1
    assert solution.commands[-2:] == (str(call("show", {})), "STOP")


def test_what_the_user_refuses_or_cannot_be_asked_about_is_not_made(notes: tuple[McpSession, Path]) -> None:
    session, file = notes
    waits = solved(session, Watcher(None))
    assert waits.outcome is Outcome.WAITS and waits.waits is not None
    refused = solved(session, Watcher(lambda step: False))
    assert refused.outcome is Outcome.NOT_FOUND and refused.counts["sent"] == 0 < refused.counts["held"]
    assert file.read_text() == ""


@pytest.mark.parametrize(
    "options, message",
    [
        (LiveOptions(), "either --url or --mcp must be given; got neither"),
        (LiveOptions(url="http://a.test", mcp="server"), "either --url or --mcp must be given; got both"),
        (LiveOptions(mcp="server", dry_run=True), "--dry-run must go with --url; got --mcp"),
    ],
)
def test_a_run_has_a_site_or_a_server(options: LiveOptions, message: str) -> None:
    from agentq.config import Prices

    with pytest.raises(ConfigError, match=message):
        options.check(Prices())


COMMAND = """
import sys
from agentq.cli import main
from agentq.live import models
from tests.test_live_tools import agent
models.make_engine = lambda *_: agent()
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.rest
def test_the_command_leaves_the_same_record(notes: tuple[McpSession, Path], tmp_path: Path) -> None:
    session, file = notes
    words = ["run", "note milk", "--mcp", session.server, "--model", "scripted", "--out", str(tmp_path / "run")]
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, *words, "--yes", "--json"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["outcome"] == "done" and told["requests"]["sent"] == 1 and file.read_text() == "milk;"
    assert "This step may not be undone:" in done.stderr and "text = milk" in done.stderr
    assert "CALL add of " in Path(told["report"]).read_text()
