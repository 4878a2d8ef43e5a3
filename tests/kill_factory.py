"""Training runs in a process of their own that dies by SIGKILL at a chosen moment: nothing is cleaned up."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from multiprocessing import get_context, set_start_method
from pathlib import Path
from typing import Any

from agentq.learn import checkpoint
from agentq.recipes import here
from agentq.status import Show
from tests.train_factory import recipe_of, run

FORKS = get_context("forkserver")  # forked from a process that has imported everything and computed nothing
FORKS.set_forkserver_preload(["agentq.recipes.here", "transformers.models.llama.modeling_llama"])


@dataclass(frozen=True, slots=True)
class Moment:
    """`stage` "round2/collect" or "round2/learn": when it has shown `at` items or steps, a due checkpoint written.

    "step": after the run's optimiser step `at`, before anything is written of it. "write": when so many files of
    checkpoints are written; each has two, and is none before it has both.
    """

    stage: str
    at: int


def killed(name: str, base: Path, out: Path, words: Sequence[str], moment: Moment) -> None:
    """`train_factory.run`, until the moment."""
    every = here.CHECKPOINT_EVERY
    process = FORKS.Process(target=_run, args=(name, base, out, words, moment, every))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL, f"{moment} never came; exit code {process.exitcode}"


class _Dies:
    def __init__(self, stage: str, at: int) -> None:
        self.where, self.at = stage, at

    def plan(self, stages: Any, in_flight: int) -> None: ...

    def stage(self, name: str, total: int, unit: str) -> Show:
        def show(done: int, note: str, grown: float = 0.0, /) -> None:
            if name == self.where and done == self.at:
                _die()

        return show


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _run(name: str, base: Path, out: Path, words: Sequence[str], moment: Moment, every: int) -> None:
    set_start_method("fork", force=True)  # semaphores of the dead need no tracker then
    here.CHECKPOINT_EVERY = every
    recipe, save_file, written = recipe_of(name), checkpoint.save_file, []

    def step(learner: Any, *rest: Any) -> Any:
        metrics = recipe.loss(learner, *rest)
        if moment == Moment("step", learner.step_count):
            _die()
        return metrics

    def write(tensors: Any, path: Path) -> None:
        save_file(tensors, path)
        written.append(path)
        if moment == Moment("write", len(written)):
            _die()

    checkpoint.save_file = write
    run(name, base, out, words, _Dies(f"{name}/{moment.stage}", moment.at), replace(recipe, loss=step))
