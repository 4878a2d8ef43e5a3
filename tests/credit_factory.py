"""A hand-made round of a recipe, without a model: what its `collect` and `credit` see, and what they make of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from agentq import envs
from agentq.agent.actions import parse_action
from agentq.recipes.pipeline import Pipeline
from agentq.recipes.recipe import Round
from agentq.recipes.settings import RECIPES
from agentq.store.records import TreeRecord
from agentq.store.run import RunStore
from agentq.types import Observation, Proposal, Sample, Split, Step, StepResult, StopReason, Trajectory
from tests.reads import made
from tests.recipes_factory import Quiet
from tests.train_factory import recipe_of


class Agrees:
    """A learner whose log-probabilities differ from the recorded ones by `gap` nats per token."""

    def __init__(self, gap: float = 0.0) -> None:
        self.gap = gap

    def recompute_logps(self, samples: Sequence[Sample]) -> list[Sample]:
        return [replace(s, logps=s.logps - np.float32(self.gap)) for s in samples]

    def recompute_reference(self, pairs: Sequence[Any]) -> list[Any]:
        def nine(side: Sequence[Sample]) -> tuple[Sample, ...]:
            return tuple(replace(s, logps=np.full(len(s.token_ids), -9.0)) for s in side)

        return [replace(pair, chosen=nine(pair.chosen), rejected=nine(pair.rejected)) for pair in pairs]


def episode(task: int, pages: str, won: bool, mark: int) -> Trajectory:
    """An episode with a turn on each page; its tokens begin with `mark`. A win has reward 1 at the end."""
    steps = []
    for i, page in enumerate(pages):
        last = i + 1 == len(pages)
        proposal = Proposal(
            parse_action(f"COMMANDS: CLICK [{i + 1}]"),
            *(np.array([5], np.int32), np.array([mark, i], np.int32), np.full(2, -0.5, np.float32)),
            *(StopReason.EOS, 0, 1.0),
        )
        after = Observation(pages[i + 1] if not last else "end")
        result = StepResult(after, float(won and last), terminated=last, success=won and last)
        steps.append(Step(Observation(page), proposal, result))
    return Trajectory(envs.task("booking", Split.TRAIN, task), tuple(steps), float(won), won)


GROUPS = [  # task, pages, success; 17 turns, of which 7 in successes
    *((1, "pq", True), (1, "p", False), (1, "p", False), (1, "pqr", False), (1, "pxyz", True)),
    *((2, "a", True), (2, "a", False), (2, "ab", False), (2, "c", False), (2, "d", False)),
]
WON = (0, 4, 5)


def round_of(name: str, store: RunStore, words: Sequence[str] = (), *, number: int = 1, gap: float = 0.0) -> Round[Any]:
    settings = made(RECIPES[name], ["--run.group_size=5", "--run.num_tasks=2", *words])
    pipeline = Pipeline(store, settings, Path("base"), Quiet())
    learner: Any = Agrees(gap)
    return Round(pipeline, settings, name, number, Path("policy"), Path("start"), learner)


def with_groups(r: Round[Any]) -> Round[Any]:
    for mark, (task, pages, won) in enumerate(GROUPS):
        r.store.add_trajectory(r.stage, f"{task}/{mark % 5}", episode(task, pages, won, mark))
    return r


def with_tree(r: Round[Any], tree: TreeRecord) -> Round[Any]:
    r.store.add_tree(r.stage, tree)
    return r


def credit(r: Round[Any]) -> list[Any]:
    return recipe_of(r.name).credit(r)


def by_mark(items: Sequence[Any], turn: int = 0) -> dict[int, list[float]]:
    """Advantages per turn of each item, by the first token of one of its turns."""
    return {int(item.samples[turn].token_ids[0]): item.advantages.tolist() for item in items}
