"""The training loop for all recipes: rounds of collect, credit, learn and publish.

After a kill or a power failure, the same command continues and ends with the weights of an uninterrupted run. The run
directory holds what a round needs: its rollouts in the store, and weights and optimiser of its start and its newest
checkpointed step in `NAME.states/roundN`. The note of a finished round with items holds the seal of its state, which is
kept until a later round has learnt. If the state is missing or damaged, the rounds since the last intact state learn
again from their rollouts. The note of a finished training holds the seal of its checkpoint.

Samples and the order of items depend only on the seed, the task and the round. An interrupted rollout is sampled again
in a different batch, which may round its log-probabilities differently. This has no effect where the learner recomputes
them. The sampler's log-probabilities are used by arpo_replay for replayed rollouts, by arpo_entropy to choose branches,
and by all recipes with `train.logp_tolerance`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from agentq.config import Train
from agentq.errors import StoreError
from agentq.learn.checkpoint import load_position, load_state, state_seal
from agentq.learn.epochs import count_steps
from agentq.learn.epochs import train as train_epochs
from agentq.learn.learner import Learner, Metrics
from agentq.recipes.accounts import Cost
from agentq.recipes.executor import cores
from agentq.recipes.metrics import collected, used
from agentq.recipes.pipeline import Pipeline, adapter_of
from agentq.recipes.recipe import Recipe, Round, S, stage_of
from agentq.searching.worker import release_memory
from agentq.store.durable import flaw, remove, seal

CHECKPOINT_EVERY = 20  # optimiser steps


def train(p: Pipeline, recipe: Recipe[S], settings: S, name: str, start: Path) -> tuple[Path, Cost]:
    """Train the checkpoint `start` by a recipe. Returns the new checkpoint and its cost.

    Args:
        settings: the recipe's settings. Values that `p.settings` also has must be equal.
        name: name of the stages and the checkpoint in the run directory.

    Raises:
        ConfigError: if the settings of the recipe contradict each other.
        StoreError: if the checkpoint of a finished run is missing or altered.
    """
    settings.check(recipe.name)
    finished = p.store.note(f"{name}/train") or {}
    out = p.store.path / "checkpoints" / name
    for kept, files in finished.get("checkpoints", {}).items():
        if (broken := flaw(path := out.with_name(kept), files)) is not None:
            raise StoreError(
                f"{path} must be as the run left it; {broken}: restore a copy, or start over with clean=True (--clean)"
            )
    if not finished.get("finished"):
        _rounds(p, recipe, settings, name, start, out)
    for left in ("served", "states"):
        remove(out.with_name(f"{name}.{left}"))
    numbers = range(1, settings.run.num_rounds + 1)
    return out, p.cost(*(stage for n in numbers for stage in (stage_of(name, n), stage_of(name, n, "learn"))))


def _rounds(p: Pipeline, recipe: Recipe[S], settings: S, name: str, start: Path, out: Path) -> None:
    """Run the remaining rounds, then save the checkpoint `out`."""
    states = out.with_name(f"{name}.states")
    learner = learner_of(settings.train, start, settings.run.seed)
    served = out.with_name(f"{name}.served")
    num_rounds = settings.run.num_rounds
    for number in range(_learnt(p, name, num_rounds, states) + 1, num_rounds + 1):
        _load(states, number, learner)
        policy = _serve(p, learner, served / f"round{number}")
        r = Round(p, settings, name, number, policy, start, learner)
        if not _affordable(r):
            break
        recipe.collect(r)
        p.store.log(name, number, **collected(p.store, r.stage), **used(p.store, r.stage))
        _learn(r, recipe, states)
    _load(states, num_rounds + 1, learner)
    learner.save(out)
    if p.settings.run.engine and learner.lora_rank:
        learner.save(adapter_of(out), adapters_only=True)
    made = [path for path in (out, adapter_of(out)) if path.exists()]
    p.store.set_note(f"{name}/train", {"finished": True, "checkpoints": {path.name: seal(path) for path in made}})


def _learnt(p: Pipeline, name: str, num_rounds: int, states: Path) -> int:
    """Number of finished rounds whose learnt state is intact. Later finished rounds are marked unfinished and start
    their steps again."""
    notes: list[dict[str, Any]] = []
    for number in range(1, num_rounds + 1):
        note = p.store.note(stage_of(name, number, "learn")) or {}
        if not note.get("finished"):
            break
        notes.append(note)
    learnt = len(notes)
    while learnt:
        last = max((n for n in range(1, learnt + 1) if notes[n - 1]["items"]), default=0)
        if not last or state_seal(_state(states, last)) == notes[last - 1].get("state"):
            break
        learnt = last - 1
    with p.store.transaction():
        for number, note in enumerate(notes[learnt:], start=learnt + 1):
            again = {"finished": False, "learnt_again": note.get("learnt_again", 0) + 1}
            p.store.set_note(stage_of(name, number, "learn"), note | again)
    for number in range(learnt + 1, len(notes) + 1):
        remove(_state(states, number))
    return learnt


def _serve(p: Pipeline, learner: Learner, at: Path) -> Path:
    """Save the learner's weights at `at`, from where engines load them, and remove those of earlier rounds."""
    if not at.exists():
        learner.save(at, adapters_only=bool(p.settings.run.engine and learner.lora_rank))
    for other in at.parent.glob("round*"):
        if other != at:
            remove(other)
    return at


def _learn(r: Round[S], recipe: Recipe[S], states: Path) -> None:
    """Credit, then the round's optimiser steps. The learner must be in its state at the round's start.

    A killed round continues from its newest checkpoint. The metrics of a step are logged before its checkpoint is
    written, so a repeated step is logged twice.
    """
    t, store, stage, directory = (
        r.settings.train,
        r.store,
        stage_of(r.name, r.number, "learn"),
        _state(states, r.number),
    )
    items, env_steps = recipe.credit(r), r.pipeline.cost(r.stage).env_steps
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
        metrics = recipe.loss(r.learner, batch, r.settings)
        store.log(f"{r.name}/learn", r.learner.step_count, round=r.number, **metrics)
        return metrics

    def on_step(number: int, _: int, metrics: Metrics) -> None:
        show(number, f"loss {metrics['loss']:.3f}")
        keep()

    with _threads():
        train_epochs(
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
    for number in range(1, r.number):
        remove(_state(states, number))


@contextmanager
def _threads() -> Iterator[None]:
    """Two threads for steps, where there are two cores; sampling a small model is faster with one. Frees memory after.

    Weights are equal up to rounding, so the number does not follow from the executor.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(max(before, min(2, cores())))
    try:
        yield
    finally:
        torch.set_num_threads(before)
        release_memory()


def _affordable(r: Round[S]) -> bool:
    """Whether another round of average size stays within `run.max_env_steps`."""
    before = [(r.store.note(stage_of(r.name, n, "learn")) or {}).get("env_steps", 0) for n in range(1, r.number)]
    limit = r.settings.run.max_env_steps
    return not limit or not before or sum(before) * r.number <= limit * len(before)


def _warmup(r: Round[S], num_steps: int) -> int:
    """Number of warm-up steps: a fraction of the steps of the first round with items."""
    key = f"{r.name}/warmup"
    note = r.store.note(key)
    if note is None:
        note = {"warmup_steps": int(r.settings.train.warmup_fraction * num_steps)}
        r.store.set_note(key, note)
    return int(note["warmup_steps"])


def _load(states: Path, number: int, learner: Learner) -> None:
    """Load the newest state from rounds before `number` into the learner, if there is one."""
    for earlier in range(number - 1, 0, -1):
        position = load_position(_state(states, earlier))
        if position is not None:
            load_state(_state(states, earlier), learner.parameters, learner.optimizer)
            learner.step_count = int(position["step_count"])
            return


def _state(states: Path, number: int) -> Path:
    return states / f"round{number}"


def learner_of(t: Train, start: Path, seed: int) -> Learner:
    """A learner of the checkpoint `start`, with the settings of `train`."""
    return Learner.from_checkpoint(
        start,
        learning_rate=t.learning_rate,
        max_grad_norm=t.max_grad_norm,
        lora_rank=t.lora_rank,
        bf16=t.bf16,
        gradient_checkpointing=t.gradient_checkpointing,
        seed=seed,
    )
