"""Whether a command may use a run directory. Checked before anything is made or deleted; undone after a failure.

A directory belongs to the command that made it. The first item binds it to its settings; without items, a run may begin
anew with other settings.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from agentq.errors import ConfigError, StoreError
from agentq.store.directory import OWN_FILES, Lock, check_directory, delete_run
from agentq.store.files import first_difference, read_object
from agentq.store.run import PARTIAL, TRAJECTORY, TREE, RunStore

FILES = "files"  # the note with a digest of each file of code that a run reads
INPUTS = "inputs"  # the note with the paths of a run's inputs
COMMAND = "command"  # the note with the words of a run's command, where they were given, and whether it has finished


def is_begun(path: Path) -> bool:
    """Whether an earlier command left something in the directory that a new run would continue."""
    return (path / "config.json").exists() and not _is_idle(path)


def check_claim(
    path: Path,
    config: Mapping[str, Any],
    *,
    clean: bool,
    inputs: Mapping[str, Path | str],
    grows: Collection[str] = (),
) -> None:
    """Check that a command may make, continue, or with `clean` delete the run in `path`.

    Args:
        config: the run's settings; its "command" has the words of the command, such as "train loop".
        inputs: inputs of the command by option, such as "--base": a path, or the name of an engine. An input that
            `config` has as a fingerprint has the same key there.
        grows: see `RunStore.open`.

    Raises:
        ConfigError: if the directory belongs to another command or has other settings, an input would be deleted, or
            the directory cannot be written.
        StoreError: if it is no run directory, or is damaged.
    """
    check_directory(path)
    found = {entry.name for entry in path.iterdir()} if path.exists() else set()
    if "config.json" in found and not found & {"run.sqlite", "env.json"}:
        raise StoreError(f"{path} must be empty or a run directory; it holds config.json and no run.sqlite")
    stored = _stored(path, clean=clean)
    if stored is not None and stored.get("command") != config["command"]:
        made = f"agentq {stored['command']}" if "command" in stored else "an older agentq"
        raise ConfigError(f"{path} was made by {made}; got agentq {config['command']}: choose another --out")
    if clean:
        for name, given in inputs.items():
            if isinstance(given, Path):
                _check_apart(path, name, given)
    elif stored is not None and is_begun(path):
        _check_same(path, stored, config, inputs, grows)
    check_writable(path)


@contextmanager
def claimed(
    path: Path,
    config: Mapping[str, Any],
    *,
    clean: bool,
    inputs: Mapping[str, Path | str] | None = None,
    grows: Collection[str] = (),
) -> Iterator[RunStore]:
    """The store of the run in `path`. If the block fails before it keeps anything, what it made is deleted.

    Raises:
        ConfigError: if the directory cannot be written to.
        StoreError: as `RunStore.open`.
    """
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        opened = RunStore.open(path, config, clean=clean or _is_idle(path), grows=grows)
    except (OSError, StoreError) as error:
        if path in made:
            _take_back(path, made)
        if isinstance(error, OSError):
            raise _unwritable(path, error) from error
        raise
    nothing = False
    try:
        with opened as store:
            try:
                if inputs and store.note(INPUTS) is None:
                    store.set_note(INPUTS, {name: str(given) for name, given in inputs.items()})
                yield store
            except BaseException:
                nothing = _kept_nothing(store)
                if nothing:
                    delete_run(path)
                raise
    finally:
        if nothing and made:
            _remove(made)


def _stored(path: Path, *, clean: bool) -> dict[str, Any] | None:
    """The settings of the run in `path`; None if there is none, or a damaged one that will be deleted."""
    try:
        return read_object(path / "config.json") if (path / "config.json").exists() else None
    except StoreError:
        if clean:
            return None
        raise


def _is_idle(path: Path) -> bool:
    """Whether `path` has a run in which nothing was kept."""
    if not (path / "config.json").exists():
        return False
    try:
        with RunStore.read(path) as store:
            return _kept_nothing(store)
    except StoreError:
        return False  # it is damaged, which opening reports


def _kept_nothing(store: RunStore) -> bool:
    """Whether a run has no item, half-grown tree, metric, checkpoint or foreign file; a live run also no note."""
    try:
        stages = store.stages()
        kinds = TREE, TRAJECTORY, PARTIAL
        if any(store.count(stage, kind) for stage in stages for kind in kinds) or store.metrics():
            return False
        if "live" in store.config and any(store.note(stage) for stage in stages if stage != INPUTS):
            return False
    except StoreError:
        return False
    own = all(entry.name in OWN_FILES for entry in store.path.iterdir())
    return own and not any((store.path / "checkpoints").glob("*"))


def _check_apart(path: Path, name: str, given: Path) -> None:
    place, source = path.resolve(), given.resolve()
    if place == source or place in source.parents or source in place.parents:
        raise ConfigError(
            f"--clean must not delete what the command reads; got {name} {given} and --out {path}: choose another --out"
        )


def _check_same(
    path: Path,
    stored: dict[str, Any],
    config: Mapping[str, Any],
    inputs: Mapping[str, Path | str],
    grows: Collection[str],
) -> None:
    difference = first_difference(stored, json.loads(json.dumps(config)), grows)
    if difference is None:
        return
    key, was, now = difference
    if key in inputs:  # its fingerprint differs
        with RunStore.read(path) as store:
            before = (store.note(INPUTS) or {}).get(key, "another one")
        made = f"{key} {before}"
        got = "the same with other files" if before == str(inputs[key]) else inputs[key]
    else:
        made, got = f"--{key} {was}", now
    if key == "run.shard":
        made, got = (f"--run.shard {each}" if each else "no --run.shard" for each in (was, now))
        raise ConfigError(f"{path} was made with {made}; got {got}: give the same, or another --out")
    if was is None or now is None:
        raise ConfigError(
            f"{path} was made by another version of agentq, whose settings differ in {key}: choose another --out, "
            "or --clean to delete it and start over"
        )
    remedy = "give what it was made with, another --out, or --clean to delete it and start over"
    if key in grows:
        remedy = f"it can only grow: {remedy}"
    raise ConfigError(f"{path} was made with {made}; got {got}: {remedy}")


def check_writable(path: Path) -> None:
    """Raises ConfigError unless files can be made in a directory, or in the parent in which it will be made."""
    there = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    try:
        with tempfile.TemporaryDirectory(prefix=".agentq", dir=there):
            pass
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"--out must be a directory that can be written to; got {path}: {error.strerror}")


def _take_back(path: Path, made: list[Path]) -> None:
    """Delete the remains of a failed opening in a directory made for it, unless another process holds it."""
    with suppress(StoreError, OSError), closing(Lock(path)):
        delete_run(path)
        _remove(made)


def _remove(made: list[Path]) -> None:
    """Remove the empty directories of a run that kept nothing, innermost first."""
    with suppress(OSError):
        (made[0] / ".lock").unlink(missing_ok=True)
        for folder in made:
            folder.rmdir()
