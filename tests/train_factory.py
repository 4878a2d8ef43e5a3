"""Whole runs of `agentq train` with teachers as policies: tiny, but with something to learn from."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from agentq.config import Rounds
from agentq.policies.protocol import Policy
from agentq.recipes.again import GROWS
from agentq.recipes.ladder import climb, rungs_of
from agentq.recipes.recipe import Recipe
from agentq.recipes.settings import Training
from agentq.status import Show
from agentq.store.run import RunStore
from tests.reads import made
from tests.recipes_factory import Quiet, Schooled, Teacher

TINY = [
    *("--run.num_rounds=1", "--run.num_tasks=2", "--run.group_size=3", "--run.seed=4", "--eval.num_tasks=1"),
    *("--train.batch_size=6", "--train.epochs=1", "--search.num_iterations=3", "--search.num_proposals=2"),
]


class Interrupts:
    """Ctrl-C when a stage has done so much."""

    def __init__(self, stage: str, at: int) -> None:
        self.where, self.at = stage, at

    def plan(self, stages: Any, in_flight: int) -> None: ...

    def stage(self, name: str, total: int, unit: str) -> Show:
        def show(done: int, note: str, grown: float = 0.0, /) -> None:
            if name == self.where and done == self.at:
                raise KeyboardInterrupt

        return show


class Taught(Schooled):
    """Its policies follow the expert, mostly, whatever their weights: groups with successes and failures."""

    def policy(self, checkpoint: Path) -> Policy:  # type: ignore[override]
        """See `Pipeline.policy`."""
        c = self.settings.run
        assert isinstance(c, Rounds)
        known = self.scripts(3 * c.num_rounds * c.num_tasks)  # DAPO may take three times as many
        return Teacher(self.engine(checkpoint), known, learnt=True, follows=0.9)


def recipe_of(name: str) -> Recipe[Any]:
    found: Recipe[Any] = import_module(f"agentq.recipes.{name}").RECIPE
    return found


def run(
    name: str, base: Path, out: Path, words: Sequence[str], status: Any = None, recipe: Recipe[Any] | None = None
) -> Training:
    """Train a taught pipeline by a recipe, or by `recipe` under its name; settings as command-line words."""
    recipe = recipe or recipe_of(name)
    settings: Training = made(recipe.settings, words)
    with RunStore.open(out, settings.to_dict(), grows=GROWS) as store:
        climb(Taught(store, settings, base, status or Quiet()), settings, rungs_of(recipe, settings))
    return settings


def weights(out: Path, name: str) -> dict[str, torch.Tensor]:
    """Of the checkpoint that a run ended with."""
    found: dict[str, torch.Tensor] = load_file(out / "checkpoints" / name / "model.safetensors")
    return found


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    """Bit for bit."""
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)
