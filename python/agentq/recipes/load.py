"""Loads settings: defaults < TOML file < environment < command line. A setting that is not read is refused."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from agentq.config import Section
from agentq.errors import ConfigError, did_you_mean
from agentq.model_settings import VLLM, JsonOrText
from agentq.recipes.settings import COMMANDS

S = TypeVar("S", bound=Section)
Given = Mapping[str, Mapping[str, Any]]  # values by section and name
NOTHING: Given = {}


class Setting(NamedTuple):
    """One setting, as listed to users."""

    key: str
    default: Any
    description: str


def settings(model: type[Section]) -> list[Setting]:
    """Every setting of a model, in order."""
    return [
        Setting(f"{section}.{name}", getattr(info.default, name), field.description or "")
        for section, info in model.model_fields.items()
        for name, field in type(info.default).model_fields.items()
    ]


def value_of(settings: Section, key: str) -> Any:
    """The value of the setting "section.key"."""
    section, _, name = key.partition(".")
    return getattr(getattr(settings, section), name)


def load(
    model: type[S], command: str, file: Path | None = None, given: Given = NOTHING, source: str = "command line"
) -> S:
    """Settings from the model's defaults, then `file` (TOML), then AGENTQ_SECTION__KEY=value, then `given`.

    Args:
        command: the command as typed, for messages.
        given: values by section and name, as text or typed.
        source: name of the source of `given`, for messages.

    Raises:
        ConfigError: if a value or key is wrong. The message names the source, the key, what must hold and the value
            given, or the commands that read the key if this one does not.
    """
    values = {section: info.default.model_dump(exclude_unset=True) for section, info in model.model_fields.items()}
    sources = [
        (file.name if file else "", True, _read_toml(file) if file else NOTHING),
        ("environment", False, _environment()),
        (source, False, given),
    ]
    for origin, strict, sections in sources:
        for section, table in sections.items():
            for name, value in table.items():
                key = f"{section}.{name}"
                _check_read(model, command, key, origin)
                try:
                    values[section][name] = _adapter(model, section, name).validate_python(value, strict=strict)
                except ValidationError as error:
                    raise ConfigError(f"{origin}: {key} {_must_hold(error)}; got {value!r}") from None
    found = model.model_validate(values)
    found.check(command.removeprefix("train "))
    return found


def _adapter(model: type[Section], section: str, name: str) -> TypeAdapter[Any]:
    kind = type(model.model_fields[section].default)
    if kind is VLLM:  # vLLM knows the type
        return TypeAdapter(JsonOrText)
    field: Any = kind.model_fields[name]
    return TypeAdapter(field.rebuild_annotation(), config=ConfigDict(allow_inf_nan=False))


def _check_read(model: type[Section], command: str, key: str, source: str) -> None:
    """Raises ConfigError if the model has no such key."""
    known = [setting.key for setting in settings(model)]
    section = key.partition(".")[0]
    if key in known or (section == "vllm" and section in model.model_fields):
        return
    readers = [f"agentq {other}" for other, reads in COMMANDS.items() if key in {s.key for s in settings(reads)}]
    if not readers:
        raise ConfigError(f"{source}: unknown key '{key}'{did_you_mean(key, known)}")
    more = f" and {len(readers) - 3} more" if len(readers) > 3 else ""
    raise ConfigError(
        f"{source}: settings must be ones that agentq {command} reads; got {key}, "
        f"read by {', '.join(readers[:3])}{more}"
    )


def _must_hold(error: ValidationError) -> str:
    """Pydantic's message in the style of our errors: `must be greater than or equal to 1`."""
    first = error.errors()[0]
    message = first["msg"].replace("Input should", "must").replace("String should", "must")
    return message.split(", unable to parse")[0].split(", got a number")[0]


def _read_toml(file: Path) -> Given:
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ConfigError(f"{file} must be a readable TOML file; got {reason}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file.name} must be TOML; got {error}") from None
    sections = {section for model in COMMANDS.values() for section in model.model_fields}
    for section, table in document.items():
        if section not in sections:
            raise ConfigError(f"{file.name}: unknown key '{section}'{did_you_mean(section, sections)}")
        if not isinstance(table, dict):
            raise ConfigError(f"{file.name}: {section} must be a table, [{section}]; got {table!r}")
    return document


def _environment() -> dict[str, dict[str, str]]:
    """`AGENTQ_SEARCH__C_EXP=2` as {"search": {"c_exp": "2"}}."""
    found: dict[str, dict[str, str]] = {}
    for variable, value in os.environ.items():
        section, separator, name = variable.removeprefix("AGENTQ_").lower().partition("__")
        if variable.startswith("AGENTQ_") and separator:
            found.setdefault(section, {})[name] = value
    return found
