"""Runs, for the command line and Python: check inputs, claim the directory, do the work, write the report."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar, get_args

from agentq.config import Settings
from agentq.eval_settings import ChosenBy
from agentq.policies.engine_names import (
    check_checkpoint,
    check_vllm,
    checkpoint_to_train,
    embedded_base,
    make_engine,
    path_in,
    read_name,
    sampler_name,
)
from agentq.policies.placement import free_memory, read_devices
from agentq.recipes.find import find_recipe, require_train
from agentq.recipes.load import NOTHING, Given, load, over, read_by
from agentq.recipes.settings import AgentQ, Demo, EvalCommand, EvalSearchCommand, Ladder
from agentq.run_settings import Run
from agentq.types import Split

if TYPE_CHECKING:
    from agentq.evaluation.stats import RungResult
    from agentq.policies.protocol import Engine
    from agentq.recipes.pipeline import Pipeline

S = TypeVar("S", bound=Settings)


class Result(NamedTuple):
    """The measured rows, and the path of the report; of a dry run none, and the run directory."""

    rows: list[RungResult]
    report: Path


class Inputs(NamedTuple):
    """What a run is given.

    Attributes:
        given: settings by section and name, such as `{"run": {"num_tasks": 8}}`.
        file: a TOML file of settings.
        base: the checkpoint to start from; None: the embedded base.
        clean: whether to delete an earlier run of the same command in its directory.
        source: name of the source of the given settings, for messages.
        dry: whether to check everything and do nothing.
        made: the stored settings of a run that goes on. They hold whatever `file`, the environment and `given` say.
    """

    given: Given = NOTHING
    file: Path | None = None
    base: str | None = None
    clean: bool = False
    source: str = "command line"
    dry: bool = False
    made: Given = NOTHING

    def load(self, model: type[S], command: str) -> S:
        """The settings of a command. Raises ConfigError or EnvError if its environment is unknown or unreachable."""
        found = load(model, command, self.file, over(self.given, read_by(model, self.made)), self.source)
        from agentq import envs

        envs.make(found.run.env, screenshots=found.run.screenshots, marks=found.model.sees).close()
        return found


def train(recipe: str, inputs: Inputs) -> Result:
    """Train by one recipe, given by name or as a Python file that defines RECIPE, and measure the result."""
    name, model, imported = find_recipe(recipe)
    s = inputs.load(model, f"train {name}")
    require_train("train")

    def work(p: Pipeline) -> list[RungResult]:
        from agentq.recipes.ladder import climb, rungs_of

        return climb(p, s, rungs_of(imported(), s))

    return _run(f"train {name}", s, inputs, work, {"RECIPE": Path(recipe)} if recipe.endswith(".py") else {})


def ladder(command: Literal["demo", "ladder"], inputs: Inputs) -> Result:
    """Train and measure rungs of the paper's ladder: all of them, or those of the demo."""
    s = inputs.load(Ladder if command == "ladder" else Demo, command)

    def work(p: Pipeline) -> list[RungResult]:
        from agentq.recipes.ladder import DEMO_RUNGS, RUNGS, climb
        from agentq.recipes.look import first_look

        if command == "ladder":
            return climb(p, s, RUNGS)
        first_look(p, s)
        return climb(p, s, DEMO_RUNGS)

    return _run(command, s, inputs, work, {})


def evaluate(checkpoint: str, search: Literal["tree", "step"] | None, inputs: Inputs) -> Result:
    """Held-out success of a checkpoint or engine. `search`: "tree" searches once per task, "step" before each step."""
    command = {None: "eval", "tree": "eval --search", "step": "eval --search step"}[search]
    model: type[EvalCommand] | type[EvalSearchCommand] = EvalSearchCommand if search else EvalCommand
    name = read_name(checkpoint)
    check_checkpoint(name)
    s = inputs.load(model, command)

    def work(p: Pipeline) -> list[RungResult]:
        from agentq.store.files import write_json

        p.check_base()
        held_out = p.tasks(Split(s.eval.split), s.eval.num_tasks)
        ways: tuple[ChosenBy, ...] = get_args(ChosenBy)
        every = isinstance(s, EvalSearchCommand) and s.eval.chosen_by == "all"
        p.plan([(stage, len(held_out)) for stage in ([f"{way}/eval" for way in ways] if every else ["eval"])])
        if not isinstance(s, EvalSearchCommand):
            rows = [p.evaluate(_called(name), "eval", name, held_out, s.eval)]
        else:
            by = name, held_out, s.search, s.critic, s.eval
            if s.eval.chosen_by == "all":
                rows = [p.evaluate_search(f"{_called(name)}, {way}", f"{way}/eval", *by, way) for way in ways]
            else:
                rows = [p.evaluate_search(_called(name), "eval", *by, s.eval.chosen_by, by_steps=search == "step")]
        write_json(p.store.path / "summary.json", [row.to_dict() for row in rows])
        return rows

    return _run(command, s, inputs, work, {"checkpoint": name})


def _run(
    command: str,
    s: Settings,
    inputs: Inputs,
    work: Callable[[Pipeline], list[RungResult]],
    reads: Mapping[str, Path | str],
) -> Result:
    """Do a command's work in its run directory and write the report. `reads`: inputs besides the settings' and base."""
    from agentq.policies.weights import fingerprint
    from agentq.recipes.again import GROWS, changed_files, note_finished, note_words, words_of
    from agentq.recipes.executor import workers_of
    from agentq.recipes.pipeline import Pipeline
    from agentq.recipes.resources import Resources, loading
    from agentq.recipes.trackers import tracked
    from agentq.report import write_report
    from agentq.status import RichStatus
    from agentq.store.claim import check_claim, claimed, is_begun
    from agentq.store.merge import FINISHED

    base = read_name(inputs.base) if inputs.base else _base_for(command, reads.get("checkpoint"))
    stored, where = s.to_dict() | {"command": command}, command.replace(" -", "")
    measured = reads.get("checkpoint")
    if measured is None:
        checkpoint_to_train(base)
        asked = [base]
        where += f"-{s.run.env}" if command != "demo" or s.run.env != Run().env else ""
    else:
        ranks = [base] if _critic(s) == "base" else _own_critic(s)
        asked = [measured, *(ranks if "search" in command else [])]
        stored["checkpoint"] = found = fingerprint(measured)
        where += f"-{_called(measured)}-{s.run.env}-{found[:8]}"
    where += f"-{s.run.shard}" if s.run.shard else ""
    for name in (base, *_own_critic(s)):
        check_checkpoint(name)
    out = Path(s.run.out or "runs/" + re.sub(r"[^\w.-]+", "-", where).strip("-"))
    place = out.absolute()  # an environment may change the directory
    check_vllm(dict(s.vllm), [name for name in (measured, base, s.run.engine, _critic(s)) if name])
    paths = _paths(s, {**reads, "--base": base, "--config": inputs.file})
    grows = () if s.run.shard else GROWS
    check_claim(out, stored, clean=inputs.clean, inputs=paths, grows=grows)
    if any(isinstance(name, Path) for name in asked):
        require_train(command.partition(" ")[0])
    if inputs.dry:
        return Result([], out)
    engines: dict[Path | str, Engine] = {}
    try:
        with RichStatus() as status, workers_of(Resources(s, base), asked) as workers:
            status.begin(f"agentq {command}: {out}")
            if inputs.clean or not is_begun(out):  # engines first, before anything is made or deleted
                if any(isinstance(name, Path) for name in asked):
                    _check_memory(s, base, measured, workers.num_workers if workers else 1)
                if workers is not None:
                    workers.load(partial(loading, names=asked))
                else:
                    if s.run.engine:  # it samples for a checkpoint that is measured
                        _check_sampler(s)
                        asked = [name for name in asked if isinstance(name, str) or name != measured]
                        if s.train.lora_rank:  # the same engine serves the base
                            asked = [name for name in asked if isinstance(name, str)]
                    for name in dict.fromkeys(asked):
                        engines[name] = make_engine(name, s.model, dict(s.vllm))
            claim = claimed(place, stored, clean=inputs.clean, inputs=paths, grows=grows)
            with claim as store:
                for file in changed_files(store, paths):
                    status.say(
                        f"agentq: {file} has changed since {out} was begun. What is done is kept as it was; "
                        "--clean starts over, and another --out keeps both"
                    )
                note_words(store, words_of(command, inputs.given, reads, inputs.base, inputs.file))
                with tracked(store, s.run.track):
                    rows = work(Pipeline(store, s, base, status, engines, workers))
                note_finished(store)
                if s.run.shard:
                    store.set_note(FINISHED, {"finished": True})
    finally:
        for engine in engines.values():
            engine.close()
    return Result(rows, out / write_report(place).name)


def _base_for(command: str, measured: Path | str | None) -> Path | str:
    """The base of a command that is given none. To search with a checkpoint, it is the one that it was trained from, if
    a run tells, else the model itself."""
    if measured is None or "search" not in command:
        return embedded_base()
    from agentq.recipes.again import base_of

    path = path_in(measured)
    return (base_of(path) if path else None) or measured


def _called(name: Path | str) -> str:
    """Name of a checkpoint's directory, or of an engine."""
    return name.resolve().name if isinstance(name, Path) else name


def _paths(s: Settings, reads: Mapping[str, Path | str | None]) -> dict[str, Path | str]:
    """What a run reads, by the option or setting that gives it: the path in it, or its name."""
    from agentq.envs.contract import from_file

    own = {"model.prompt": s.model.prompt, "model.grammar": s.model.grammar}
    for key, function in own.items():
        if function:
            from_file(function, key)
    every = {
        **reads,
        "run.engine": s.run.engine,
        "critic.model": next(iter(_own_critic(s)), None),
        "run.env": _file_of(s.run.env),
        **{key: Path(function.rpartition(":")[0]) for key, function in own.items() if function},
    }
    return {name: path_in(value) or value for name, value in every.items() if value}


def _file_of(env: str) -> Path | None:
    """The file that an environment's name has in it."""
    from agentq.envs.contract import is_file

    if env.startswith("webarena:"):
        return Path(env.removeprefix("webarena:"))
    return Path(env.rpartition(":")[0]) if is_file(env) else None


def _critic(s: Settings) -> str:
    """What ranks proposals; "none" for a command without a critic."""
    return s.critic.model if isinstance(s, AgentQ | Demo | EvalSearchCommand) else "none"


def _own_critic(s: Settings) -> list[Path | str]:
    """The critic's engine, if it has one of its own."""
    return [] if _critic(s) in ("base", "none") else [read_name(_critic(s))]


def _check_memory(s: Settings, base: Path | str, measured: Path | str | None, workers: int) -> None:
    """Check that the models of a new run fit, and say if a large base is needed twice."""
    models = [base, *([measured] if measured else []), *_own_critic(s)]
    if not s.run.engine and all(map(_is_tiny, models)):
        return
    from agentq.recipes.memory import GIB, check_memory, size_of

    check_memory(s, base, measured, workers=workers)
    if measured is None and not s.train.lora_rank and _critic(s) == "base":
        size = size_of(base)
        if size.parameters * size.own_bytes > GIB:
            print(
                f"agentq: all weights are trained, so the critic needs {base} a second time: "
                "--critic.model names another engine, --train.lora_rank 16 needs one model for both",
                file=sys.stderr,
            )


def _is_tiny(checkpoint: Path | str) -> bool:
    """Whether a thousand copies fit into memory (ours). That needs no estimate, for which torch is loaded."""
    if not isinstance(checkpoint, Path) or read_devices("auto") != ("cpu",):
        return False
    size = sum(file.stat().st_size for file in checkpoint.glob("*.safetensors"))
    return 0 < 1000 * size < free_memory()  # a model on the hub has no files here


def _check_sampler(s: Settings) -> None:
    """Raises an error if `run.engine` cannot sample. vLLM is not started, which takes minutes."""
    name = sampler_name(s.run.engine)
    check_checkpoint(name)
    if not name.startswith("vllm:"):
        make_engine(name, s.model).close()
