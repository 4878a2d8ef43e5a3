"""The results that an environment of the contract in `contract.py` returns, checked field by field."""

from __future__ import annotations

import inspect
from difflib import get_close_matches
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from agentq.envs.site import printable
from agentq.types import BROWSER_COMMANDS, Command, Verb

_SHOWN = 300  # characters of an environment's text in a message
_USUAL = ("reward", "terminated", "success")  # of the fields that a step may leave out
_LINE = 2000  # characters of a text on one line
_OUTPUT = 6000  # characters of what a block or a tool returns
_Seconds = Annotated[float, Field(gt=0, le=86400)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
_Reward = Annotated[  # many libraries reward by a flag
    float, Field(ge=-1e6, le=1e6), BeforeValidator(lambda told: float(told) if isinstance(told, bool) else told)
]


def one_line(text: str) -> str:
    """An environment's text as part of a message: on one line, printable, at most `_SHOWN` characters."""
    return printable(text)[:_SHOWN]


def clipped(text: str) -> str:
    """The output of a block or a tool, without its middle if it is too long."""
    if len(text) <= _OUTPUT:
        return text
    half = _OUTPUT // 2
    return f"{text[:half]}\n.. {len(text) - 2 * half} characters left out ..\n{text[-half:]}"


Line = Annotated[str, AfterValidator(lambda text: printable(text)[:_LINE])]


def _flag(told: Any) -> bool:
    """Checkers often return 0 or 1."""
    if isinstance(told, bool | int | float) and told in (0, 1):
        return bool(told)
    raise PydanticCustomError("flag", "must be true or false, or 0 or 1, not {told}", {"told": one_line(repr(told))})


Flag = Annotated[bool, BeforeValidator(_flag)]
_Note = Annotated[str, BeforeValidator(lambda told: "" if told is None else told), AfterValidator(one_line)]
_Word = Annotated[str, AfterValidator(lambda word: "_".join(one_line(word).split()))]


class Reply(BaseModel):
    """A result without further fields, in JSON's own types."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, defer_build=True)


class AboutReply(Reply):
    """An environment's description of itself. `commands`: which of BROWSER_COMMANDS it accepts."""

    name: Line
    max_steps: Count
    deadline_s: _Seconds
    commands: Annotated[
        list[Literal[tuple(each.value for each in BROWSER_COMMANDS)]],  # type: ignore[valid-type]
        Field(max_length=len(BROWSER_COMMANDS)),
    ] = []
    language: Literal["web", "code", "text", "tool"] = "web"
    keeps_pages: bool = False
    tools: Annotated[list[dict[str, Any]], Field(max_length=1000)] = []

    @model_validator(mode="after")
    def _has_tools(self) -> AboutReply:
        if self.language == "tool" and not self.tools:
            raise PydanticCustomError("flag", "tools: must name what may be called if the language is 'tool'; got none")
        return self


class ResetReply(Reply):
    """The beginning of an episode."""

    instruction: Annotated[str, Field(max_length=20_000), AfterValidator(printable)]
    text: str
    url: Line = ""


class StepReply(Reply):
    """The result of a step. `answer` is the user's answer to ASK_USER."""

    text: str
    url: Line = ""
    reward: _Reward = 0.0
    terminated: Flag = False
    truncated: Flag = False
    success: Flag = False
    error_kind: _Word | None = None
    error_message: _Note = ""
    answer: Line = ""


class AdviceReply(Reply):
    """The next step of an environment's expert."""

    command: Literal[tuple(each.value for each in (*Command, *Verb))]  # type: ignore[valid-type]
    element: int | None = None
    text: str | None = None
    thought: Line = ""
    explanation: Line = ""


R = TypeVar("R", bound=Reply)


def read(kind: type[R], found: Any) -> R:
    """Check a result against `kind`. Raises ValueError: `reward: input should be .., not None`."""
    if inspect.iscoroutine(found):
        found.close()
        raise ValueError("a coroutine: write def, not async def")
    try:
        return kind.model_validate(found)
    except ValidationError as error:
        first = error.errors()[0]
    place = ".".join(map(str, first["loc"]))
    if first["type"] == "extra_forbidden":
        near = get_close_matches("terminated" if place == "done" else place, kind.model_fields, n=1)
        meant = f"did you mean '{near[0]}'?" if near else f"its fields are {', '.join(kind.model_fields)}"
        raise ValueError(f"the unknown field '{place}'; {meant}")
    if first["type"] == "model_type":
        shown = [name for name, field in kind.model_fields.items() if field.is_required() or name in _USUAL]
        form = ", ".join(f'"{name}": ..' for name in shown)
        raise ValueError(f"{type(found).__name__} in place of {{{form}}}")
    message = first["msg"][0].lower() + first["msg"][1:]
    if first["type"] not in ("missing", "flag"):
        message += f", not {one_line(repr(first['input']))[:60]}"
    raise ValueError(f"{place}: {message}" if place else message)
