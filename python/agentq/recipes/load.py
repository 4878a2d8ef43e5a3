"""Loads settings: defaults < TOML file < environment < command line. A setting that is not read is refused."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import ValidationError

from agentq.config import SYNONYMS
from agentq.errors import ConfigError, did_you_mean
from agentq.model_settings import Section
from agentq.recipes.settings import COMMANDS

S = TypeVar("S", bound=Section)
Given = Mapping[str, Mapping[str, Any]]  # values by section and name
NOTHING: Given = {}


class Setting(NamedTuple):
    """One setting, as listed to users."""

    key: str
    default: Any
    description: str


def settings(model: type[Section], found: Section | None = None) -> list[Setting]:
    """Every setting of a model, in order, with its default or its value in `found`."""
    return [
        Setting(f"{section}.{name}", getattr(value, name), field.description or "")
        for section, info in model.model_fields.items()
        for value in [getattr(found, section, info.default)]
        for name, field in type(value).model_fields.items()
    ]


def over(under: Given, above: Given) -> Given:
    """Both together. Where both have a value, it is that of `above`."""
    return {section: {**under.get(section, {}), **above.get(section, {})} for section in {**under, **above}}


def read_by(model: type[Section], given: Given) -> Given:
    """The given settings that the model reads, which a run of another version need not have."""
    known = {setting.key for setting in settings(model)}
    return {
        section: {name: value for name, value in table.items() if section == "vllm" or f"{section}.{name}" in known}
        for section, table in given.items()
        if section in model.model_fields
    }


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
    known = {setting.key for setting in settings(model)}
    for origin, strict, sections in (
        (file.name if file else "", True, _read_toml(file) if file else NOTHING),
        ("environment", False, _environment()),
        (source, False, given),
    ):
        for key in (f"{section}.{name}" for section, table in sections.items() for name in table):
            open_ended = key.startswith("vllm.") and "vllm" in model.model_fields  # vLLM knows its arguments
            if key not in known and not open_ended:
                raise ConfigError(f"{_place(origin, file, key)}: {_not_read(command, key, known)}")
        more = {section: {**table, **sections.get(section, {})} for section, table in values.items()}
        try:
            found = model.model_validate(more, strict=strict)
        except ValidationError as error:
            first = error.errors()[0]
            key = ".".join(map(str, first["loc"]))
            place, must = _place(origin, file, key), _must_hold(first["msg"])
            raise ConfigError(f"{place}: {key} {must}; got {first['input']!r}") from None
        values = found.model_dump(exclude_unset=True)
    found.check(command.removeprefix("train "))
    return found


def _not_read(command: str, key: str, known: Collection[str]) -> str:
    """Why a command refuses a key: it is misspelt, or other commands read it."""
    readers = [f"agentq {other}" for other, reads in COMMANDS.items() if key in {s.key for s in settings(reads)}]
    if not readers:
        return f"unknown key '{key}'{_nearest(command, key, known)}"
    more = f" and {len(readers) - 3} more" if len(readers) > 3 else ""
    return f"agentq {command} does not read {key}; it is read by {', '.join(readers[:3])}{more}"


def _nearest(command: str, key: str, known: Collection[str]) -> str:
    """What a misspelt key may have meant: a section, a setting of its section, or one that other commands read."""
    section, _, name = key.partition(".")
    sections = {each.partition(".")[0] for each in known}
    if section not in sections:
        return f", since no section is called '{section}'{did_you_mean(section, sections)}"
    every = {
        s.key.partition(".")[2]
        for reads in COMMANDS.values()
        for s in settings(reads)
        if s.key.startswith(f"{section}.")
    }
    own = sorted(each.partition(".")[2] for each in known if each.startswith(f"{section}."))
    for names in (own, sorted(every)):
        near = [each for each in names if each == SYNONYMS.get(name)]
        near = near or [each for each in names if len(name) > 3 and name in each] or get_close_matches(name, names, n=1)
        near = near or [each for each in names if any(word.startswith(name) for word in each.split("_"))]
        if 0 < len(near) <= 3:
            read = "" if near[0] in own else f", which agentq {command} does not read"
            meant = " or ".join(f"'{section}.{each}'" for each in near)
            return f"; did you mean {meant}{read}?"
    return f"; known: {', '.join(f'{section}.{each}' for each in own)}"


def _must_hold(message: str) -> str:
    """Pydantic's message in the style of our errors: `must be greater than or equal to 1`."""
    message = message.replace("Input should", "must").replace("String should", "must")
    return message.split(", unable to parse")[0].split(", got a number")[0]


def _read_toml(file: Path) -> Given:
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ConfigError(f"{file} must be a readable TOML file; got {reason}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file.name} must be TOML; got {error}") from None
    sections = {section for model in COMMANDS.values() for section in model.model_fields}
    for section, table in document.items():
        if section not in sections:
            raise ConfigError(
                f"{_place(file.name, file, section)}: unknown key '{section}'{did_you_mean(section, sections)}"
            )
        if not isinstance(table, dict):
            raise ConfigError(f"{file.name}: {section} must be a table, [{section}]; got {table!r}")
    return document


def _place(origin: str, file: Path | None, key: str) -> str:
    """The origin of a key, with its line if it is the file."""
    if file is None or origin != file.name:
        return origin
    inside = ""
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        word, equals, _ = line.partition("#")[0].strip().partition("=")
        if word.startswith("["):
            inside = word.strip("[] ")
        if key == (f"{inside}.{word.strip()}" if equals else inside):
            return f"{origin}, line {number}"
    return origin


def _environment() -> dict[str, dict[str, str]]:
    """`AGENTQ_SEARCH__C_EXP=2` as {"search": {"c_exp": "2"}}."""
    found: dict[str, dict[str, str]] = {}
    for variable, value in os.environ.items():
        section, separator, name = variable.removeprefix("AGENTQ_").lower().partition("__")
        if variable.startswith("AGENTQ_") and separator:
            found.setdefault(section, {})[name] = value
    return found
