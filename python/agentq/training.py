"""`agentq.train`: a recipe in a script, as `agentq train` runs it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from agentq import envs
from agentq.config import SYNONYMS
from agentq.errors import ConfigError, require
from agentq.recipes.load import settings
from agentq.recipes.settings import RECIPES, Training
from agentq.results import Rungs


def train(
    recipe: str | Path,
    *,
    base: str | Path | None = None,
    env: str | Callable[[], Any] = "booking",
    out: str | Path,
    clean: bool = False,
    **sections: Mapping[str, Any],
) -> Rungs:
    """Run a recipe as `agentq train` does, in the run directory `out`. Repeating the call resumes an interrupted run.

        train("agent_q", env="shop", out="runs/shop", run={"num_rounds": 2}, search={"num_iterations": 16})

    Args:
        recipe: the name of a method, or a file that defines RECIPE.
        base: the checkpoint to start from; None: the small model that comes with agentq.
        env: the name of an environment, or a class or a function that makes an instance.
        out: the run directory. The trained checkpoint is `out/checkpoints/RECIPE`, the report `out/report.html`.
        clean: delete an earlier run of the same recipe in `out` first.
        sections: settings by section, as `agentq settings RECIPE` lists them.

    Returns:
        Held-out success of the base and of the trained model.

    Raises:
        ConfigError: if an argument is wrong.
        AgentqError: for any other fault that the command would report in one line.
    """
    require("torch", extra="train", for_="agentq.train")
    from agentq.recipes import run

    if not isinstance(out, str | os.PathLike):
        raise ConfigError(f"out must be a path, the run directory; got {out!r:.60}")
    if not isinstance(env, str):
        if not callable(env):
            raise ConfigError(
                "env must be a name, or a class or function that makes an environment, since episodes run at the same "
                f"time; got an instance of {type(env).__name__}"
            )
        made, session = env, envs.make(env)
        session.close()
        env = session.name
        envs.register(env, made)
    for section, values in sections.items():
        if not isinstance(values, Mapping):
            raise ConfigError(_no_section(str(recipe), section, values))
    for name in ("env", "out"):
        if name in sections.get("run", {}):
            raise ConfigError(f"{name} must be given as an argument; got run={{'{name}': ..}}: write {name}=..")
    given = {**sections, "run": {**sections.get("run", {}), "env": env, "out": os.path.expanduser(out)}}
    inputs = run.Inputs(given, base=os.path.expanduser(str(base)) if base else None, clean=clean, source="agentq.train")
    return Rungs(run.train(str(recipe), inputs).rows)


def _no_section(recipe: str, name: str, value: object) -> str:
    """What is wrong with a keyword, with `write run={'num_rounds': 2}` if it is or resembles a setting's name."""
    wanted = (name, f"num_{name}", SYNONYMS.get(name))
    keys = [setting.key.partition(".") for setting in settings(RECIPES.get(recipe, Training))]
    found = [f"{section}={{'{own}': {value!r:.40}}}" for section, _, own in keys if own in wanted]
    more = f": write {' or '.join(found)}" if found else ""
    return f"{name} must be a dict of settings; got {value!r:.40}{more}"


async def train_async(
    recipe: str | Path,
    *,
    base: str | Path | None = None,
    env: str | Callable[[], Any] = "booking",
    out: str | Path,
    clean: bool = False,
    **sections: Mapping[str, Any],
) -> Rungs:
    """`train` in a separate thread. Cancelling the call does not stop the thread."""
    return await asyncio.to_thread(train, recipe, base=base, env=env, out=out, clean=clean, **sections)
