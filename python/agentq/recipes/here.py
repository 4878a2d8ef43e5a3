"""Learns rounds in this process: the learner of a training, alone or as one of several processes."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic

import torch

from agentq.errors import ConfigError, ModelError
from agentq.learn.checkpoint import load_state
from agentq.learn.epochs import Trainable, count_steps, train
from agentq.learn.learner import Metrics
from agentq.learn.position import load_position, state_seal
from agentq.learn.thinking import without_thinking
from agentq.policies.adapters import base_of
from agentq.policies.placement import cores, release, told, told_threads
from agentq.policies.weights import adapter_of
from agentq.recipes.learners import learner_of
from agentq.recipes.recipe import Recipe, Round, S, stage_of
from agentq.recipes.rounds import state_of
from agentq.searching.worker import release_memory

CHECKPOINT_EVERY = 20  # optimiser steps


class Here(Generic[S]):
    """The learner of a training in this process: alone, or as one of several (`recipes.rank`)."""

    def __init__(
        self, recipe: Recipe[S], settings: S, start: Path, out: Path, base: Path | str | None, shard_on: str = ""
    ) -> None:
        """`base`, `shard_on`: as in `learner_of`."""
        self.recipe, self.num_rounds, self.out = recipe, settings.run.num_rounds, out
        self.learner = learner_of(settings, start, base, shard_on)
        self.states = out.with_name(f"{out.name}.states")
        own = {"lora_rank": self.learner.lora_rank, "products_in_bf16": self.learner.bf16}
        self.told = told(base_of(self.learner.model)) | own | {"processes": self.learner.ranks.size}
        self._at = 1  # the round at whose start the weights are

    def serve(self, number: int, at: Path) -> None:
        """Save the weights or adapters of a round's start at `at`, where engines load them, unless that is done."""
        self.load(number)
        if not at.exists():
            self.learner.save(at, adapters_only=bool(self.learner.lora_rank))

    def learn(self, r: Round[S]) -> None:
        """Learn a round. The weights must be those of its start."""
        _learn(r, self.recipe, self.states)
        self._at = r.number + 1
        release(self.learner.device)

    def finish(self) -> None:
        """Save the newest weights as the checkpoint of the training, with the adapter beside it."""
        self.load(self.num_rounds + 1)
        if self.learner.lora_rank:  # first, since merging needs memory for a second model
            self.learner.save(adapter_of(self.out), adapters_only=True)
        self.learner.save(self.out)

    def load(self, number: int) -> None:
        """Load the newest state from rounds before `number` into the learner, if there is one."""
        for earlier in range(number - 1, 0, -1) if number != self._at else ():
            position = load_position(state_of(self.states, earlier))
            if position is not None:
                load_state(state_of(self.states, earlier), self.learner.trained, self.learner.optimizer)
                self.learner.step_count = int(position["step_count"])
                break
        self._at = number


def _learn(r: Round[S], recipe: Recipe[S], states: Path) -> None:
    """Credit, then the round's optimiser steps. The learner must be in its state at the round's start.

    A killed round continues from its newest checkpoint. The metrics of a step are logged before its checkpoint is
    written, so a repeated step is logged twice.
    """
    t, store = r.settings.train, r.store
    stage, directory = stage_of(r.name, r.number, "learn"), state_of(states, r.number)
    items, env_steps = _credited(r, recipe), r.pipeline.cost(r.stage).env_steps
    if not t.thinking:
        items = [without_thinking(item, r.learner.tokenizer) for item in items]
    began, before = time.monotonic(), store.note(stage) or {}

    def keep(**more: Any) -> None:
        seconds = float(before.get("seconds", 0.0)) + time.monotonic() - began
        store.set_note(stage, {**before, "items": len(items), "env_steps": env_steps, "seconds": seconds, **more})

    if not items:
        keep(finished=True)
        return
    num_steps = count_steps(len(items), epochs=t.epochs, batch_size=t.batch_size)
    r.learner.warmup_steps = _warmup(r, num_steps)
    show = r.pipeline.status.stage(stage, num_steps, "steps")

    def step(batch: list[Any]) -> Metrics:
        try:
            metrics = recipe.loss(r.learner, batch, r.settings)
        except FloatingPointError as error:
            begins = directory if directory.exists() else "the round's first weights"
            raise ModelError(
                f"{error}, in step {r.learner.step_count + 1} of {r.name}: lower train.learning_rate "
                f"({t.learning_rate}) in a fork of the run (agentq fork); agentq resume begins from {begins}"
            ) from error
        if not isinstance(metrics, Mapping) or "loss" not in metrics:
            raise ConfigError(f"loss of recipe {r.name} must return what Learner.update does; got {metrics!r:.60}")
        store.log(f"{r.name}/learn", r.learner.step_count, round=r.number, **metrics)
        return metrics

    def on_step(number: int, _: int, metrics: Metrics) -> None:
        show(number, f"loss {metrics['loss']:.3f}")
        keep()

    with _threads(r.settings.model.threads, r.learner.ranks.size):
        train(
            r.learner,
            items,
            step_fn=step,
            epochs=t.epochs,
            batch_size=t.batch_size,
            seed=r.seed,
            on_step=on_step,
            checkpoint_dir=directory,
            checkpoint_every=CHECKPOINT_EVERY,
        )
    keep(finished=True, state=state_seal(directory))


def _credited(r: Round[S], recipe: Recipe[S]) -> list[Any]:
    """The round's items. Raises ConfigError if a recipe's own function returns something else."""
    items: Any = recipe.credit(r)
    wrong = [item for item in items if not isinstance(item, Trainable)] if isinstance(items, list | tuple) else [items]
    if wrong:
        raise ConfigError(
            f"credit of recipe {r.name} must return a list of Sample, PreferencePair or CreditedTrajectory; "
            f"got {wrong[0]!r:.60}"
        )
    return list(items)


@contextmanager
def _threads(wanted: int, num_ranks: int) -> Iterator[None]:
    """Threads for steps: `wanted`, else OMP_NUM_THREADS, else two where each process has two cores.

    Sampling a small model is faster with one. Frees memory after. Weights are equal up to rounding, so the number does
    not follow from the executor.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(wanted or told_threads() or max(before, min(2, cores() // num_ranks)))
    try:
        yield
    finally:
        torch.set_num_threads(before)
        release_memory()


def _warmup(r: Round[S], num_steps: int) -> int:
    """Number of warm-up steps: a fraction of the steps of the first round with items, at least 1 unless it is 0."""
    key = f"{r.name}/warmup"
    note = r.store.note(key)
    if note is None:
        note = {"warmup_steps": math.ceil(r.settings.train.warmup_fraction * num_steps)}
        r.store.set_note(key, note)
    return int(note["warmup_steps"])
