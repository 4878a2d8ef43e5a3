"""Helpers of the commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agentq.config import Section
from agentq.errors import ConfigError
from agentq.recipes.load import Given, load, settings, value_of
from agentq.recipes.run import find_recipe, own_recipe, recipe_name, require_train
from agentq.recipes.settings import COMMANDS, RECIPES


def listing(name: str | None, file: Path | None, given: Given) -> list[tuple[str, Any, str]]:
    """Key, value and description of every setting, or of those that the named command or recipe reads."""
    if name is None:
        if given or file:
            key = next((f"{section}.{name}" for section, table in given.items() for name in table), "--config")
            raise ConfigError(
                f"agentq settings must be given a NAME with settings, as in agentq settings loop; got {key}"
            )
        every = {s.key: s for model in reversed(COMMANDS.values()) for s in settings(model)}
        return [(s.key, s.default, s.description) for s in every.values()]
    model, command = _model(name)
    found = load(model, command, file, given)
    return [(s.key, value_of(found, s.key), s.description) for s in settings(model)]


def _model(name: str) -> tuple[type[Section], str]:
    """The settings model of a command or recipe, and the command as typed."""
    if name in COMMANDS:
        return COMMANDS[name], name
    if own_recipe(name) is None:
        known = recipe_name(name, [command for command in COMMANDS if " " not in command], "command or recipe")
        if known in RECIPES:
            return RECIPES[known], f"train {known}"
    require_train("settings")
    recipe = find_recipe(name)
    return recipe.settings, f"train {recipe.name}"


def check_new_base(out: Path) -> None:
    """Raises ConfigError unless `out`, which will be replaced, is new or was made by the same command."""
    held = sorted(entry.name for entry in out.iterdir()) if out.is_dir() else []
    if (out.exists() and not out.is_dir()) or (held and not (out / "pretrained").is_dir()):
        what = f"which holds {held[0]}" if held else "a file"
        raise ConfigError(f"--out must be a new directory, or one that agentq base made; got {out}, {what}")
