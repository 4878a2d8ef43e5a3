"""Shards: runs that each do a part of the tasks, and the run made of them.

Shard i of n has the tasks whose seeds leave the remainder i - 1 when divided by n. Records are copied as they are, so a
merged run has the records of a run that did all tasks.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any

from agentq.errors import ConfigError
from agentq.run_settings import read_shard
from agentq.store.claim import COMMAND, FILES, INPUTS, check_claim, claimed
from agentq.store.files import first_difference, read_object, write_json
from agentq.store.records import TreeRecord
from agentq.store.run import TREE, RunStore
from agentq.types import Trajectory

FINISHED = "shard"  # the note of a shard that has done its part
ROWS = 64  # copied in one transaction
COUNTS = ("done", "total", "seconds", "usage", "engine")  # what grows with a stage's items, in its note


def merge(runs: Sequence[Path], out: Path) -> int:
    """Make one run of all its shards. Returns its number of trees and episodes.

    Merging again continues an interrupted merge. The same command without `run.shard` continues the run: it trains and
    reports. Items, seconds and usage of a stage are summed over the shards. The rest of its note is the first shard's.

    Raises:
        ConfigError: if a shard is missing, twice there or unfinished, or if settings, bases or pair settings differ.
        StoreError: if a run is damaged or in use, or `out` cannot be written.
    """
    shards = {path: RunStore.read(path) for path in runs}
    try:
        config = _checked(shards)
        check_claim(out, config, clean=False, inputs={})
        with claimed(out, config, clean=False) as store:
            count = sum(_copy(shard, store) for shard in shards.values())
            _note(list(shards.values()), store)
        facts = {str(path): read_object(path / "env.json") for path in runs}
        write_json(out / "env.json", read_object(out / "env.json") | {"shards": facts})
    finally:
        for shard in shards.values():
            shard.close()
    return count


def _checked(shards: Mapping[Path, RunStore]) -> dict[str, Any]:
    """The settings of the merged run. Raises ConfigError if these are not all shards of one run."""
    found: dict[int, Path] = {}
    (first, one), *_ = shards.items()
    for path, store in shards.items():
        text = store.config.get("run", {}).get("shard", "")
        if not text:
            raise ConfigError(f"a run to merge must be a shard, made with --run.shard; got {path}")
        number, n = read_shard(text)
        _check_inputs(first, one, path, store)
        _check_same(first, _whole(one.config), path, _whole(store.config))
        _check_same(first, {"shards": read_shard(one.config["run"]["shard"])[1]}, path, {"shards": n})
        _check_same(first, {"base": one.note("base")}, path, {"base": store.note("base")})
        _check_same(first, _pairs(one), path, _pairs(store))
        for changed in _changed(one, store):
            print(f"agentq: {changed} was another one in {first} than in {path}", file=sys.stderr)
        if (was := _made_by(first)) != (now := _made_by(path)):
            print(f"agentq: {first} was made by agentq {was}, {path} by {now}", file=sys.stderr)
        if number in found:
            raise ConfigError(f"each shard must be given once; got {text} as {found[number]} and {path}")
        if not store.note(FINISHED):
            raise ConfigError(f"a shard must be finished; got {path}: give its command again")
        found[number] = path
    if missing := sorted(set(range(1, n + 1)) - set(found)):
        raise ConfigError(f"all {n} shards must be given; got none of {', '.join(map(str, missing))}")
    return _whole(one.config)


def _whole(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a shard without its number."""
    run = {key: value for key, value in config["run"].items() if key != "shard"}
    return {**config, "run": run}


def _check_inputs(first: Path, one: RunStore, path: Path, store: RunStore) -> None:
    """Raises ConfigError with the names of inputs of which the settings have another digest."""
    was, now = ((each.note(INPUTS) or {}) for each in (one, store))
    for key in was:
        if one.config.get(key) != store.config.get(key):
            other = "the same with other files" if was[key] == now.get(key) else now.get(key)
            raise ConfigError(f"shards must be of one run; got {key} {was[key]} in {first} and {other} in {path}")


def _made_by(path: Path) -> str:
    facts = read_object(path / "env.json")
    return f"{facts.get('versions', {}).get('agentq-search')} ({facts.get('commit')})"


def _changed(one: RunStore, other: RunStore) -> list[str]:
    """Files of code that two shards read, such as the environment's, with other contents."""
    first, second = (store.note(FILES) or {} for store in (one, other))
    return [name for name in first if first[name] != second.get(name)]


def _pairs(store: RunStore) -> dict[str, Any]:
    """The settings by which each stage's pairs are taken, as its note tells."""
    notes = {stage: store.note(stage) or {} for stage in store.stages()}
    return {stage: {"pairs": note["pairs"]} for stage, note in notes.items() if "pairs" in note}


def _check_same(first: Path, stored: Mapping[str, Any], path: Path, given: Mapping[str, Any]) -> None:
    if difference := first_difference(stored, given):
        key, was, now = difference
        raise ConfigError(f"shards must be of one run; got {key} {was} in {first} and {now} in {path}")


def _copy(shard: RunStore, store: RunStore) -> int:
    """Copy the records of a shard that the store lacks. Returns how many the shard has."""
    count, rows = 0, _records(shard)
    while part := list(islice(rows, ROWS)):
        with store.transaction():
            for stage, key, record in part:
                if isinstance(record, TreeRecord):
                    store.add_tree(stage, record)
                else:
                    store.add_trajectory(stage, key, record)
        count += len(part)
    return count


def _records(shard: RunStore) -> Iterator[tuple[str, str, TreeRecord | Trajectory]]:
    """Stage, key and record of everything in a shard. Raises ConfigError for a task of another shard."""
    number, n = read_shard(shard.config["run"]["shard"])
    for stage in shard.stages():
        found: Iterator[TreeRecord | Trajectory] = chain(shard.trees(stage), shard.trajectories(stage))
        episodes = sorted(shard.keys(stage), key=lambda key: (int(key.partition("/")[0]), key))
        keys = chain(repeat("", shard.count(stage, TREE)), episodes)
        for key, record in zip(keys, found, strict=True):
            if record.task.seed % n != number - 1:
                must = f"{shard.path} must have the tasks of shard {number}/{n} alone"
                raise ConfigError(f"{must}; got {record.task.seed} in {stage}")
            yield stage, key, record


def _note(shards: Sequence[RunStore], store: RunStore) -> None:
    """Keep what the shards' notes say together."""
    for stage in dict.fromkeys(stage for shard in shards for stage in shard.stages()):
        notes = [note for shard in shards if (note := shard.note(stage)) is not None]
        if notes and stage == COMMAND:
            words = [word for word in notes[0]["words"] if not word.startswith("--run.shard=")]
            store.set_note(COMMAND, {**notes[0], "words": words, "finished": False})
        elif notes and stage != FINISHED:
            store.set_note(stage, together(notes))


def together(notes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The note of a stage in all shards: the sums of their `COUNTS`, and the rest of the first that has it."""
    rest = {key: value for note in reversed(notes) for key, value in note.items()}
    return rest | reduce(added, ({key: note[key] for key in COUNTS if key in note} for note in notes))


def added(one: Any, other: Any) -> Any:
    """The sum of two JSON values: numbers are added, tables by key; of anything else the first stays."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return {**other, **{key: added(value, other[key]) if key in other else value for key, value in one.items()}}
    if isinstance(one, bool) or not isinstance(one, int | float):
        return one
    return one + other
