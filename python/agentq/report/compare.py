"""`agentq compare`: what two models did in the same held-out tasks, from one run or from two."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from agentq.errors import ConfigError
from agentq.evaluation.comparison import Comparison, compare, compare_seeds
from agentq.evaluation.outcomes import counted_episode, of_tree
from agentq.evaluation.stats import wilson
from agentq.store.run import RunStore
from agentq.types import Trajectory

_MEASURED = re.compile(r"(.*/)?eval(/round\d+)?")


class Measured(NamedTuple):
    """A model as a stage of a run measured it, with the episode of each task that counts. `known`: all such stages."""

    run: str
    known: list[str]
    rung: str
    episodes: list[Trajectory]

    @property
    def name(self) -> str:
        """As it is given: `RUN:RUNG`."""
        return f"{self.run}:{self.rung}"

    def __str__(self) -> str:
        won, n = sum(t.success for t in self.episodes), len(self.episodes)
        low, high = wilson(won, n)
        return f"{self.name}: {100 * won / n:.1f} % of {n} ({100 * low:.1f} - {100 * high:.1f})"


def compare_runs(words: Sequence[str], others: Sequence[str] = ()) -> tuple[list[Measured], list[Measured], Comparison]:
    """The measurements of two models, or of two methods with several training seeds, and their comparison.

    Args:
        words: `RUN` or `RUN:RUNG` of each. A rung is a row of the run's table, or a stage of the run; without it, the
            last one. If there is only one word, the first is the first rung of its run.
        others: of several seeds, the second method's runs; then `words` are the first's, in the same order of seeds.

    Raises:
        ConfigError: if a run has no such rung, a single one has no two, the two share no task, or seeds are missing.
        StoreError: if a run is none, or is damaged.
    """
    if len(words) > 2 and not others:
        raise ConfigError(
            f"agentq compare takes one run or two; got {len(words)}: name the second method's after --with"
        )
    second = [read_measured(word) for word in others or words[-1:]]
    first = [read_measured(word) for word in (words if others else words[:-1])]
    first = first or [read_measured(f"{second[0].run}:{second[0].known[0]}")]
    if first[0].name == second[0].name:
        found = ", ".join(map(_rung, second[0].known))
        raise ConfigError(f"two rungs must be given; {second[0].run} has {found}: name another run too")
    try:
        if len(first) == len(second) == 1:
            return first, second, compare(first[0].episodes, second[0].episodes)
        return first, second, compare_seeds([m.episodes for m in first], [m.episodes for m in second])
    except ConfigError as error:
        names = " and ".join(", ".join(m.name for m in side) for side in (first, second))
        raise ConfigError(f"{names}: {error}") from error


def within(store: RunStore) -> tuple[str, str, Comparison] | None:
    """The first and the last rung of a run, and their comparison; None if no two are measured on shared tasks."""
    stages = _measured(store)
    if len(stages) < 2:
        return None
    try:
        found = compare(*(_episodes(store, stage) for stage in (stages[0], stages[-1])))
    except ConfigError:
        return None
    return _rung(stages[0]), _rung(stages[-1]), found


def read_measured(word: str) -> Measured:
    """A measurement by `RUN` or `RUN:RUNG`. Raises ConfigError if there is none, StoreError if the run is none."""
    run, _, rung = (word, "", "") if Path(word).is_dir() or ":" not in word else word.rpartition(":")
    with RunStore.read(Path(run)) as store:
        known = _measured(store)
        named = [stage for stage in store.stages() if rung in (stage, _rung(stage))] if rung else known
        if not named or not known:
            rungs = ", ".join(map(_rung, known)) or "none"
            raise ConfigError(f"{run} must have measured {rung or 'a model'}; it has {rungs}")
        episodes = _episodes(store, named[-1])
    if not episodes:
        raise ConfigError(f"{run} must have episodes of {_rung(named[-1])}; it has none yet")
    return Measured(run, known, _rung(named[-1]), episodes)


def _measured(store: RunStore) -> list[str]:
    """The stages that measured a model."""
    return [stage for stage in store.stages() if _MEASURED.fullmatch(stage)]


def _episodes(store: RunStore, stage: str) -> list[Trajectory]:
    """The episodes of a stage; of a search that the world did not break, the one that counts."""
    trees = [tree for tree in store.trees(stage) if not of_tree(tree).broken]
    return [*store.trajectories(stage), *(replace(counted_episode(t), success=of_tree(t).success) for t in trees)]


def _rung(stage: str) -> str:
    """The row of the run's table that a stage makes."""
    return stage.removesuffix("/eval")
