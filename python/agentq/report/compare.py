"""`agentq compare`: what two models did in the same held-out tasks, from one run or from two."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from agentq.errors import ConfigError, StoreError
from agentq.evaluation.comparison import Comparison, compare, compare_seeds
from agentq.evaluation.outcomes import counted_episode, of_tree
from agentq.evaluation.stats import wilson
from agentq.report.summary import read_summary
from agentq.store.run import TRAJECTORY, TREE, RunStore
from agentq.types import Trajectory

_MEASURED = re.compile(r"(.*/)?eval(/round\d+)?")


class Measured(NamedTuple):
    """A model as a stage of a run measured it, with the episode of each task that counts. `known`: all such rungs."""

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
            f"agentq compare takes one run or two; got {len(words)}: name the second method's runs after --with"
        )
    second = [read_measured(word) for word in others or words[-1:]]
    first = [read_measured(word) for word in (words if others else words[:-1])]
    first = first or [read_measured(f"{second[0].run}:{second[0].known[0]}")]
    if first[0].name == second[0].name:
        found = ", ".join(second[0].known)
        raise ConfigError(f"two rungs must be given; {second[0].run} has {found}: name another run too")
    try:
        if len(first) == len(second) == 1:
            return first, second, compare(first[0].episodes, second[0].episodes)
        return first, second, compare_seeds([m.episodes for m in first], [m.episodes for m in second])
    except ConfigError as error:
        names = " and ".join(", ".join(m.name for m in side) for side in (first, second))
        raise ConfigError(f"{names}: {error}") from error


def within(store: RunStore) -> tuple[str, str, Comparison] | None:
    """The first and the last rung of a run, and their comparison; None without two that are whole and share tasks."""
    stages = [*_measured(store).items()]
    if len(stages) < 2:
        return None
    (first, name), (last, last_name) = stages[0], stages[-1]
    try:
        return name, last_name, compare(_episodes(store, first), _episodes(store, last))
    except (ConfigError, StoreError):
        return None


def read_measured(word: str) -> Measured:
    """A measurement by `RUN` or `RUN:RUNG`. Raises ConfigError if there is none, StoreError if the run is none."""
    run, _, rung = (word, "", "") if Path(word).is_dir() or ":" not in word else word.rpartition(":")
    with RunStore.read(Path(run)) as store:
        known = _measured(store)
        stages = [stage for stage in store.stages() if rung in (stage, known.get(stage))] if rung else known
        named = [s for s in stages if s in known or store.count(s, TREE) or store.count(s, TRAJECTORY)]
        if not named or not known:
            rungs = ", ".join(known.values()) or "none"
            raise ConfigError(f"{run} must have measured {rung or 'a model'}; it has {rungs}")
        stage = named[-1]
        episodes = _episodes(store, stage)
    name = known.get(stage, stage)
    if not episodes:
        raise ConfigError(f"{run} must have episodes of {name}; it has none yet")
    return Measured(run, [*known.values()], name, episodes)


def _measured(store: RunStore) -> dict[str, str]:
    """The stages that measured a model, in order, and the row of the run's table that each makes."""
    stages = [stage for stage in store.stages() if _MEASURED.fullmatch(stage)]
    if str(store.config.get("command")).startswith("eval"):  # rows are named after the checkpoint
        with suppress(StoreError):  # a damaged table hides no episodes
            rows = read_summary(store.path / "summary.json")
            if len(rows) == len(stages):
                return {stage: row.name for stage, row in zip(stages, rows, strict=True)}
    return {stage: stage.removesuffix("/eval") for stage in stages}


def _episodes(store: RunStore, stage: str) -> list[Trajectory]:
    """The episodes of a stage; of a search that the world did not break, the one that counts."""
    trees = [tree for tree in store.trees(stage) if not of_tree(tree).broken]
    return [*store.trajectories(stage), *(replace(counted_episode(t), success=of_tree(t).success) for t in trees)]
