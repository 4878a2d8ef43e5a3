"""The paper's ladder on one environment: base, RFT, outcome DPO, Agent Q without and with critic, then search at test time.

As in the paper, everything above RFT starts from the RFT model. The rungs that learn share training tasks, rounds and steps.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from agentq.credit.pairs import node_pairs, success_samples, trajectory_pairs
from agentq.evaluate.stats import RungResult
from agentq.recipes.pipeline import Cost, Pipeline, trajectories_by_task
from agentq.types import PreferencePair, Sample, Split

RUNGS = ("base", "rft", "outcome_dpo", "agent_q_no_critic", "agent_q", "rft_mcts", "agent_q_mcts")
DEMO_RUNGS = ("base", "rft", "agent_q", "agent_q_mcts")


def ladder(p: Pipeline, rungs: Sequence[str] = RUNGS) -> list[RungResult]:
    """Climb `rungs` in order; each row is written to summary.json as soon as it is known."""
    rows: list[RungResult] = []
    made: dict[str, tuple[Path, Cost]] = {"base": (p.base, Cost())}
    held_out = p.tasks(Split.TEST, p.config.eval.num_tasks)
    for rung in rungs:
        learner, _, searching = rung.partition("_mcts") if rung.endswith("_mcts") else (rung, "", "")
        checkpoint, spent = _train(p, learner, made)
        iterations = p.config.eval.num_iterations if rung.endswith("_mcts") else 0
        cost = Cost() if rung.endswith("_mcts") else spent
        rows.append(p.evaluate(rung, f"{rung}/eval", checkpoint, held_out, iterations=iterations, spent=cost))
        summary = json.dumps([row.to_dict() for row in rows], indent=1)
        (p.store.path / "summary.json").write_text(summary + "\n")
    return rows


def _train(p: Pipeline, rung: str, made: dict[str, tuple[Path, Cost]]) -> tuple[Path, Cost]:
    if rung not in made:
        train: dict[str, Callable[[Pipeline, Path], tuple[Path, Cost]]] = {
            "rft": rft,
            "outcome_dpo": outcome_dpo,
            "agent_q": agent_q,
            "agent_q_no_critic": lambda p, start: agent_q(p, start, critic=False),
        }
        start = p.base if rung == "rft" else _train(p, "rft", made)[0]
        made[rung] = train[rung](p, start)
    return made[rung]


def rft(p: Pipeline, start: Path) -> tuple[Path, Cost]:
    """Rejection-sampling fine-tuning: supervised training on the start policy's own successes, one round."""
    c = p.config
    tasks = p.tasks(Split.TRAIN, c.rft.num_tasks)
    p.rollouts("rft/rollouts", start, tasks, attempts=c.rft.attempts, temperature=c.search.temperature)

    def items() -> list[Sample]:
        return success_samples(list(p.store.trajectories("rft/rollouts")), c.rft.max_per_task)

    checkpoint = p.train(
        "rft/train",
        start,
        items,
        lambda learner, batch: learner.step_sft(batch),
        learning_rate=c.rft.learning_rate,
        epochs=c.rft.epochs,
        batch_size=c.train.batch_size,
    )
    return checkpoint, p.cost("rft/rollouts", "rft/train")


def outcome_dpo(p: Pipeline, start: Path) -> tuple[Path, Cost]:
    """DPO on whole trajectories, success against failure of the same task; rollouts instead of trees."""
    c = p.config

    def collect(stage: str, checkpoint: Path, first: int) -> None:
        tasks = p.tasks(Split.TRAIN, c.run.num_tasks, first)
        p.rollouts(stage, checkpoint, tasks, attempts=c.search.num_iterations, temperature=c.search.temperature)

    def pairs(stage: str) -> list[PreferencePair]:
        groups = trajectories_by_task(p.store, stage)
        return [pair for group in groups for pair in trajectory_pairs(group, max_pairs=4, seed=c.run.seed)]

    return _dpo_rounds(p, "outcome_dpo", start, collect, pairs)


def agent_q(p: Pipeline, start: Path, *, critic: bool = True) -> tuple[Path, Cost]:
    """Agent Q: search, node pairs by `alpha * Q_mcts + (1 - alpha) * Q_critic`, DPO; without critic alpha is 1."""
    c = p.config

    def collect(stage: str, checkpoint: Path, first: int) -> None:
        tasks = p.tasks(Split.TRAIN, c.run.num_tasks, first)
        p.search(stage, checkpoint, tasks, iterations=c.search.num_iterations, critic=critic)

    def pairs(stage: str) -> list[PreferencePair]:
        alpha = c.pairs.alpha if critic else 1.0
        limits = {"min_visits": c.pairs.min_visits, "max_pairs_per_node": c.pairs.max_pairs_per_node}
        trees = p.store.trees(stage)
        return [x for tree in trees for x in node_pairs(tree, alpha=alpha, threshold=c.pairs.threshold, **limits)]

    return _dpo_rounds(p, "agent_q" if critic else "agent_q_no_critic", start, collect, pairs)


def _dpo_rounds(
    p: Pipeline,
    rung: str,
    start: Path,
    collect: Callable[[str, Path, int], None],
    pairs: Callable[[str], list[PreferencePair]],
) -> tuple[Path, Cost]:
    """Rounds of: collect with the latest policy on new tasks, train on the pairs against the recorded behaviour policy."""
    c, checkpoint, stages = p.config, start, []
    for number in range(1, c.run.num_rounds + 1):
        data, train = f"{rung}/round{number}/collect", f"{rung}/round{number}/train"
        stages += [data, train]
        collect(data, checkpoint, c.rft.num_tasks + (number - 1) * c.run.num_tasks)
        checkpoint = p.train(
            train,
            checkpoint,
            lambda data=data: pairs(data),  # type: ignore[misc]
            lambda learner, batch: learner.step_dpo(batch, beta=c.train.beta),
            learning_rate=c.train.learning_rate,
            epochs=c.train.epochs,
            batch_size=c.train.batch_size,
        )
    return checkpoint, p.cost(*stages)
