"""An MCP server as an environment: the apps of the environment `apps`, called as tools.

agentq env check examples/mcp_apps.py:make
agentq eval CHECKPOINT --env examples/mcp_apps.py:make
"""

import json
import sys

from agentq.envs.mcp_world import McpSession, McpWorld

SERVER = f"{sys.executable} -m agentq.envs.apps.mcp_server"
MINE = ("begin_task", "judge_task")  # tools that the agent is not offered


def reset(session: McpSession, seed: int) -> dict[str, str]:
    """Start the task of this seed."""
    return json.loads(session.call("begin_task", {"env": "apps/1", "seed": seed}).text)


def check(session: McpSession, seed: int, answer: str) -> float:
    """Here the server itself scores the end; a checker may also read the server's state with its tools."""
    return json.loads(session.call("judge_task").text)["reward"]


def make() -> McpWorld:
    return McpWorld(SERVER, reset, check, offers=lambda tool: tool.name not in MINE, name="mcp-apps")
