"""Extensions from other installed packages, found through their entry points.

    [project.entry-points."agentq.environments"]
    warehouse = "warehouse_env:make"        # --env warehouse; as for agentq.envs.register
    [project.entry-points."agentq.recipes"]
    careful = "warehouse_env.careful:RECIPE"        # agentq train careful; an agentq.recipes.recipe.Recipe
    [project.entry-points."agentq.engines"]
    mine = "warehouse_env.engine:make"      # the engine mine:REST is make("REST")

Entry points are read only for a name that agentq does not know itself.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any, Literal

from agentq.errors import ConfigError

Kind = Literal["environments", "recipes", "engines"]


def names(kind: Kind) -> list[str]:
    """The names that installed packages add, sorted."""
    return sorted(entry_points(group=f"agentq.{kind}").names)


def load(kind: Kind, name: str) -> Any:
    """The object behind a name of `names`.

    Raises:
        ConfigError: if it cannot be imported, or if two packages claim the name.
    """
    found = list({point.value: point for point in entry_points(group=f"agentq.{kind}", name=name)}.values())
    owners = [point.dist.name if point.dist is not None else point.value for point in found]
    if len(found) != 1:
        got = ", ".join(owners) or "none"
        raise ConfigError(f"the name '{name}' must come from one package in agentq.{kind}; got {got}")
    try:
        return found[0].load()
    except Exception as error:
        said = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise ConfigError(f"{found[0].value} of the package {owners[0]} must load as '{name}'; got {said}") from error
