"""The plan of a training run: which items each step takes, and where an interrupted run goes on."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from agentq.errors import ConfigError
from agentq.learn.checkpoint import load_position, load_state, save_state
from agentq.types import PreferencePair, Sample


class Trained(Protocol):
    """What of a learner is kept and put back."""

    parameters: dict[str, Tensor]
    step_count: int

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """What holds the moments of the parameters."""
        ...


@dataclass(frozen=True, slots=True)
class Plan:
    """Shuffled epochs. The order follows from the seed and the epoch alone, so a position is one number: the step."""

    num_items: int
    epochs: int
    batch_size: int
    seed: int
    items: str  # their digest

    @classmethod
    def of(cls, items: Sequence[Sample | PreferencePair], *, epochs: int, batch_size: int, seed: int) -> Plan:
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
        return self.epochs * math.ceil(self.num_items / self.batch_size)

    def batches(self) -> Iterator[np.ndarray]:
        """Indices of the items of each step, sizes differing by one at most within the run."""
        for epoch in range(self.epochs):
            order = np.random.default_rng([self.seed, epoch]).permutation(self.num_items)
            yield from np.array_split(order, self.num_steps // self.epochs)


def digest(items: Sequence[Sample | PreferencePair]) -> str:
    """16 hex digits that differ where prompts, actions or their order do; recorded log-probabilities are left out."""
    found = hashlib.sha256()
    for item in items:
        sides = (item.chosen, item.rejected) if isinstance(item, PreferencePair) else ((item,),)
        for side in sides:
            for sample in side:
                for ids in (sample.prompt_ids, sample.token_ids):
                    found.update(len(ids).to_bytes(8, "little") + np.asarray(ids, dtype=np.int64).tobytes())
            found.update(b"/")
    return found.hexdigest()[:16]


def save(directory: Path, plan: Plan, step: int, learner: Trained) -> None:
    """Keep where the run stands after `step`, and forget earlier checkpoints."""
    position = {"step": step, "step_count": learner.step_count, **asdict(plan)}
    save_state(directory, learner.parameters, learner.optimizer, position)


def resume(directory: Path, plan: Plan, learner: Trained) -> int:
    """Put the newest checkpoint's state into `learner`; returns its step, 0 where there is none.

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
    load_state(directory, learner.parameters, learner.optimizer)
    learner.step_count = int(position["step_count"])
    return int(position["step"])
