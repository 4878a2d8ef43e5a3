"""The ladder: agents (rungs) that are trained one from another and measured. Also its part in the demo.

As in the paper, every rung above RFT starts from the RFT model. The trained ones share rounds and tasks. The tasks come
after RFT's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentq.evaluation.stats import RungResult
from agentq.recipes import agent_q, outcome_dpo, rft
from agentq.recipes.accounts import Cost
from agentq.recipes.pipeline import Pipeline
from agentq.recipes.recipe import Recipe, S, stages_of
from agentq.recipes.rounds import train
from agentq.recipes.settings import Demo, Ladder, Training
from agentq.store.files import write_json
from agentq.types import Split

Values = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Rung:
    """An agent: the base, or another rung after training.

    Attributes:
        recipe: how it is trained; None: not at all.
        start: name of the rung it starts from.
        overrides: settings of the recipe that differ from the ladder's, by section and name.
        searches: whether it is measured with search at test time.
    """

    name: str
    recipe: Recipe[Any] | None = None
    start: str = "base"
    overrides: Callable[[Any], Values] = lambda settings: {}
    searches: bool = False


def _rft(s: Demo) -> Values:
    """One round on the start policy's own successes."""
    return {
        "run": {"num_rounds": 1, "num_tasks": s.rft.num_tasks, "group_size": s.rft.attempts},
        "train": {"learning_rate": s.rft.learning_rate, "epochs": s.rft.epochs},
    }


def _after_rft(s: Demo) -> Values:
    return {"run": {"first_task": s.run.first_task + s.rft.num_tasks}}


def _outcome_dpo(s: Ladder) -> Values:
    """As many rollouts per task as Agent Q makes."""
    rate, n = s.outcome_dpo.learning_rate, s.search.num_iterations
    return {"run": {**_after_rft(s)["run"], "group_size": n}, "train": {"learning_rate": rate}}


def _no_critic(s: Demo) -> Values:
    """Proposals stay in sampled order; selection and pairs compare Q_mcts alone."""
    return {**_after_rft(s), "critic": {"model": "none"}}


RUNGS = (
    Rung("base"),
    Rung("rft", rft.RECIPE, "base", _rft),
    Rung("outcome_dpo", outcome_dpo.RECIPE, "rft", _outcome_dpo),
    Rung("agent_q_no_critic", agent_q.RECIPE, "rft", _no_critic),
    Rung("agent_q", agent_q.RECIPE, "rft", _after_rft),
    Rung("rft_mcts", start="rft", searches=True),
    Rung("agent_q_mcts", start="agent_q", searches=True),
)
DEMO_RUNGS = tuple(rung for rung in RUNGS if rung.name in ("base", "rft", "agent_q", "agent_q_mcts"))


def climb(p: Pipeline, settings: Training | Demo, rungs: Sequence[Rung] = RUNGS) -> list[RungResult]:
    """Train and measure `rungs` in order. Each row is written to summary.json as soon as it is known.

    Raises:
        ConfigError: if the run began with another base, or the settings of a recipe contradict each other.
    """
    made = {"base": (p.start, Cost())}
    p.check_base()
    rows: list[RungResult] = []
    held_out = p.tasks(Split(settings.eval.split), settings.eval.num_tasks)
    unsure = [stage for rung in rungs for stage in _unsure(rung, settings) if p.store.note(stage) is None]
    p.plan([stage for rung in rungs for stage in _stages(rung, settings)], unsure)
    for rung in rungs:
        checkpoint, spent = made[rung.start]
        stage = f"{rung.name}/eval"
        if rung.searches and isinstance(settings, Demo):  # the row of its start rung counts the training cost
            by = settings.search, settings.critic, settings.eval, settings.eval.chosen_by
            row = p.evaluate_search(rung.name, stage, checkpoint, held_out, *by)
        else:
            if rung.recipe:
                own = settings_of(rung.recipe, settings, rung.overrides(settings))
                checkpoint, spent = made[rung.name] = train(p, rung.recipe, own, rung.name, checkpoint)
                if own.run.shard:
                    break
            row = p.evaluate(rung.name, stage, checkpoint, held_out, settings.eval, spent)
        rows.append(row)
        write_json(p.store.path / "summary.json", [row.to_dict() for row in rows])
    return rows


def _stages(rung: Rung, settings: Training | Demo) -> Iterator[tuple[str, int]]:
    """The stages of a rung, with their numbers of items (0: unknown)."""
    if rung.recipe:
        run = settings_of(rung.recipe, settings, rung.overrides(settings)).run
        for number in range(1, run.num_rounds + 1):
            collected, learnt = stages_of(rung.name, number)
            yield collected, run.num_tasks * getattr(run, "group_size", 1)
            yield learnt, 0
    yield f"{rung.name}/eval", settings.eval.num_tasks


def _unsure(rung: Rung, settings: Training | Demo) -> Iterator[str]:
    """The stages of a rung that its budget may leave out: those after the first round."""
    if rung.recipe:
        run = settings_of(rung.recipe, settings, rung.overrides(settings)).run
        for number in range(2, run.num_rounds + 1) if run.max_env_steps else ():
            yield from stages_of(rung.name, number)


def rungs_of(recipe: Recipe[Any], settings: Training) -> list[Rung]:
    """The rungs of `agentq train`: the base, if `eval.measure_base` is set, and the trained policy."""
    return [*([Rung("base")] if settings.eval.measure_base else []), Rung(recipe.name, recipe)]


def settings_of(recipe: Recipe[S], shared: Training | Demo, overrides: Values) -> S:
    """A recipe's settings: its defaults, then the values of `shared`, then the rung's overrides."""
    values = {}
    for section, info in recipe.settings.model_fields.items():
        own = type(info.default).model_fields
        theirs = getattr(shared, section, info.default).model_dump()
        same = {name: value for name, value in theirs.items() if name in own}
        values[section] = info.default.model_dump(exclude_unset=True) | same | dict(overrides.get(section, {}))
    return recipe.settings.model_validate(values)
