"""Outcomes of held-out tasks, one small JSON file per trained model and way of measuring, in `benchmarks/results`.

`keep` writes one from a run directory. `benchmarks/results.py` makes every table and interval from these files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from itertools import pairwise
from math import lcm
from pathlib import Path
from typing import Any

from agentq.agent.actions import history_text
from agentq.evaluation.outcomes import of_episode, of_tree
from agentq.evaluation.seeds import SeedDifference, over_seeds, seed_difference
from agentq.evaluation.stats import RungResult, wilson
from agentq.policies.engine_names import embedded_base
from agentq.store.files import write_json
from agentq.store.run import RunStore

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The held-out success of one model by task.

    Attributes:
        table: the table that the row belongs to, such as `ladder` or `methods-all`, by `titled`.
        row: the method or rung.
        measured: `greedy`, `sampled` (temperature 1), `resampled` (greedy, but an action that repeats the one before is
            sampled again), what told a search at test time (`oracle`, `judge`), or the rows' calls; or `rollouts`,
            until the first success; or `repeats` and `sampled repeats`, the share of steps that repeat the one before.
        seed: of the training, or of the search if nothing was trained.
        command: the command that makes the table's runs.
        commit: of the code that measured.
        tasks: success (or rollouts) by task seed; several attempts as a share. Tasks that the world broke are missing.
        env_steps: of the training, or of the search.
    """

    table: str
    env: str
    row: str
    measured: str
    seed: int
    command: str
    commit: str
    tasks: dict[str, float]
    env_steps: int = 0

    @property
    def attempts(self) -> int:
        """The least number of attempts per task that gives these shares: 4 of 0.25 or 0.75."""
        return lcm(*(Fraction(share).limit_denominator(16).denominator for share in self.tasks.values()))

    @property
    def name(self) -> str:
        """The name of its file."""
        words = "-".join((self.table, self.env, self.row, self.measured, f"seed{self.seed}"))
        return "".join(c if c.isalnum() or c in "-_" else "_" for c in words.replace(", ", "-").replace(" ", "_"))


def titled(table: str, base: Path | str) -> str:
    """The name of a table whose rows begin with the model `base`: each base has its own tables."""
    return table if Path(base) == embedded_base() else f"{table}-{Path(base).name}"


def base_words(base: Path | str) -> list[str]:
    """The words of a command that begins with the model `base`."""
    return [] if Path(base) == embedded_base() else ["--base", str(base)]


def of_runs(runs: Sequence[Path], stage: str = "") -> dict[str, float]:
    """Success by task seed: the mean over the runs, which measured the same model on the same tasks.

    `stage`: the stage of the measurement; empty: the run's only one, the base's apart.
    """
    found: dict[int, list[float]] = {}
    for run in runs:
        with RunStore.read(run) as store:
            (name,) = [stage] if stage else held_out(store)
            ended = [(t.task.seed, of_episode(t)) for t in store.trajectories(name)]
            ended += [(tree.task.seed, of_tree(tree)) for tree in store.trees(name)]
        for seed, outcome in ended:
            if not outcome.broken:
                found.setdefault(seed, []).append(float(outcome.success))
    return {str(seed): sum(each) / len(each) for seed, each in sorted(found.items())}


def repeats_of(run: Path) -> dict[str, float]:
    """By task seed, the share of an episode's steps whose action is the one before, word for word."""
    found = {}
    with RunStore.read(run) as store:
        (name,) = held_out(store)
        for t in store.trajectories(name):
            texts = [history_text(step.proposal.action) for step in t.steps]
            if not t.broken:
                found[str(t.task.seed)] = sum(a == b for a, b in pairwise(texts)) / max(1, len(texts))
    return dict(sorted(found.items(), key=lambda each: int(each[0])))


def held_out(store: RunStore) -> list[str]:
    """The stages of a run that measured a model on held-out tasks, the base's apart."""
    return [s for s in store.stages() if s == "eval" or (s.endswith("/eval") and s != "base/eval")]


def interval(results: Sequence[RungResult]) -> tuple[float, float]:
    """95 % interval of one rung, in [0, 1]: Student's t over training seeds; of one seed, Wilson's over its tasks."""
    if len(results) == 1:
        return wilson(results[0].successes, results[0].n)
    found = over_seeds([result.rate for result in results])
    return max(0.0, found.low), min(1.0, found.high)


def difference(pairs: Sequence[tuple[Mapping[str, float], Mapping[str, float]]]) -> SeedDifference:
    """Success of the first minus that of the second of each pair, one pair per seed, on the tasks that both have."""
    common = [sorted(a.keys() & b.keys()) for a, b in pairs]
    ours, theirs = (
        [[pair[side][task] for task in tasks] for pair, tasks in zip(pairs, common, strict=True)] for side in (0, 1)
    )
    return seed_difference(ours, theirs, common)


def keep(outcomes: Outcomes, folder: Path = RESULTS) -> Path:
    """Write the file of some outcomes; return its path. A file with the same outcomes stays as it is."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{outcomes.name}.json"
    if path.exists():
        known = Outcomes(**json.loads(path.read_text()))
        if outcomes == replace(known, command=outcomes.command, commit=outcomes.commit):
            return path
    write_json(path, asdict(outcomes))
    return path


def read(folder: Path = RESULTS) -> list[Outcomes]:
    """All outcomes in a folder."""
    found: list[Any] = [json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))]
    return [Outcomes(**each) for each in found]
