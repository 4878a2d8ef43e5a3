"""The training loop for all recipes: rounds of collect, credit, learn and publish.

After a kill or a power failure, the same command continues and ends with the weights of an uninterrupted run. The run
directory holds what a round needs: its rollouts in the store, and weights and optimiser of its start and its newest
checkpointed step in `NAME.states/roundN`. The note of a finished round with items holds the seal of its state, which is
kept until a later round has learnt. If the state is missing or damaged, the rounds since the last intact state learn
again from their rollouts. The note of a finished training holds its number of rounds and the seal of its checkpoint.
With a higher `run.num_rounds` it goes on from the state of its last round.

Samples and the order of items depend only on the seed, the task and the round. An interrupted rollout is sampled again
in a different batch, which may round its log-probabilities differently. This has no effect where the learner recomputes
them. The sampler's log-probabilities are used by arpo_replay for replayed rollouts, by arpo_entropy to choose branches,
and by all recipes with `train.logp_tolerance`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentq.errors import StoreError
from agentq.evaluation.critic import unranked
from agentq.learn.position import state_seal
from agentq.policies.placement import trains_off_mps, trains_where_it_samples
from agentq.policies.protocol import Sleeper
from agentq.policies.weights import adapter_of
from agentq.recipes.accounts import Cost, own_searches
from agentq.recipes.again import FORK
from agentq.recipes.launch import Launched, launched
from agentq.recipes.metrics import collected, used
from agentq.recipes.pipeline import Pipeline
from agentq.recipes.recipe import Recipe, Round, S, stage_of, stages_of
from agentq.store.durable import flaw, remove, seal
from agentq.store.files import note_model

if TYPE_CHECKING:
    from agentq.recipes.here import Here

UNRANKED = 0.5  # a larger share of nodes that the critic did not rank is told; ours


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
    if not finished.get("finished") or finished["rounds"] < settings.run.num_rounds:
        p.store.set_note(f"{name}/train", {"finished": False})
        _rounds(p, recipe, settings, name, start, out)
    remove(out.with_name(f"{name}.served"))
    numbers = range(1, settings.run.num_rounds + 1)
    return out, p.cost(*(stage for n in numbers for stage in stages_of(name, n)))


def _rounds(p: Pipeline, recipe: Recipe[S], settings: S, name: str, start: Path, out: Path) -> None:
    """Run the remaining rounds, then save the checkpoint `out`. A shard only collects, for one round."""
    states, served = (out.with_name(f"{name}.{kind}") for kind in ("states", "served"))
    sampler: Any = p.sampler() if settings.run.engine else None  # first, so that a vLLM leaves room for the learner

    def make_room() -> None:
        if isinstance(sampler, Sleeper) and trains_where_it_samples(settings.train.devices, settings.model.devices):
            sampler.sleep()  # until weights are published

    trainer: Here[S] | Launched | None = launched(p, recipe, settings, name, start, make_room)
    if trainer is None:
        from agentq.recipes.here import Here  # loads torch

        trainer = Here(recipe, settings, start, out, p.base if p.shares else None)
        note_model(p.store.path, "learner", trainer.told)
    if trains_off_mps(settings.train.devices, settings.model.devices):
        p.status.say(f"agentq {name}: the policy samples on MPS and trains on the CPU, since MPS has no float64")
    num_rounds = settings.run.num_rounds

    def stages(first: int, last: int) -> list[str]:
        return [stage for n in range(first, last + 1) for stage in stages_of(name, n)]

    for number in range(_learnt(p, name, num_rounds, states) + 1, num_rounds + 1):
        policy = served / f"round{number}"
        trainer.serve(number, policy)
        _remove_others(policy)
        r = Round(p, settings, name, number, policy, start, trainer.learner)
        most = _affordable(r)
        p.leave_out(stages(most + 1, num_rounds), needed=stages(number, most))
        if number > most:
            break
        with own_searches(p.store, r.stage):
            recipe.collect(r)
        if "done" not in (p.store.note(r.stage) or {}):  # the display does not see a search of the recipe's own
            p.leave_out([r.stage])
        found = collected(p.store, r.stage)
        spent = used(p.store, r.stage)
        if spent.get("critic/requests"):
            found["critic/unranked"] = unranked(p.store.trees(r.stage, nodes=()))
            if found["critic/unranked"] > UNRANKED:
                p.status.say(critic_unread(name, number, found["critic/unranked"]))
        if not 0 <= (mean := found.get("reward/mean", 0.0)) <= 1:
            p.status.say(
                f"agentq {name}: the mean return of round {number} is {mean:g}; search and training expect returns in "
                f"[0, 1]: agentq env check {settings.run.env}"
            )
        p.store.log(name, number, **found, **spent)
        if settings.run.shard:  # the merged run learns
            return
        make_room()
        trainer.learn(r)
        if not (p.store.note(stage_of(name, number, "learn")) or {}).get("items"):
            p.leave_out([stage_of(name, number, "learn")])
            p.status.say(nothing_learnt(name, number, found))
        if (state := state_of(states, number)).exists():
            _remove_others(state)
    trainer.finish()
    made = [path for path in (out, adapter_of(out)) if path.exists()]
    seals = {path.name: seal(path) for path in made}
    p.store.set_note(f"{name}/train", {"finished": True, "rounds": num_rounds, "checkpoints": seals})


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
        if not last or state_seal(state_of(states, last)) == notes[last - 1].get("state"):
            break
        learnt = last - 1
    if learnt < (kept := (p.store.note(FORK) or {}).get("rounds", 0)):
        raise StoreError(
            f"{states} must be as agentq fork made it, since rounds up to {kept} had other settings; got another "
            "state: fork the run again"
        )
    with p.store.transaction():
        for number, note in enumerate(notes[learnt:], start=learnt + 1):
            again = {"finished": False, "learnt_again": note.get("learnt_again", 0) + 1}
            p.store.set_note(stage_of(name, number, "learn"), note | again)
    for number in range(learnt + 1, len(notes) + 1):
        remove(state_of(states, number))
    return learnt


def nothing_learnt(name: str, number: int, found: Mapping[str, float]) -> str:
    """What to say of a round without training items. `found`: its metrics."""
    wins = f"{100 * found.get('success', 0.0):.1f} % of its tasks or episodes succeeded"
    read = f", {100 * found['unreadable']:.0f} % of its actions were unreadable" if found.get("unreadable") else ""
    remedy = "agentq doctor says whether its actions can be read; easier tasks or demonstrations give successes"
    if found.get("success") == 1:
        remedy = "harder tasks give failures to compare them with"
    elif found.get("success") and found.get("group_collapse") == 1:
        remedy = (
            "all attempts at a task ended alike; more tasks (run.num_tasks) or attempts (run.group_size) may differ"
        )
    return (
        f"agentq {name}: round {number} has nothing to train on, so the model stays as it was: {wins}{read}. {remedy}"
    )


def critic_unread(name: str, number: int, share: float) -> str:
    """What to say of a round whose critic ranked few nodes. `share`: of those that it did not rank."""
    return (
        f"agentq {name}: in round {number} the critic's answers could not be read at {100 * share:.0f} % of nodes, "
        "whose pairs are by W / N alone. A model that thinks needs --critic.max_new_tokens 1024 or more; "
        "--critic.method listwise or letters asks for less, --critic.model none asks for nothing"
    )


def _remove_others(kept: Path) -> None:
    """Remove what other rounds have left beside `kept`."""
    for other in kept.parent.glob("round*"):
        if other != kept:
            remove(other)


def _affordable(r: Round[S]) -> int:
    """Number of rounds that stay within `run.max_env_steps` if all take what the ones before took on average.

    With a budget and no cost known yet, it is this round's number.
    """
    notes = [r.store.note(stage_of(r.name, n, "learn")) or {} for n in range(1, r.number)]
    before: list[int] = [note.get("env_steps", 0) for note in notes]
    run = r.settings.run
    if not run.max_env_steps or not sum(before):
        return r.number if run.max_env_steps else run.num_rounds
    return min(run.num_rounds, run.max_env_steps * len(before) // sum(before))


def state_of(states: Path, number: int) -> Path:
    """Where a training keeps the newest state of a round."""
    return states / f"round{number}"
