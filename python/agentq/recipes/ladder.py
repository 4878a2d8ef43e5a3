"""The paper's ladder on one environment: base, RFT, outcome DPO, Agent Q without and with critic, search at test time.

As in the paper, everything above RFT starts from the RFT model. The rungs that learn share training tasks, rounds and
steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from agentq.config import Config
from agentq.evaluation.stats import RungResult
from agentq.learn.epochs import count_steps
from agentq.learn.learner import Learner, Metrics
from agentq.recipes import agent_q, outcome_dpo, rft
from agentq.recipes.accounts import Cost
from agentq.recipes.learning import check_sealed, learn, learner_of, sealed
from agentq.recipes.pipeline import Pipeline
from agentq.store.durable import remove
from agentq.store.files import write_json
from agentq.store.run import RunStore
from agentq.types import Split, Task

RUNGS = ("base", "rft", "outcome_dpo", "agent_q_no_critic", "agent_q", "rft_mcts", "agent_q_mcts")
DEMO_RUNGS = ("base", "rft", "agent_q", "agent_q_mcts")


class Method(Protocol):
    """What a recipe's module offers: training items from a stage of the store, one optimiser step on some of them."""

    def items(self, store: RunStore, stage: str, config: Config) -> list[Any]: ...

    def step(self, learner: Learner, batch: list[Any], config: Config) -> Metrics: ...


def ladder(p: Pipeline, rungs: Sequence[str] = RUNGS) -> list[RungResult]:
    """Climb `rungs` in order; each row is written to summary.json as soon as it is known.

    Raises:
        ConfigError: if the run began with another base.
    """
    p.check_base()
    rows: list[RungResult] = []
    made: dict[str, tuple[Path, Cost]] = {"base": (p.start, Cost())}
    held_out = p.tasks(Split.TEST, p.config.eval.num_tasks)
    for rung in rungs:
        checkpoint, spent = _train(p, rung.removesuffix("_mcts"), made)
        iterations = p.config.eval.num_iterations if rung.endswith("_mcts") else 0
        spent = Cost() if iterations else spent  # a searching rung's training is the row of the rung it searches with
        rows.append(p.evaluate(rung, f"{rung}/eval", checkpoint, held_out, iterations=iterations, spent=spent))
        write_json(p.store.path / "summary.json", [row.to_dict() for row in rows])
    return rows


def _train(p: Pipeline, rung: str, made: dict[str, tuple[Path, Cost]]) -> tuple[Path, Cost]:
    """The checkpoint of a rung that learns, and what it cost; made once."""
    if rung not in made:
        start = p.start if rung == "rft" else _train(p, "rft", made)[0]
        made[rung] = _TRAIN[rung](p, start)
    return made[rung]


def _rft(p: Pipeline, start: Path) -> tuple[Path, Cost]:
    """One round of rejection-sampling fine-tuning on the start policy's own successes."""
    c, data, train = p.config, "rft/rollouts", "rft/train"
    tasks = p.tasks(Split.TRAIN, c.rft.num_tasks)
    p.rollouts(data, start, tasks, attempts=c.rft.attempts, temperature=c.search.temperature)
    rate, epochs = c.rft.learning_rate, c.rft.epochs
    return _learn(p, train, start, rft, data, c, learning_rate=rate, epochs=epochs), p.cost(data, train)


def _outcome_dpo(p: Pipeline, start: Path) -> tuple[Path, Cost]:
    """As many rollouts of each task as Agent Q makes."""

    def collect(stage: str, checkpoint: Path, tasks: list[Task]) -> None:
        attempts, temperature = p.config.search.num_iterations, p.config.search.temperature
        p.rollouts(stage, checkpoint, tasks, attempts=attempts, temperature=temperature)

    rate = p.config.outcome_dpo.learning_rate
    return _rounds(p, "outcome_dpo", outcome_dpo, start, p.config, collect, rate)


def _agent_q(p: Pipeline, start: Path, *, critic: bool = True) -> tuple[Path, Cost]:
    """Search trees; without critic the proposals stay in sampled order and pairs compare Q_mcts alone (alpha = 1)."""
    c = p.config
    if not critic:
        c = c.model_copy(update={"pairs": c.pairs.model_copy(update={"alpha": 1.0})})

    def collect(stage: str, checkpoint: Path, tasks: list[Task]) -> None:
        p.search(stage, checkpoint, tasks, iterations=c.search.num_iterations, critic=critic)

    name = "agent_q" if critic else "agent_q_no_critic"
    return _rounds(p, name, agent_q, start, c, collect, c.train.learning_rate)


def _rounds(
    p: Pipeline,
    rung: str,
    method: Method,
    start: Path,
    config: Config,
    collect: Callable[[str, Path, list[Task]], None],
    learning_rate: float,
) -> tuple[Path, Cost]:
    """Rounds of: collect with the latest policy on new tasks, then train on what the method makes of it."""
    c, checkpoint, stages = config, start, []
    for number in range(1, c.run.num_rounds + 1):
        data, train = f"{rung}/round{number}/collect", f"{rung}/round{number}/train"
        stages += [data, train]
        first = c.rft.num_tasks + (number - 1) * c.run.num_tasks
        collect(data, checkpoint, p.tasks(Split.TRAIN, c.run.num_tasks, first))
        epochs = c.train.epochs
        checkpoint = _learn(p, train, checkpoint, method, data, c, learning_rate=learning_rate, epochs=epochs)
    return checkpoint, p.cost(*stages)


def _learn(
    p: Pipeline,
    stage: str,
    start: Path,
    method: Method,
    data_stage: str,
    config: Config,
    *,
    learning_rate: float,
    epochs: int,
) -> Path:
    """Train from `start` on what the method makes of a stage; the new checkpoint, or `start` if that is nothing."""
    out = p.store.path / "checkpoints" / stage.replace("/", "-")
    states = out.with_name(out.name + ".partial")
    note = p.store.note(stage) or {}
    if note.get("finished"):
        check_sealed(p, note)
        remove(states)
        return out if note["items"] else start
    t, items = config.train, method.items(p.store, data_stage, config)
    warmup = int(t.warmup_fraction * count_steps(len(items), epochs=epochs, batch_size=t.batch_size))
    learner = learner_of(config, start, learning_rate=learning_rate, warmup_steps=warmup)

    def finish() -> dict[str, Any]:
        learner.save(out)
        return {"checkpoints": sealed(out)}

    learn(
        *(p, stage, learner, items, method.step),
        config=config,
        directory=states,
        epochs=epochs,
        seed=config.run.seed,
        log=lambda metrics: p.store.log(stage, learner.step_count, **metrics),
        finish=finish,
    )
    remove(states)
    return out if items else start


_TRAIN: dict[str, Callable[[Pipeline, Path], tuple[Path, Cost]]] = {
    "rft": _rft,
    "outcome_dpo": _outcome_dpo,
    "agent_q": _agent_q,
    "agent_q_no_critic": partial(_agent_q, critic=False),
}
