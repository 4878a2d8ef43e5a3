"""`agentq.train`: a recipe in a script, as `agentq train` runs it."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentq import envs
from agentq.errors import require
from agentq.evaluation.stats import RungResult

if TYPE_CHECKING:
    from agentq.recipes.pipeline import Pipeline


def train(
    recipe: str | Path,
    *,
    base: str | Path | None = None,
    env: str | Callable[[], Any] = "booking",
    out: str | Path,
    clean: bool = False,
    **sections: Mapping[str, Any],
) -> list[RungResult]:
    """Run a recipe as `agentq train` does, in the run directory `out`; the same call again goes on where it stopped.

        train("agent_q", env="shop", out="runs/shop", run={"num_rounds": 2}, search={"num_iterations": 16})

    Args:
        recipe: the name of a method, or a file that defines RECIPE.
        base: the checkpoint to begin with; None: the one that comes with agentq.
        env: the name of an environment, or a class or function, which is registered under the class's name.
        out: the run directory. The trained checkpoint is `out/checkpoints/RECIPE`, the report `out/report.html`.
        clean: delete an earlier run of the same recipe in `out` first.
        sections: settings by section, as `agentq settings RECIPE` lists them.

    Returns:
        Held-out success of the base and of the trained model.

    Raises:
        AgentqError: as the command, in one line.
    """
    require("torch", extra="train", for_="agentq.train")
    from agentq.cli.commands import _recipe, own_recipe
    from agentq.cli.job import Job
    from agentq.recipes import rounds
    from agentq.recipes.presets import load_for

    if not isinstance(env, str):
        made, env = env, envs.make(env).name
        envs.register(env, made)
    method, file = _recipe(str(recipe)), own_recipe(str(recipe))
    given = {"run": {**sections.pop("run", {}), "env": env, "out": out}, **sections}
    words = [f"--{section}.{key}={value}" for section, pairs in given.items() for key, value in pairs.items()]
    command = f"train {method.name}"
    config = load_for(command, None, words, method.reads, method.defaults)
    method.check(config)
    rows: list[RungResult] = []

    def work(p: Pipeline) -> list[RungResult]:
        rows.extend(rounds.train(p, method))
        return rows

    args = argparse.Namespace(base=base and str(base), clean=clean, command="train", config=None, json=False)
    Job(args, config, command, "", {"RECIPE": file} if file else {}).run(work)
    return rows


async def train_async(
    recipe: str | Path,
    *,
    base: str | Path | None = None,
    env: str | Callable[[], Any] = "booking",
    out: str | Path,
    clean: bool = False,
    **sections: Mapping[str, Any],
) -> list[RungResult]:
    """`train` in a thread of its own. A call that is cancelled goes on there until the process ends."""
    return await asyncio.to_thread(train, recipe, base=base, env=env, out=out, clean=clean, **sections)
