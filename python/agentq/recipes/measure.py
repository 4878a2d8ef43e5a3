"""Measures any checkpoint or engine on held-out tasks. Needs no torch where a server computes."""

from __future__ import annotations

from pathlib import Path

from agentq.evaluation.stats import RungResult
from agentq.recipes.pipeline import Pipeline
from agentq.store.files import write_json
from agentq.types import Split


def measure(p: Pipeline, checkpoint: Path | str, *, search: str | None) -> list[RungResult]:
    """Held-out success of any checkpoint or engine, written to summary.json.

    `search` at test time: "tree", one for each task; "step", one for each step; None, no search.
    """
    p.check_base()
    iterations = p.config.eval.num_iterations if search else 0
    held_out = p.tasks(Split.TEST, p.config.eval.num_tasks)
    name = checkpoint.resolve().name if isinstance(checkpoint, Path) else checkpoint
    rows = [p.evaluate(name, "eval", checkpoint, held_out, iterations=iterations, by_steps=search == "step")]
    write_json(p.store.path / "summary.json", [row.to_dict() for row in rows])
    return rows
