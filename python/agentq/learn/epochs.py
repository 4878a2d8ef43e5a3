"""Epochs over items. The order follows from the seed alone, and a killed run continues from its last checkpoint."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from agentq.errors import ConfigError
from agentq.learn.checkpoint import load_state, save_state
from agentq.learn.learner import Learner, Metrics
from agentq.learn.position import load_position
from agentq.types import CreditedTrajectory, PreferencePair, Sample

Trainable = Sample | PreferencePair | CreditedTrajectory
Item = TypeVar("Item", bound=Trainable)


def train(
    learner: Learner,
    items: Sequence[Item],
    *,
    step_fn: Callable[[list[Item]], Metrics],
    epochs: int = 1,
    batch_size: int,
    seed: int = 0,
    on_step: Callable[[int, int, Metrics], None] | None = None,
    checkpoint_dir: Path | str | None = None,
    checkpoint_every: int = 0,
) -> int:
    """Call `step_fn` on every batch of every epoch; returns the number of steps, earlier calls' included.

    If killed at any moment, the same call on a learner made in the same way continues and ends with equal weights.

    Args:
        learner: what `step_fn` trains.
        step_fn: takes one step, for instance `learner.step_sft`.
        batch_size: items per step, at least 1; steps of an epoch differ by at most one item.
        seed: the order of the items follows from it.
        on_step: called with (step from 1, all steps, metrics) in every process, after the step's checkpoint, if one
            is due, is on the disk.
        checkpoint_dir: directory of the newest state, which is loaded first; all processes must see it. The last step
            always writes a checkpoint.
        checkpoint_every: steps between checkpoints; 0 writes only the last.

    Raises:
        ValueError: if epochs, batch_size or the number of items is less than 1.
        ConfigError: if `checkpoint_dir` holds a run over other items, or with other epochs, batch_size or seed.
    """
    plan = Plan.of(items, epochs=epochs, batch_size=batch_size, seed=seed)
    directory = Path(checkpoint_dir) if checkpoint_dir else None
    done = _resume(directory, plan, learner) if directory else 0
    for step, batch in enumerate(plan.batches(), start=1):
        if step <= done:
            continue
        metrics = step_fn([items[i] for i in batch])
        if directory and (step == plan.num_steps or (checkpoint_every and step % checkpoint_every == 0)):
            position = {"step": step, "step_count": learner.step_count, **asdict(plan)}
            save_state(directory, learner.trained, learner.optimizer, position, ranks=learner.ranks)
        if on_step:
            on_step(step, plan.num_steps, metrics)
    return plan.num_steps


def count_steps(num_items: int, *, epochs: int, batch_size: int) -> int:
    """Number of optimiser steps that `train` takes, warm-up included."""
    return epochs * math.ceil(num_items / batch_size)


@dataclass(frozen=True, slots=True)
class Plan:
    """Shuffled epochs. The order follows from the seed and the epoch alone, so a position is one number: the step."""

    num_items: int
    epochs: int
    batch_size: int
    seed: int
    items: str  # digest of the items

    @classmethod
    def of(cls, items: Sequence[Trainable], *, epochs: int, batch_size: int, seed: int) -> Plan:
        """The plan of a run over `items`."""
        if epochs < 1 or batch_size < 1 or not items:
            raise ValueError(
                f"epochs, batch_size and the number of items must be at least 1; got {epochs}, {batch_size}, "
                f"{len(items)}"
            )
        return cls(len(items), epochs, batch_size, seed, digest(items))

    @property
    def num_steps(self) -> int:
        """Optimiser steps of the whole run."""
        return count_steps(self.num_items, epochs=self.epochs, batch_size=self.batch_size)

    def batches(self) -> Iterator[np.ndarray]:
        """Indices of the items of each step, whose sizes differ by at most one."""
        for epoch in range(self.epochs):
            order = np.random.default_rng([self.seed, epoch]).permutation(self.num_items)
            yield from np.array_split(order, self.num_steps // self.epochs)


def digest(items: Sequence[Trainable]) -> str:
    """16 hex digits that change with prompts, actions, advantages or their order, but not with log-probabilities."""
    found = hashlib.sha256()
    for item in items:
        if isinstance(item, CreditedTrajectory):
            found.update(np.asarray(item.advantages, dtype=np.float64).tobytes())
        for side in _sides(item):
            for sample in side:
                for ids in (sample.prompt_ids, sample.token_ids):
                    found.update(len(ids).to_bytes(8, "little") + np.asarray(ids, dtype=np.int64).tobytes())
            found.update(b"/")
    return found.hexdigest()[:16]


def _sides(item: Trainable) -> tuple[tuple[Sample, ...], ...]:
    if isinstance(item, PreferencePair):
        return item.chosen, item.rejected
    return (item.samples,) if isinstance(item, CreditedTrajectory) else ((item,),)


def _resume(directory: Path, plan: Plan, learner: Learner) -> int:
    """Put the newest checkpoint's state into `learner`; returns its step, 0 without one.

    Raises:
        ConfigError: if the checkpoint is of another plan.
    """
    position = load_position(directory)
    if position is None:
        return 0
    for name, value in asdict(plan).items():
        if position.get(name) != value:
            raise ConfigError(
                f"{directory} must be resumed with the same {name} ({position.get(name)}); got {value}; "
                "delete it to start again"
            )
    load_state(directory, learner.trained, learner.optimizer)
    learner.step_count = int(position["step_count"])
    return int(position["step"])
