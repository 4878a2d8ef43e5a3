"""What each command does. Functions take the parsed words and the settings' words, and return an exit code."""

from __future__ import annotations

import argparse
import contextlib
import json
import runpy
import sys
import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from agentq import plugins
from agentq.cli import DONE, INTERRUPTED, NOT_DONE
from agentq.cli.job import Job, check_env, require_train
from agentq.config import Config, RunConfig, is_read, settings, value_of
from agentq.errors import ConfigError, did_you_mean
from agentq.policies.engine_names import check_checkpoint, read_name
from agentq.policies.weights import fingerprint
from agentq.recipes.presets import DEMO, READS, RECIPES, load_for

if TYPE_CHECKING:
    from agentq.evaluation.stats import RungResult
    from agentq.recipes.pipeline import Pipeline
    from agentq.recipes.recipe import Recipe


def demo(args: argparse.Namespace, overrides: list[str]) -> int:
    """The whole loop on one site, in minutes."""
    config = load_for("demo", args.config, overrides, READS["demo"], DEMO)
    return _climb(args, config, "demo" if config.run.env == RunConfig().env else f"demo-{config.run.env}")


def ladder(args: argparse.Namespace, overrides: list[str]) -> int:
    """Every rung of the paper's ladder."""
    config = load_for("ladder", args.config, overrides, READS["ladder"])
    return _climb(args, config, f"ladder-{config.run.env}")


def train(args: argparse.Namespace, overrides: list[str]) -> int:
    """Rounds of one recipe."""
    file = own_recipe(args.recipe)
    command = f"train {file.name if file else _recipe_name(args.recipe)}"
    config = load_for(
        command, args.config, overrides, READS.get(command)
    )  # before torch is imported, which takes seconds
    check_env(config)
    require_train("train")
    recipe = _recipe(args.recipe)
    config = load_for(f"train {recipe.name}", args.config, overrides, recipe.reads, recipe.defaults)
    recipe.check(config)
    from agentq.recipes.rounds import train

    inputs = {"RECIPE": file} if file else {}
    job = Job(args, config, f"train {recipe.name}", f"train-{recipe.name}-{config.run.env}", inputs)
    return job.run(lambda p: train(p, recipe))


def evaluate(args: argparse.Namespace, overrides: list[str]) -> int:
    """Held-out success of a checkpoint or engine."""
    command = {None: "eval", "tree": "eval --search", "step": "eval --search step"}[args.search]
    config = load_for(command, args.config, overrides, READS[command])
    checkpoint = read_name(args.checkpoint)
    check_checkpoint(checkpoint)
    check_env(config)
    from agentq.recipes.measure import measure

    found, name = fingerprint(checkpoint), checkpoint.resolve().name if isinstance(checkpoint, Path) else checkpoint
    place = f"{command.replace(' -', '')}-{name}-{config.run.env}-{found[:8]}"
    job = Job(args, config, command, place, {"checkpoint": checkpoint}, identity={"checkpoint": found})
    return job.run(lambda p: measure(p, checkpoint, search=args.search))


def run(args: argparse.Namespace, overrides: list[str]) -> int:
    """One task on a live site."""
    from agentq.live.command import run

    try:
        return run(args, overrides)
    except KeyboardInterrupt:
        print("agentq: interrupted", file=sys.stderr)
        return INTERRUPTED


def _climb(args: argparse.Namespace, config: Config, place: str) -> int:
    check_env(config)

    def work(p: Pipeline) -> list[RungResult]:
        from agentq.recipes.ladder import DEMO_RUNGS, RUNGS, ladder

        return ladder(p, DEMO_RUNGS if args.command == "demo" else RUNGS)

    return Job(args, config, args.command, place, {}).run(work)


def _recipe(name: str) -> Recipe:
    """The recipe of a name, or of a file of the user's."""
    from agentq.recipes.recipe import Recipe

    file = own_recipe(name)
    if file is None:
        known = _recipe_name(name)
        if known in RECIPES:
            recipe: Recipe = import_module(f"agentq.recipes.{known}").RECIPE
            return replace(recipe, reads=RECIPES[known])
        found, where = plugins.load("recipes", known), f"the entry point '{known}'"
    else:
        found, where = runpy.run_path(str(file)).get("RECIPE"), str(file)
    if not isinstance(found, Recipe):
        raise ConfigError(f"{where} must define RECIPE, an agentq.recipes.recipe.Recipe; got {type(found).__name__}")
    return found


def _recipe_name(given: str, more: Sequence[str] = (), kind: str = "recipe") -> str:
    """The name of a recipe of agentq's, or of an installed package's. Raises ConfigError if there is none."""
    others = [] if given.replace("-", "_") in RECIPES else plugins.names("recipes")
    return given if given in others else _known(given, [*RECIPES, *others, *more], kind)


def own_recipe(name: str) -> Path | None:
    """The user's file that a recipe's name stands for; None for a name. Raises ConfigError if it is not there."""
    if not name.endswith(".py"):
        return None
    if not Path(name).is_file():
        raise ConfigError(f"RECIPE must be a recipe's name or a Python file; got {name}, which is not there")
    return Path(name)


def _known(given: str, names: Iterable[str], kind: str) -> str:
    name = given.replace("-", "_")
    if name not in names:
        raise ConfigError(f"no {kind} '{given}'{did_you_mean(name, names)}")
    return name


def base(args: argparse.Namespace, overrides: list[str]) -> int:
    """The embedded base model again."""
    _no_overrides("base", overrides)
    _check_new_base(args.out)
    require_train("base")
    from agentq.base.make import BaseSettings, make_base
    from agentq.progress import RichStatus

    s = BaseSettings()
    totals = {"pretrain": s.pretrain_tokens, "demonstrate": s.demonstration_tokens}
    with RichStatus() as status:
        shows = {stage: status.stage(stage, total, "tokens") for stage, total in totals.items()}
        make_base(args.out, s, on_step=lambda stage, m: shows[stage](int(m["tokens"]), f"loss {m['loss']:.3f}"))
    print(json.dumps({"checkpoint": str(args.out)}) if args.json else f"checkpoint: {args.out}")
    return DONE


def _check_new_base(out: Path) -> None:
    """The directory is replaced: it may only be one that the same command made, or began to make."""
    held = sorted(entry.name for entry in out.iterdir()) if out.is_dir() else []
    if (out.exists() and not out.is_dir()) or (held and not (out / "pretrained").is_dir()):
        what = f"which holds {held[0]}" if held else "a file"
        raise ConfigError(f"--out must be a new directory, or one that agentq base made; got {out}, {what}")


def report(args: argparse.Namespace, overrides: list[str]) -> int:
    """The page of a run."""
    _no_overrides("report", overrides)
    from agentq.report import write_report

    path = write_report(args.path, args.out)
    print(json.dumps({"report": str(path)}) if args.json else f"report: {path}")
    return DONE


def show_settings(args: argparse.Namespace, overrides: list[str]) -> int:
    """Every setting with its default; or those that a command or recipe reads, as a run of it would have them."""
    if args.name is None:
        _no_overrides("settings", overrides, "name what is to read them, as in agentq settings loop")
        config, reads = Config(), tuple(Config.model_fields)
    elif args.name in READS:
        reads = READS[args.name]
        config = load_for(args.name, args.config, overrides, reads, DEMO if args.name == "demo" else ())
    else:
        recipe = _recipe_to_show(args.name)
        reads = recipe.reads or tuple(Config.model_fields)
        config = load_for(f"train {recipe.name}", args.config, overrides, recipe.reads, recipe.defaults)
    rows = [(s, value_of(config, s.key)) for s in settings() if is_read(s.key, reads)]
    if args.json:
        print(json.dumps({s.key: value for s, value in rows}))
    else:
        print("\n".join(f"{f'--{s.key} {value}':<43} {s.description}" for s, value in rows))
    return DONE


def serve(args: argparse.Namespace, overrides: list[str]) -> int:
    """An environment for others, until Ctrl-C."""
    _no_overrides("env serve", overrides)
    from agentq.envs.remote.connection import Connection
    from agentq.envs.remote.env_server import EnvServer
    from agentq.envs.remote.token import VARIABLE

    with EnvServer(args.name, args.python, args.at, args.sessions, args.idle) as server:
        first = Connection(server.at)
        name = f"{first.hello.name}@{server.at}"
        first.hang_up()
        file = str(server.token.file) if server.token is not None and server.token.file is not None else None
        more = f"\nfrom another machine or user: {VARIABLE}=$(cat {file})" if file else ""
        print(json.dumps({"env": name, "token_file": file}) if args.json else f"--env {name}{more}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()
    return DONE


def check(args: argparse.Namespace, overrides: list[str]) -> int:
    """The promises that an environment keeps."""
    _no_overrides("env check", overrides)
    if args.tasks < 1:
        raise ConfigError(f"--tasks must be at least 1; got {args.tasks}")
    from agentq.envs.check import check

    found = []
    for finding in check(args.name, args.tasks):
        found.append(finding)
        if not args.json:
            print(finding, flush=True)
    holds = all(finding.holds is not False for finding in found)
    if args.json:
        checks = [{"promise": each.promise, "holds": each.holds, "said": each.said} for each in found]
        print(json.dumps({"env": args.name, "tasks": args.tasks, "holds": holds, "checks": checks}))
    return DONE if holds else NOT_DONE


def _recipe_to_show(name: str) -> Recipe:
    if own_recipe(name) is None:
        commands = [command for command in READS if " " not in command]
        _recipe_name(name, commands, "command or recipe")
    require_train("settings")
    return _recipe(name)


def _no_overrides(command: str, overrides: list[str], remedy: str = "leave it out") -> None:
    if overrides:
        raise ConfigError(f"agentq {command} takes no settings; got '{overrides[0]}': {remedy}")
