"""Servers of the Model Context Protocol as environments: the tools of a server are the actions.

    def make() -> McpWorld:
        return McpWorld("python my_server.py", reset, check)

`reset` brings the server's world into the state of a seed, and `check` scores its end; both are functions of yours that
may call any tool of the server. Search goes back by replay, through `reset`.
"""

from __future__ import annotations

import atexit
import json
import shlex
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from agentq.agent.calls import called
from agentq.envs.replies import clipped
from agentq.envs.tools import Tool
from agentq.errors import ConfigError, EnvError, require
from agentq.types import Command, EnvAction, Verb

DEADLINE_S = 60.0


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a call: its text, its structured content if the server gives any, and whether it is an error."""

    text: str
    data: Any = None
    error: bool = False


class McpSession:
    """A connection to a server, which is a command (stdio) or a URL (streamable HTTP). `tools` are those it lists."""

    def __init__(
        self, server: str, *, environment: Mapping[str, str] | None = None, deadline_s: float = DEADLINE_S
    ) -> None:
        """Start or reach the server.

        Args:
            environment: variables of the server's process, which otherwise has only PATH, HOME and the like.
            deadline_s: how long an answer may take.

        Raises:
            MissingExtra: without the mcp package.
            EnvError: if there is no server, or one that breaks the protocol.
            ConfigError: for a tool without a valid schema.
        """
        mcp = require("mcp", extra="mcp", for_="an MCP server")
        from_thread = require("anyio.from_thread", extra="mcp", for_="an MCP server")
        self.server = server
        self._open = ExitStack()
        command, *args = [server] if server.startswith(("http://", "https://")) else shlex.split(server) or [""]
        given = {"env": dict(environment)} if environment else {}
        where = (
            server if not args and "://" in server else mcp.StdioServerParameters(command=command, args=args, **given)
        )
        try:
            self._portal = self._open.enter_context(from_thread.start_blocking_portal())
            client = mcp.Client(where, read_timeout_seconds=deadline_s, cache=None)
            self._client = self._open.enter_context(self._portal.wrap_async_context_manager(client))
            self.tools = self._list()
        except (EnvError, ConfigError):
            self.close()
            raise
        except BaseException as error:
            self._open.close()
            if not isinstance(error, Exception):
                raise
            raise EnvError(f"{server} must be an MCP server; got {_said(error)}") from error
        atexit.register(self._open.close)

    def call(self, name: str, arguments: Mapping[str, Any] | None = None) -> ToolResult:
        """Call a tool. A tool that fails is a ToolResult; EnvError if the server does not answer."""
        try:
            found = self._portal.call(partial(self._client.call_tool, name, dict(arguments or {})))
        except Exception as error:
            if _answered(error):
                return ToolResult(_said(error), error=True)
            raise EnvError(f"{self.server} must answer; got {_said(error)}") from error
        data = found.structured_content
        texts = [part.text if part.type == "text" else f"({part.type})" for part in found.content]
        text = "\n".join(texts) or ("" if data is None else json.dumps(data, ensure_ascii=False))
        return ToolResult(text, data, bool(found.is_error))

    def close(self) -> None:
        """End the connection, and the server if it was started here. Idempotent."""
        atexit.unregister(self._open.close)
        try:
            self._open.close()
        except Exception as error:
            raise EnvError(f"{self.server} must end; got {_said(error)}") from error

    def _list(self) -> list[Tool]:
        """The tools, from every page of the list."""
        found: list[Tool] = []
        cursor = None
        while True:
            page = self._portal.call(partial(self._client.list_tools, cursor=cursor))
            for tool in page.tools:
                read_only = bool(tool.annotations and tool.annotations.read_only_hint)
                found.append(Tool(tool.name, tool.description or "", tool.input_schema, read_only))
            cursor = page.next_cursor
            if cursor is None:
                return found


Reset = Callable[[McpSession, int], dict[str, str]]
Check = Callable[[McpSession, int, str], float]


class McpWorld:
    """A class of the contract over an MCP server.

    Args:
        server: a command or a URL; see `McpSession`.
        reset: `reset(session, seed)` brings the server's world into the state of a seed and returns `instruction` and
            `text`, the first observation.
        check: `check(session, seed, answer)` returns the reward of the end, in [0, 1], which is a success at 1.
            `answer` is what the agent said with STOP.
        offers: whether the agent may call a tool. The functions may call all.
        name: the environment's name.
        max_steps: length of an episode.
        environment: as for `McpSession`.
        deadline_s: as for `McpSession`.
    """

    language, keeps_pages, blocking = "tool", True, True

    def __init__(
        self,
        server: str,
        reset: Reset,
        check: Check,
        *,
        offers: Callable[[Tool], bool] = lambda tool: True,
        name: str = "mcp",
        max_steps: int = 30,
        environment: Mapping[str, str] | None = None,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        self._connect = partial(McpSession, server, environment=environment, deadline_s=deadline_s)
        self.session, self._lost = self._connect(), False
        self._reset, self._check = reset, check
        self.name, self.max_steps, self.deadline_s = name, max_steps, deadline_s
        self.tools = [tool.told() for tool in self.session.tools if offers(tool)]
        self._seed, self._shown = -1, ""

    def reset(self, seed: int) -> dict[str, Any]:
        """The beginning of the episode of a seed, on another connection if the last was lost."""
        if self._lost:
            self.close()
            self.session, self._lost = self._connect(), False
        try:
            begun = self._reset(self.session, seed)
        except EnvError:
            self._lost = True
            raise
        self._seed, self._shown = seed, begun["text"]
        return begun

    def step(self, command: str, element: int | None, text: str | None) -> dict[str, Any]:
        """Call a tool, or end the episode."""
        if command not in (Command.STOP, Verb.CALL):
            said = f"this world takes calls of tools, not {command}"
            return {"text": self._shown, "error_kind": "not_taken", "error_message": said}
        try:
            if command == Command.STOP:
                reward = float(self._check(self.session, self._seed, text or ""))
                return {"text": self._shown, "reward": reward, "terminated": True, "success": reward > 1 - 1e-9}
            found = self.session.call(*called(EnvAction(Verb.CALL, None, text)))
        except EnvError as error:
            self._lost = True
            told = {"error_kind": "session_lost", "error_message": str(error)}
            return {"text": self._shown, "truncated": True, **told}
        self._shown = shown(found)
        return {"text": self._shown, "error_kind": "tool_error" if found.error else None}

    def close(self) -> None:
        """End the connection."""
        with suppress(EnvError):  # it may be lost
            self.session.close()


def shown(result: ToolResult) -> str:
    """A result as an observation, without its middle if it is too long."""
    return clipped(result.text or "no output")


def _answered(error: Exception) -> bool:
    """Whether an error is the server's answer to this call, and not the end of the connection or a deadline."""
    mcp = require("mcp", extra="mcp", for_="an MCP server")
    return isinstance(error, mcp.MCPError) and error.error.code in (-32600, -32601, -32602, -32603)


def _said(error: BaseException) -> str:
    """An error on one line; of a group, its first."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
