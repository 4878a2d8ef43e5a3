"""A run's own command: what a run was asked for, how it goes on, and copies of it that go on by themselves."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

from agentq.config import Settings
from agentq.errors import ConfigError
from agentq.policies.engine_names import embedded_base
from agentq.policies.weights import fingerprint
from agentq.recipes.load import NOTHING, Given, load, over
from agentq.recipes.settings import COMMANDS
from agentq.store.claim import COMMAND, FILES
from agentq.store.database import connect
from agentq.store.directory import Lock, check_directory
from agentq.store.durable import make_directory, remove, sync_tree
from agentq.store.files import first_difference, flatten, write_json
from agentq.store.run import RunStore
from agentq.store.stages import drop_stage

FORK = "fork"  # the note of a fork: of which run, and how many rounds were learnt with other settings
GROWS = ("run.num_rounds", "eval.num_tasks")  # settings that may be raised in a run that has begun
LEARN = ("pairs", "train", "policy_gradient", "rft")  # sections that say how a round learns from its rollouts
FREE = ("search", "critic", *LEARN)  # sections that a fork may change


def words_of(command: str, s: Given, reads: Mapping[str, Path | str], base: str | None, file: Path | None) -> list[str]:
    """The words of a run's command, for a shell.

    Args:
        command: as in the run's settings, such as "train loop" or "eval --search step".
        s: the settings given on the command line or in Python.
        reads: as in `run._run`.
        base, file: what `--base` and `--config` named.
    """
    name, *rest = command.split()
    own = reads.get("RECIPE", reads.get("checkpoint"))
    searched = [f"--search={rest[1] if rest[1:] else 'tree'}"] if "--search" in rest else []
    words = [name, *([str(own)] if own else rest[:1]), *searched]
    words += [f"--{key}={value}" for key, value in (("base", base), ("config", file)) if value]
    given = {f"{section}.{key}": value for section, table in s.items() for key, value in table.items()}
    return words + [f"--{key}={value}" for key, value in given.items() if key != "run.out"]


def note_words(store: RunStore, words: list[str]) -> None:
    """Note the words of the command that makes or continues a run."""
    before = store.note(COMMAND) or {}
    store.set_note(COMMAND, {**before, "words": words, "folder": os.getcwd(), "finished": False})


def note_finished(store: RunStore) -> None:
    """Note that the command has done all its work."""
    store.set_note(COMMAND, {**(store.note(COMMAND) or {}), "finished": True})


def changed_files(store: RunStore, inputs: Mapping[str, Path | str]) -> list[str]:
    """The files of code that a run reads and that are not as they were when it first read them."""
    files = {name: Path(path) for name, path in inputs.items() if name != "--config" and Path(path).is_file()}
    now = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}
    first = {**now, **(store.note(FILES) or {})}
    store.set_note(FILES, first)
    return [str(path) for name, path in files.items() if first[name] != now[name]]


def command_of(run: Path) -> tuple[list[str], Path]:
    """The words of a run's command, and the folder in which they were given.

    Raises:
        ConfigError: if the run has no such command.
        StoreError: if `run` is no run directory.
    """
    with RunStore.read(run) as store:
        note = store.note(COMMAND)
        made = store.config.get("command", "another program")
    if note is None:
        raise ConfigError(f"a run to go on with must be one of demo, ladder, train or eval; got {run}, made by {made}")
    return list(note["words"]), Path(note["folder"])


def base_of(checkpoint: Path) -> Path | None:
    """The base that the run of a checkpoint began with; None if there is no such run or the base is gone."""
    run = checkpoint.resolve().parents[1] if checkpoint.resolve().parent.name == "checkpoints" else None
    if run is None or not (run / "run.sqlite").exists():
        return None
    with RunStore.read(run) as store:
        note, folder = store.note("base"), (store.note(COMMAND) or {}).get("folder", ".")
    for path in (embedded_base(), Path(folder) / (note or {}).get("name", "")):
        if note and path.is_dir() and fingerprint(path) == note["fingerprint"]:
            return path
    return None


def stored_in(config: Mapping[str, Any], given: Given = NOTHING) -> Given:
    """The settings that a run has stored, by section, without those that are `given`."""
    tables = {section: values for section, values in config.items() if isinstance(values, dict)}
    return {
        section: {name: value for name, value in values.items() if name not in given.get(section, {})}
        for section, values in tables.items()
    }


def fork(run: Path, out: Path, given: Given = NOTHING, *, learn_again: bool = False) -> None:
    """Copy a run to the new directory `out`, where it goes on by itself.

    Finished rounds stay as they are. The settings `given` apply to the rounds to come, so an unfinished round is left
    out if they change any.

    Args:
        learn_again: keep only what the first round collected, which no learning has touched, and learn from it again.
            Later rounds were collected by what was learnt before, so they are left out.

    Raises:
        ConfigError: if `out` is not empty, a setting cannot be changed, or there is nothing to learn from again.
        StoreError: if `run` is no run directory or is being written, or `out` cannot be written.
    """
    words, folder = command_of(run)
    check_directory(out)
    if out.exists() and any(out.iterdir()):
        raise ConfigError(f"--out must be a new directory; got {out}, which is not empty")
    at_rest = closing(Lock(run)) if os.access(run, os.W_OK) else nullcontext()  # a read-only run has no writer
    with at_rest, RunStore.read(run) as source:
        config = _with(source.config, words, folder, given, learn_again)
        trained = source.config["command"].removeprefix("train ")  # the name of its stages
        if learn_again and f"{trained}/round1/collect" not in source.stages():
            raise ConfigError(f"--learn-again needs a run with rollouts of a round; got {run}, which has none")
        _copy(run, out, learnt=not learn_again)
        write_json(out / "config.json", config)
    with RunStore.open(out, config) as store:
        learnt = 0
        if learn_again:
            _keep_collected(store, trained)
        elif first_difference(source.config, config, GROWS):
            learnt = _keep_finished(store)
        store.set_note(FORK, {"of": str(run.resolve()), "rounds": learnt})
        changes = [f"--{section}.{name}={value}" for section, table in given.items() for name, value in table.items()]
        finished = not changes and not learn_again and bool((store.note(COMMAND) or {}).get("finished"))
        store.set_note(COMMAND, {"words": words + changes, "folder": str(folder), "finished": finished})


def _with(
    config: Mapping[str, Any], words: Sequence[str], folder: Path, given: Given, learn_again: bool
) -> dict[str, Any]:
    """A run's settings with those `given`. Raises ConfigError if one cannot be changed."""
    from agentq.recipes.find import find_recipe

    command = config["command"]
    if learn_again and not command.startswith("train "):
        raise ConfigError(f"--learn-again needs a run of train; got one of {command}")
    if command in COMMANDS:
        model = COMMANDS[command]
    else:  # a recipe's file is relative to the folder of the run's command
        own = words[1].endswith(".py") and folder.is_dir()
        model = find_recipe(str(folder / words[1]) if own else words[1])[1]
    free = LEARN if learn_again else FREE
    for key in (f"{section}.{name}" for section, table in given.items() for name in table):
        if key not in GROWS and (key.partition(".")[0] not in free or not command.startswith("train ")):
            told = " that learns again" if learn_again else ""
            raise ConfigError(
                f"settings of a fork{told} must be {', '.join(GROWS)}, or with train of {', '.join(free)}; got {key}"
            )
    found = load(model, command, None, over(stored_in(config), given), "agentq fork")
    assert isinstance(found, Settings)
    new = {**config, **found.to_dict()}
    shrinks = ("run.num_rounds",) if learn_again else ()
    for key, now in ((key, now) for key, now in flatten(new) if key in GROWS and key not in shrinks):
        if now < (was := dict(flatten(config))[key]):
            raise ConfigError(f"{key} must be at least {was} in a fork; got {now}")
    return new


def _copy(run: Path, out: Path, *, learnt: bool) -> None:
    """Copy all but config.json, which marks a complete directory; what was learnt and measured only if asked for."""
    make_directory(out)
    with closing(sqlite3.connect(out / "run.sqlite")) as to, closing(connect(run / "run.sqlite", writable=False)) as of:
        of.backup(to)
    for name in ("env.json", "metrics.jsonl", "summary.json") if learnt else ("env.json",):
        if (run / name).exists():
            shutil.copyfile(run / name, out / name)
    if learnt and (run / "checkpoints").exists():
        shutil.copytree(run / "checkpoints", out / "checkpoints")
    sync_tree(out)


def _keep_finished(store: RunStore) -> int:
    """Leave out rounds that have not finished. Returns the number of those that have."""
    learnt = 0
    for stage in store.stages():
        if found := re.fullmatch(r"(.+)/round(\d+)/collect", stage):
            name, number = found[1], int(found[2])
            if (store.note(f"{name}/round{number}/learn") or {}).get("finished"):
                learnt = max(learnt, number)
                continue
            for part in (stage, f"{name}/round{number}/learn"):
                drop_stage(store, part)
            remove(store.path / "checkpoints" / f"{name}.states" / f"round{number}")
    return learnt


def _keep_collected(store: RunStore, name: str) -> None:
    """Leave out all that followed from learning. What the first round collected stays, and the measure of the base."""
    for stage in store.stages():
        if stage.startswith(f"{name}/") and stage != f"{name}/round1/collect":
            drop_stage(store, stage)
