"""Measures any checkpoint or engine on held-out tasks. Needs no torch if a server computes."""

from __future__ import annotations

from pathlib import Path

from agentq.evaluation.stats import RungResult
from agentq.recipes.pipeline import Pipeline
from agentq.recipes.settings import EvalCommand, EvalSearchCommand
from agentq.store.files import write_json
from agentq.types import Split


def measure(
    p: Pipeline, settings: EvalCommand | EvalSearchCommand, checkpoint: Path | str, *, by_steps: bool = False
) -> list[RungResult]:
    """Held-out success of any checkpoint or engine, also written to summary.json. With `EvalSearchCommand`, by search.

    `by_steps`: search before each step instead of once per task.
    """
    p.check_base()
    held_out = p.tasks(Split.TEST, settings.eval.num_tasks)
    name = checkpoint.resolve().name if isinstance(checkpoint, Path) else checkpoint
    if isinstance(settings, EvalSearchCommand):
        n = settings.eval.num_iterations
        method = settings.critic.method
        row = p.evaluate_search(name, "eval", checkpoint, held_out, settings.search, method, n, by_steps=by_steps)
    else:
        row = p.evaluate(name, "eval", checkpoint, held_out, settings.eval.temperature)
    write_json(p.store.path / "summary.json", [row.to_dict()])
    return [row]
