"""Runs, for the command line and Python: check inputs, claim the directory, do the work, write the report."""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentq import plugins
from agentq.config import Run, Settings
from agentq.errors import ConfigError, did_you_mean, require
from agentq.policies.engine_names import (
    check_checkpoint,
    checkpoint_to_train,
    embedded_base,
    make_engine,
    path_in,
    read_name,
    sampler_name,
)
from agentq.recipes.load import NOTHING, Given, load
from agentq.recipes.settings import RECIPES, AgentQ, Demo, EvalCommand, EvalSearchCommand, Ladder

if TYPE_CHECKING:
    from agentq.evaluation.stats import RungResult
    from agentq.policies.protocol import Engine
    from agentq.recipes.pipeline import Pipeline
    from agentq.recipes.recipe import Recipe

    Engines = dict[Path | str, Engine]


@dataclass(frozen=True, slots=True)
class Result:
    """The measured rows, and the path of the report."""

    rows: list[RungResult]
    report: Path


@dataclass(frozen=True, slots=True)
class RunPlace:
    """The base and the file of settings of a run, and how its directory is treated.

    Attributes:
        base: the checkpoint to start from; None: the embedded base.
        file: a TOML file of settings.
        clean: whether to delete an earlier run of the same command in its directory.
        source: name of the source of the given settings, for messages.
    """

    base: str | None = None
    file: Path | None = None
    clean: bool = False
    source: str = "command line"


def train(recipe: str, given: Given = NOTHING, place: RunPlace = RunPlace()) -> Result:
    """Train by one recipe, given by name or as a Python file that defines RECIPE, and measure the result.

    Args:
        given: settings by section and name, such as `{"run": {"num_tasks": 8}}`.

    Raises:
        ConfigError: if there is no such recipe, or a setting is wrong or unknown to it.
    """
    file = own_recipe(recipe)
    name = "" if file else recipe_name(recipe)
    if name in RECIPES:  # before torch is imported, which takes seconds
        settings = load(RECIPES[name], f"train {name}", place.file, given, place.source)
        _check_env(settings)
    require_train("train")
    found = find_recipe(recipe)
    if name not in RECIPES:
        settings = load(found.settings, f"train {found.name}", place.file, given, place.source)
        _check_env(settings)
    from agentq.recipes.ladder import climb, rungs_of

    job = _Job(
        place,
        settings,
        f"train {found.name}",
        f"train-{found.name}-{settings.run.env}",
        {"RECIPE": file} if file else {},
    )
    return job.run(lambda p: climb(p, settings, rungs_of(found, settings)))


def ladder(model: type[Demo], given: Given = NOTHING, place: RunPlace = RunPlace()) -> Result:
    """Train and measure the rungs of the paper's ladder: all of them with `Ladder`, some of them with `Demo`."""
    command = model.__name__.lower()
    settings = load(model, command, place.file, given, place.source)
    _check_env(settings)

    def work(p: Pipeline) -> list[RungResult]:
        from agentq.recipes.ladder import DEMO_RUNGS, RUNGS, climb
        from agentq.recipes.look import first_look

        if isinstance(settings, Ladder):
            return climb(p, settings, RUNGS)
        first_look(p, settings)
        return climb(p, settings, DEMO_RUNGS)

    env = settings.run.env
    return _Job(
        place, settings, command, command if command == "demo" and env == Run().env else f"{command}-{env}"
    ).run(work)


def evaluate(
    checkpoint: str, search: str | None = None, given: Given = NOTHING, place: RunPlace = RunPlace()
) -> Result:
    """Held-out success of a checkpoint or engine. `search`: "tree" searches once per task, "step" before each step."""
    command = {None: "eval", "tree": "eval --search", "step": "eval --search step"}[search]
    model: type[EvalCommand] | type[EvalSearchCommand] = EvalSearchCommand if search else EvalCommand
    settings = load(model, command, place.file, given, place.source)
    name = read_name(checkpoint)
    check_checkpoint(name)
    _check_env(settings)
    from agentq.policies.weights import fingerprint
    from agentq.recipes.measure import measure

    found, called = fingerprint(name), name.resolve().name if isinstance(name, Path) else name
    where = f"{command.replace(' -', '')}-{called}-{settings.run.env}-{found[:8]}"
    job = _Job(place, settings, command, where, {"checkpoint": name}, {"checkpoint": found})
    return job.run(lambda p: measure(p, settings, name, by_steps=search == "step"))


def require_train(command: str) -> None:
    """Raises MissingExtra if a package is missing that `agentq COMMAND` needs to run models in this process."""
    for module in ("torch", "transformers"):
        require(module, extra="train", for_=f"agentq {command}")


def own_recipe(name: str) -> Path | None:
    """The path of a recipe given as a Python file; None for a name. Raises ConfigError if the file is missing."""
    if not name.endswith(".py"):
        return None
    if not Path(name).is_file():
        raise ConfigError(f"RECIPE must be a recipe's name or a Python file; got {name}, which is not there")
    return Path(name)


def recipe_name(given: str, more: Sequence[str] = (), kind: str = "recipe") -> str:
    """The name of a recipe in agentq or an installed package. Raises ConfigError if there is none."""
    name = given.replace("-", "_")
    if name in (*RECIPES, *more):
        return name
    others = plugins.names("recipes")
    if given not in others:
        raise ConfigError(f"no {kind} '{given}'{did_you_mean(name, [*RECIPES, *others, *more])}")
    return given


def find_recipe(given: str) -> Recipe[Any]:
    """The recipe with this name, or in this file."""
    from agentq.recipes.ladder import recipe_named
    from agentq.recipes.recipe import Recipe

    file = own_recipe(given)
    if file is None:
        name = recipe_name(given)
        if name in RECIPES:
            return recipe_named(name)
        found, where = plugins.load("recipes", name), f"the entry point '{name}'"
    else:
        found, where = runpy.run_path(str(file)).get("RECIPE"), str(file)
    if not isinstance(found, Recipe):
        raise ConfigError(f"{where} must define RECIPE, an agentq.recipes.recipe.Recipe; got {type(found).__name__}")
    return found


def _check_env(settings: Settings) -> None:
    """Raises ConfigError or EnvError if the run's environment is unknown or unreachable."""
    from agentq import envs

    envs.make(settings.run.env)


@dataclass(frozen=True, slots=True)
class _Job:
    """A command's work in its run directory.

    Attributes:
        command: the command as typed.
        where: name of the directory under runs/ if none is given.
        reads: inputs besides the base and the file of settings, by the argument that gives them.
        identity: values stored with the settings, which a resumed run must match.
    """

    place: RunPlace
    settings: Settings
    command: str
    where: str
    reads: Mapping[str, Path | str] = field(default_factory=dict)
    identity: Mapping[str, str] = field(default_factory=dict)

    def run(self, work: Callable[[Pipeline], list[RungResult]]) -> Result:
        """Do the work and write the report."""
        from agentq.progress import RichStatus
        from agentq.recipes.executor import worker_processes
        from agentq.recipes.pipeline import Pipeline
        from agentq.recipes.resources import Resources, loading
        from agentq.report import write_report
        from agentq.store.claim import check_claim, claimed, is_begun

        clean, given = self.place.clean, self.settings.run.out
        out = Path(given or "runs/" + re.sub(r"[^\w.-]+", "-", self.where).strip("-"))
        base = read_name(self.place.base) if self.place.base else embedded_base()
        measured = self.reads.get("checkpoint")
        if measured is None:
            checkpoint_to_train(base)
        check_checkpoint(base)
        stored = self.settings.to_dict() | {"command": self.command} | dict(self.identity)
        inputs = self._inputs(base)
        check_claim(out, stored, clean=clean, inputs=inputs)
        asked = [base] if measured is None else [measured, base] if "search" in self.command else [measured]
        if any(isinstance(name, Path) for name in asked):
            require_train(self.command.partition(" ")[0])
        with _closed_at_end() as engines, worker_processes(Resources(self.settings, base), asked) as processes:
            if measured is None:
                import_module("agentq.recipes.ladder")  # loads torch, as the workers do meanwhile
            if clean or not is_begun(out):
                if processes is not None:
                    processes.load(partial(loading, names=asked))
                else:
                    self._make_engines(asked, engines)
            with claimed(out, stored, clean=clean, inputs=inputs) as store, RichStatus() as status:
                rows = work(Pipeline(store, self.settings, base, status, engines, processes))
        return Result(rows, write_report(out))

    def _inputs(self, base: Path | str) -> dict[str, Path | str]:
        from agentq.envs.contract import is_file

        s = self.settings
        more = {"--base": base, "--config": self.place.file, "run.engine": s.run.engine}
        if isinstance(s, AgentQ) and s.search.critic not in ("base", "none"):
            more["search.critic"] = read_name(s.search.critic)
        if is_file(s.run.env):
            more["run.env"] = Path(s.run.env.rpartition(":")[0])
        given = {name: value for name, value in {**self.reads, **more}.items() if value}
        return {name: path_in(value) or value for name, value in given.items()}

    def _make_engines(self, asked: Sequence[Path | str], engines: Engines) -> None:
        """Load the engines that a new run uses first, before it creates or deletes anything."""
        served = self.settings.run.engine
        if served:
            name = sampler_name(served)
            check_checkpoint(name)
            if not name.startswith("vllm:"):  # vLLM takes minutes to start
                make_engine(name).close()
            asked = [name for name in asked if isinstance(name, str) or name != self.reads.get("checkpoint")]
        for each in dict.fromkeys(asked):
            engines[each] = make_engine(each)


@contextmanager
def _closed_at_end() -> Iterator[Engines]:
    """A dictionary of engines by name, to be shared by a pipeline. All its engines are closed at the end."""
    engines: Engines = {}
    try:
        yield engines
    finally:
        for engine in engines.values():
            engine.close()
