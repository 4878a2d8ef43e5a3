"""Training inside a run: a learner by its settings, and one stage's optimiser steps, resumable. Knows no method."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentq.config import Config
from agentq.errors import StoreError
from agentq.learn.epochs import count_steps
from agentq.learn.epochs import train as train_epochs
from agentq.learn.learner import Learner, Metrics
from agentq.recipes.pipeline import Pipeline
from agentq.store.durable import flaw, seal

CHECKPOINT_EVERY = 20  # optimiser steps


def learner_of(config: Config, start: Path, *, learning_rate: float | None = None, warmup_steps: int = 0) -> Learner:
    """A learner over the checkpoint `start` with the settings of `train`."""
    t = config.train
    return Learner.from_checkpoint(
        start,
        learning_rate=learning_rate or t.learning_rate,
        max_grad_norm=t.max_grad_norm,
        lora_rank=t.lora_rank,
        bf16=t.bf16,
        gradient_checkpointing=t.gradient_checkpointing,
        warmup_steps=warmup_steps,
        seed=config.run.seed,
    )


def learn(
    p: Pipeline,
    stage: str,
    learner: Learner,
    items: Sequence[Any],
    loss: Callable[[Learner, list[Any], Config], Metrics],
    *,
    config: Config,
    directory: Path,
    epochs: int,
    seed: int,
    log: Callable[[Metrics], None],
    finish: Callable[[], Mapping[str, Any]],
    note: Mapping[str, Any] | None = None,
) -> None:
    """Take the optimiser steps of a stage; a killed one goes on from its newest checkpoint. No items, no steps.

    Args:
        stage: whose note gets the number of items, the seconds over all interruptions, and `note`.
        directory: of the checkpoints.
        log: gets the metrics of each step before a checkpoint of it is written: a step taken again is logged again.
        finish: called after the last step, before the stage counts as finished; what it returns joins the note.
    """
    began, before = time.monotonic(), p.store.note(stage) or {}
    batch_size = config.train.batch_size

    def keep(**more: Any) -> None:
        seconds = float(before.get("seconds", 0.0)) + time.monotonic() - began
        p.store.set_note(stage, {**before, "items": len(items), **(note or {}), "seconds": seconds, **more})

    if items:
        show = p.status.stage(stage, count_steps(len(items), epochs=epochs, batch_size=batch_size), "steps")

        def step(batch: list[Any]) -> Metrics:
            metrics = loss(learner, batch, config)
            log(metrics)
            return metrics

        def on_step(number: int, _: int, metrics: Metrics) -> None:
            show(number, f"loss {metrics['loss']:.3f}")
            keep()

        train_epochs(
            learner,
            items,
            step_fn=step,
            epochs=epochs,
            batch_size=batch_size,
            seed=seed,
            on_step=on_step,
            checkpoint_dir=directory,
            checkpoint_every=CHECKPOINT_EVERY,
        )
    keep(finished=True, **(finish() if items else {}))


def sealed(*checkpoints: Path) -> dict[str, dict[str, str]]:
    """The seals of checkpoints of a run by their names, for a note."""
    return {path.name: seal(path) for path in checkpoints}


def check_sealed(p: Pipeline, note: Mapping[str, Any]) -> None:
    """Raises StoreError if a checkpoint that a note has the seal of is missing or altered."""
    for name, files in note.get("checkpoints", {}).items():
        path = p.store.path / "checkpoints" / name
        broken = flaw(path, files)
        if broken is not None:
            raise StoreError(
                f"{path} must be as the run left it; {broken}: restore a copy, or start over with clean=True (--clean)"
            )
