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

from agentq.errors import ConfigError, StoreError
from agentq.learn.checkpoint import load_position, load_state, state_seal
from agentq.learn.epochs import count_steps
from agentq.learn.epochs import train as train_epochs
from agentq.learn.learner import Learner, Metrics
from agentq.learn.thinking import without_thinking
from agentq.policies.adapters import base_of
from agentq.policies.placement import dtype_on, one_device, release, told, use_threads
from agentq.policies.protocol import Sleeper
from agentq.policies.weights import adapter_of
from agentq.recipes.accounts import Cost
from agentq.recipes.executor import cores
from agentq.recipes.memory import trains_where_it_samples
from agentq.recipes.metrics import collected, used
from agentq.recipes.pipeline import Pipeline
from agentq.recipes.recipe import Recipe, Round, S, stage_of
from agentq.recipes.settings import Training
from agentq.searching.worker import release_memory
from agentq.store.durable import flaw, remove, seal
from agentq.store.files import note_model

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
    """Run the remaining rounds, then save the checkpoint `out`. A shard only collects, for one round."""
    states = out.with_name(f"{name}.states")
    sampler: Any = p.sampler() if settings.run.engine else None  # first, so that a vLLM leaves room for the learner
    learner = learner_of(settings, start, p.base if p.shares else None)
    more = {"lora_rank": learner.lora_rank, "products_in_bf16": learner.bf16}
    note_model(p.store.path, "learner", told(base_of(learner.model)) | more)
    served = out.with_name(f"{name}.served")
    num_rounds = settings.run.num_rounds
    for number in range(_learnt(p, name, num_rounds, states) + 1, num_rounds + 1):
        _load(states, number, learner)
        policy = _serve(learner, served / f"round{number}")
        r = Round(p, settings, name, number, policy, start, learner)
        if not _affordable(r):
            break
        recipe.collect(r)
        p.store.log(name, number, **collected(p.store, r.stage), **used(p.store, r.stage))
        if settings.run.shard:  # the merged run learns
            return
        if isinstance(sampler, Sleeper) and trains_where_it_samples(settings):
            sampler.sleep()  # until weights are published
        _learn(r, recipe, states)
        release(learner.device)
    _load(states, num_rounds + 1, learner)
    learner.save(out)
    if learner.lora_rank:
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


def _serve(learner: Learner, at: Path) -> Path:
    """Save the learner's weights or adapters at `at`, where engines load them, and remove those of earlier rounds."""
    if not at.exists():
        learner.save(at, adapters_only=bool(learner.lora_rank))
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
        metrics = recipe.loss(r.learner, batch, r.settings)
        store.log(f"{r.name}/learn", r.learner.step_count, round=r.number, **metrics)
        return metrics

    def on_step(number: int, _: int, metrics: Metrics) -> None:
        show(number, f"loss {metrics['loss']:.3f}")
        keep()

    with _threads(r.settings.model.threads):
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
def _threads(wanted: int) -> Iterator[None]:
    """Threads for steps, `wanted` or two, where there are two cores; sampling a small model is faster with one.

    Frees memory after. Weights are equal up to rounding, so the number does not follow from the executor.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(wanted or max(before, min(2, cores())))
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


def learner_of(s: Training, start: Path, base: Path | str | None = None) -> Learner:
    """A learner of the checkpoint `start`. Trained weights are float32; frozen weights have the type of `model.dtype`.

    Matrix products are bfloat16 where the model samples in bfloat16. With a `base`, the adapter of `start` is trained
    on, so it stays an adapter of the base.

    Raises:
        ConfigError: if the settings name several devices, or float16, whose gradients would need scaling.
    """
    t = s.train
    instead = "docs/training.md shows how several train"
    device = one_device(
        t.devices or s.model.devices, "train.devices" if t.devices else "model.devices", instead=instead
    )
    dtype = dtype_on(device, s.model.dtype)
    if dtype == torch.float16:
        raise ConfigError("model.dtype must be bfloat16 or float32 for training; got float16")
    learner = Learner.from_checkpoint(
        start if base is None else base,
        device=device,
        adapter=adapter_of(start) if base is not None and start != base else None,
        dtype=dtype if t.lora_rank else torch.float32,
        attention=s.model.attention,
        learning_rate=t.learning_rate,
        max_grad_norm=t.max_grad_norm,
        lora_rank=t.lora_rank,
        bf16=dtype == torch.bfloat16,
        gradient_checkpointing=t.gradient_checkpointing,
        seed=s.run.seed,
    )
    use_threads(s.model.threads, learner.model)
    return learner
