"""Runs any recipe: rounds of collect, credit, learn, publish; then the held-out tasks. Knows no method.

Killed at any moment, or cut off from power, the same command goes on and ends with the weights of an uninterrupted run.
What a round needs is in the run directory: its rollouts in the store, weights and optimiser at its start and at its
newest step beside the checkpoints (`NAME.states/roundN`). The note of a round that learnt holds the seal of its state,
which must be there until a later round has learnt. If it is missing or damaged, the rounds since the last whole state
learn again from their rollouts. The note of a finished run holds the seal of its checkpoint.

Samples and the order of items follow from the seed, the task and the round. (A rollout that was cut off is sampled
again in another batch: equal up to the rounding of its log-probabilities, which the learner computes anew. Two recipes
read the sampler's: arpo_replay, whose replayed rollouts keep them, and arpo_entropy, to choose branches; all do with
`train.logp_tolerance`.)
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from agentq.evaluation.stats import RungResult
from agentq.learn.checkpoint import load_position, load_state, state_seal
from agentq.learn.epochs import count_steps
from agentq.learn.learner import Learner
from agentq.policies.protocol import Engine
from agentq.policies.transformers_engine import TransformersEngine
from agentq.recipes.agreed import agrees
from agentq.recipes.learning import check_sealed, learn, learner_of, sealed
from agentq.recipes.metrics import collected, used
from agentq.recipes.pipeline import Pipeline, adapter_of
from agentq.recipes.recipe import Recipe, Round, stage_of
from agentq.store.durable import remove
from agentq.store.files import write_json
from agentq.types import Split


def train(p: Pipeline, recipe: Recipe) -> list[RungResult]:
    """Train the base by a recipe; returns, and writes to summary.json, the base's row and the trained model's.

    Raises:
        ConfigError: if the recipe cannot work with the run's settings, or the run began with another base.
        StoreError: if the checkpoint of a finished run is missing or altered.
    """
    recipe.check(p.config)
    start = p.start
    p.check_base()
    finished = p.store.note(f"{recipe.name}/train") or {}
    check_sealed(p, finished)
    out = p.store.path / "checkpoints" / recipe.name
    held_out = p.tasks(Split.TEST, p.config.eval.num_tasks)
    rows = [p.evaluate("base", "base/eval", p.base, held_out)] if p.config.eval.measure_base else []
    write_json(p.store.path / "summary.json", [row.to_dict() for row in rows])
    if not finished.get("finished"):
        _rounds(p, recipe, start, out)
    for left in ("served", "states"):
        remove(out.with_name(f"{recipe.name}.{left}"))
    numbers = range(1, p.config.run.num_rounds + 1)
    stages = [stage for n in numbers for stage in (stage_of(recipe.name, n), _learning(recipe, n))]
    rows.append(p.evaluate(recipe.name, f"{recipe.name}/eval", out, held_out, spent=p.cost(*stages)))
    write_json(p.store.path / "summary.json", [row.to_dict() for row in rows])
    return rows


def _rounds(p: Pipeline, recipe: Recipe, start: Path, out: Path) -> None:
    """All rounds, from wherever the run stands; then the checkpoint `out`."""
    states = out.with_name(f"{recipe.name}.states")
    learner = learner_of(p.config, start)
    p.engine(p.base)  # a critic's; loaded first, it stays
    engine: Engine
    if p.config.run.engine:
        engine = p.sampler(out)
    else:
        engine = p.engines[out] = TransformersEngine(start)
    served = out.with_name(f"{recipe.name}.served")
    for number in range(_learnt(p, recipe, states) + 1, p.config.run.num_rounds + 1):
        _load(states, number, learner)
        _publish(engine, learner, served / f"round{number}")
        r = Round(p, recipe.name, number, out, learner)
        if not _affordable(r):
            break
        recipe.collect(r)
        p.store.log(recipe.name, number, **collected(p.store, r.stage), **used(p.store, r.stage))
        _learn(replace(r, agreed=agrees(r)), recipe, states)
    _load(states, p.config.run.num_rounds + 1, learner)
    learner.save(out)
    _publish(engine, learner, adapter_of(out) if learner.lora_rank else out)
    made = [path for path in (out, adapter_of(out)) if path.exists()]
    p.store.set_note(f"{recipe.name}/train", {"finished": True, "checkpoints": sealed(*made)})


def _learnt(p: Pipeline, recipe: Recipe, states: Path) -> int:
    """How many rounds, from the first, have finished and left what they learnt. Those behind them count as unfinished
    from now on, and begin their steps anew."""
    notes: list[dict[str, Any]] = []
    for number in range(1, p.config.run.num_rounds + 1):
        note = p.store.note(_learning(recipe, number)) or {}
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
            p.store.set_note(_learning(recipe, number), note | again)
    for number in range(learnt + 1, len(notes) + 1):
        remove(_state(states, number))
    return learnt


def _publish(engine: Engine, learner: Learner, at: Path) -> None:
    """Have the engine sample with the learner's weights: in memory, or by a directory `at`, which it reads again when
    it has lost them; those of the rounds before are not needed any more."""
    if isinstance(engine, TransformersEngine):
        engine.publish(learner.state_dict())
        return
    if not at.exists():
        learner.save(at, adapters_only=bool(learner.lora_rank))
    engine.publish(at)
    for other in at.parent.glob("round*"):
        if other != at:
            remove(other)


def _learn(r: Round, recipe: Recipe, states: Path) -> None:
    """Credit, then the round's optimiser steps; the learner must be as at the round's start."""
    t, items = r.config.train, recipe.credit(r)
    if items:
        num_steps = count_steps(len(items), epochs=t.epochs, batch_size=t.batch_size)
        r.learner.warmup_steps = _warmup(r, recipe, num_steps)
    learn(
        *(r.pipeline, _learning(recipe, r.number), r.learner, items, recipe.loss),
        config=r.config,
        directory=_state(states, r.number),
        epochs=t.epochs,
        seed=r.seed,
        log=lambda m: r.store.log(f"{recipe.name}/learn", r.learner.step_count, round=r.number, **m),
        finish=lambda: {"state": state_seal(_state(states, r.number))},
        note={"env_steps": r.pipeline.cost(r.stage).env_steps},
    )
    if items:
        for number in range(1, r.number):
            remove(_state(states, number))


def _affordable(r: Round) -> bool:
    """Whether a round as large as those before it, on average, stays within `run.max_env_steps`."""
    before = [(r.store.note(f"{r.recipe}/round{n}/learn") or {}).get("env_steps", 0) for n in range(1, r.number)]
    limit = r.config.run.max_env_steps
    return not limit or not before or sum(before) * r.number <= limit * len(before)


def _warmup(r: Round, recipe: Recipe, num_steps: int) -> int:
    """Steps of the one warm-up: a part of the first round that had something to learn from."""
    key = f"{recipe.name}/warmup"
    note = r.store.note(key)
    if note is None:
        note = {"warmup_steps": int(r.config.train.warmup_fraction * num_steps)}
        r.store.set_note(key, note)
    return int(note["warmup_steps"])


def _load(states: Path, number: int, learner: Learner) -> None:
    """Put what the rounds before `number` learnt into the learner; nothing where they learnt nothing yet."""
    for earlier in range(number - 1, 0, -1):
        position = load_position(_state(states, earlier))
        if position is not None:
            load_state(_state(states, earlier), learner.parameters, learner.optimizer)
            learner.step_count = int(position["step_count"])
            return


def _state(states: Path, number: int) -> Path:
    return states / f"round{number}"


def _learning(recipe: Recipe, number: int) -> str:
    return f"{recipe.name}/round{number}/learn"
