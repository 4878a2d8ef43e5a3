"""Tools that an agent may call: their form in prompts, and the check of a call against a tool's JSON schema."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentq.agent.calls import called
from agentq.agent.commands import Unreadable
from agentq.errors import ConfigError, require
from agentq.types import EnvAction

_SHOWN = 200  # characters of a complaint


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool. `parameters`: the JSON schema of its arguments. `read_only`: whether calling it changes nothing."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = field(default_factory=lambda: {"type": "object"})
    read_only: bool = False

    @classmethod
    def read(cls, told: Any) -> Tool:
        """The tool of an entry of OpenAI's `tools`. Raises ConfigError if it is none."""
        named = told.get("function") if isinstance(told, dict) else None
        if not isinstance(named, dict) or not isinstance(named.get("name"), str):
            raise ConfigError(f'a tool must be {{"type": "function", "function": {{"name": ..}}}}; got {told!r:.80}')
        return cls(named["name"], str(named.get("description", "")), named.get("parameters") or {"type": "object"})

    def told(self) -> dict[str, Any]:
        """The tool as an entry of OpenAI's `tools`."""
        about = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": about}


class Toolbox:
    """Tools by name, and the check of calls."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        """Raises ConfigError for an invalid schema or two tools with the same name, MissingExtra without jsonschema."""
        self.tools: dict[str, Tool] = {}
        self._checks: dict[str, Any] = {}
        for tool in tools:
            if tool.name in self.tools:
                raise ConfigError(f"each tool must have a different name; got {tool.name} twice")
            self.tools[tool.name], self._checks[tool.name] = tool, _validator(tool)

    @property
    def told(self) -> str:
        """The tools in the form of OpenAI's `tools`, as JSON; see `Task.tools`."""
        return told_of([tool.told() for tool in self.tools.values()])

    def complaint(self, action: EnvAction) -> tuple[str, str] | None:
        """Why a call cannot be made, as error kind and message; None if it can."""
        try:
            name, arguments = called(action)
        except Unreadable as error:
            return "bad_argument", str(error)
        if name not in self.tools:
            return "no_such_tool", f"no tool {name[:80]!r}"
        try:
            wrong = next(iter(self._checks[name].iter_errors(arguments)), None)
        except require("referencing", extra="mcp", for_="tools").exceptions.Unresolvable as error:
            return "bad_argument", f"{name}: its schema refers to {error.ref}"[:_SHOWN]
        if wrong is None:
            return None
        place = "".join(f".{part}" for part in wrong.path)
        return "bad_argument", f"{name}{place}: {wrong.message}"[:_SHOWN]


def told_of(tools: Sequence[dict[str, Any]]) -> str:
    """Entries of OpenAI's `tools` as `Task.tools`; empty for none."""
    return json.dumps(tools, ensure_ascii=False) if tools else ""


def _validator(tool: Tool) -> Any:
    """The validator of a tool's schema. It loads nothing that the schema refers to."""
    jsonschema = require("jsonschema", extra="mcp", for_="tools")
    try:
        kind = jsonschema.validators.validator_for(tool.parameters, default=jsonschema.Draft202012Validator)
        kind.check_schema(tool.parameters)
    except (jsonschema.SchemaError, AttributeError, TypeError) as error:
        raise ConfigError(f"the tool {tool.name} must have a JSON schema; got {str(error).splitlines()[0]}") from None
    return kind(tool.parameters, registry=require("jsonschema_specifications", extra="mcp", for_="tools").REGISTRY)
