"""The command line. Parses, calls one function, turns agentq's errors into one line and an exit code.

Exit codes: 0 done, 1 a live task not done, 2 usage, bad input or missing extra, 130 interrupted (the same command goes
on, but for a live task).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import runpy
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from agentq import __version__
from agentq.config import Config, load, settings
from agentq.errors import AgentqError, ConfigError, did_you_mean, require
from agentq.live.options import add_arguments
from agentq.recipes.presets import DEMO, RECIPES

if TYPE_CHECKING:
    from agentq.evaluate.stats import RungResult
    from agentq.recipes.pipeline import Pipeline
    from agentq.recipes.recipe import Recipe

DONE, USAGE, INTERRUPTED = 0, 2, 130
SHORT = ("env", "seed", "out")  # of --run.*


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = _parser()
    args, overrides = parser.parse_known_args(argv)
    if args.command is None:
        parser.print_help()
        return USAGE
    given = {short: getattr(args, short) for short in SHORT} if "env" in args else {}
    overrides = [*overrides, *(f"--run.{short}={value}" for short, value in given.items() if value is not None)]
    try:
        return int(args.run(args, overrides))
    except AgentqError as error:
        print(f"agentq: {error}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        print(f"agentq: interrupted; go on with: agentq {' '.join(argv or sys.argv[1:])}", file=sys.stderr)
        return INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="agentq", description="Search, preferences and training for web agents.")
    parser.add_argument("--version", action="version", version=f"agentq {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, run, text in (
        (
            "demo",
            _demo,
            "the whole loop on a built-in site: base, RFT, Agent Q, search at test time; a table and a report",
        ),
        ("ladder", _ladder, "every rung of the paper's ladder on one environment; for hours, resumable"),
        ("train", _train, "train by a recipe: rounds of collecting and learning, then held-out tasks; resumable"),
        ("eval", _eval, "measure any checkpoint on held-out tasks; resumable"),
        ("run", _run, "do one task on a live site, by search within a budget; asks before what may not be undone"),
        ("base", _base, "make the embedded base model again, from its seed"),
        ("report", _report, "write report.html of a run directory"),
        ("settings", _settings, "list every setting with its default"),
    ):
        command = commands.add_parser(name, help=text, description=text, epilog="settings: --section.key value")
        command.set_defaults(run=run)
        command.add_argument("--json", action="store_true", help="print one JSON object as the result")
        if name == "train":
            command.add_argument(
                "recipe", metavar="RECIPE", help=f"a file that defines RECIPE, or one of {', '.join(RECIPES)}"
            )
        if name == "eval":
            command.add_argument(
                "checkpoint",
                metavar="CHECKPOINT",
                help="name or directory of a model, vllm:PATH, or http://HOST/v1#MODEL",
            )
            command.add_argument(
                "--search", action="store_true", help="with search at test time; the base is its critic"
            )
        if name in ("demo", "ladder", "train", "eval"):
            command.add_argument("--config", type=Path, help="a TOML file of settings")
            command.add_argument("--base", help="checkpoint to start from; default: the embedded base")
            for short in SHORT:
                command.add_argument(f"--{short}", help=f"short for --run.{short}")
            command.add_argument("--clean", action="store_true", help="delete an earlier run in the same directory")
        if name == "run":
            add_arguments(command)
        if name == "report":
            command.add_argument("path", type=Path, metavar="RUN", help="a run directory")
        if name == "base":
            command.add_argument("--out", type=Path, required=True, help="where the checkpoint goes")
    text = "serve an environment that lives in another Python"
    _add_serve(commands.add_parser("env", help=text, description=text))
    return parser


def _add_serve(command: argparse.ArgumentParser) -> None:
    text = "serve an environment until Ctrl-C; prints what --env takes"
    serve = command.add_subparsers(metavar="COMMAND", required=True).add_parser("serve", help=text, description=text)
    serve.set_defaults(run=_serve)
    serve.add_argument("--json", action="store_true", help="print one JSON object as the result")
    serve.add_argument("name", metavar="NAME", help="browsergym/TASK, or FILE.py:FUNCTION that makes your own")
    serve.add_argument(
        "--python", default=sys.executable, help="the Python that has the environment; default: this one"
    )
    serve.add_argument(
        "--at", default="127.0.0.1:7007", help="HOST:PORT or the path of a Unix socket; default: 127.0.0.1:7007"
    )
    serve.add_argument("--sessions", type=int, default=4, help="sessions at once, a process each; default: 4")
    serve.add_argument(
        "--idle", type=float, default=3600.0, help="seconds after which a silent session ends; default: 3600"
    )


def embedded_base() -> Path:
    """The checkpoint that comes with agentq."""
    return Path(__file__).parent / "models" / "base"


def _demo(args: argparse.Namespace, overrides: list[str]) -> int:
    return _climb(args, load(args.config, [*DEMO, *overrides]), demo=True)


def _ladder(args: argparse.Namespace, overrides: list[str]) -> int:
    return _climb(args, load(args.config, overrides), demo=False)


def _train(args: argparse.Namespace, overrides: list[str]) -> int:
    name = args.recipe.replace("-", "_")
    if not name.endswith(".py") and name not in RECIPES:
        raise ConfigError(f"no recipe '{args.recipe}'{did_you_mean(name, RECIPES)}")
    _use_threads()
    _require_train("train")
    recipe = _recipe_in(args.recipe) if name.endswith(".py") else import_module(f"agentq.recipes.{name}").RECIPE
    config = load(args.config, overrides, recipe.defaults)
    recipe.check(config)
    from agentq.recipes.rounds import train

    return _in_run(args, config, lambda p: train(p, recipe), recipe=recipe.name)


def _eval(args: argparse.Namespace, overrides: list[str]) -> int:
    _use_threads()
    from agentq.policies.names import read_name
    from agentq.policies.weights import fingerprint
    from agentq.recipes.measure import measure

    checkpoint, config = read_name(args.checkpoint), load(args.config, overrides)
    critic = read_name(args.base or "") if args.search else checkpoint
    if isinstance(checkpoint, Path) or isinstance(critic, Path):
        _require_train("eval")
    identity = {"checkpoint": fingerprint(checkpoint), "search": str(args.search)}
    return _in_run(args, config, lambda p: measure(p, checkpoint, search=args.search), **identity)


def _run(args: argparse.Namespace, overrides: list[str]) -> int:
    _use_threads()
    from agentq.live.command import run

    try:
        return run(args, overrides)
    except KeyboardInterrupt:
        print("agentq: interrupted", file=sys.stderr)
        return INTERRUPTED


def _recipe_in(file: str) -> Recipe:
    """What a file of the user's defines as RECIPE."""
    from agentq.recipes.recipe import Recipe

    if not Path(file).is_file():
        raise ConfigError(f"RECIPE must be a recipe's name or a Python file; got {file}, which is not there")
    found = runpy.run_path(file).get("RECIPE")
    if not isinstance(found, Recipe):
        raise ConfigError(f"{file} must define RECIPE, an agentq.recipes.recipe.Recipe; got {type(found).__name__}")
    return found


def _climb(args: argparse.Namespace, config: Config, *, demo: bool) -> int:
    _use_threads()
    _require_train(args.command)
    from agentq.recipes.ladder import DEMO_RUNGS, RUNGS, ladder

    return _in_run(args, config, lambda p: ladder(p, DEMO_RUNGS if demo else RUNGS))


def _in_run(
    args: argparse.Namespace, config: Config, work: Callable[[Pipeline], list[RungResult]], **identity: str
) -> int:
    """Do the work in the run directory, write the report and print the rows; `identity` joins the stored settings."""
    from agentq import envs
    from agentq.policies.names import read_name
    from agentq.progress import RichStatus, ladder_table, main_console
    from agentq.recipes.pipeline import Pipeline
    from agentq.report import write_report
    from agentq.store.run import RunStore

    envs.make(config.run.env)  # an unknown name is told before anything is written
    out, base = Path(config.run.out), read_name(args.base) if args.base else embedded_base()
    with (
        RunStore.open(out, config.to_dict() | identity, clean=args.clean) as store,
        RichStatus() as status,
        closing(Pipeline(store, config, base, status)) as pipeline,
    ):
        rows = work(pipeline)
    report = write_report(out)
    if args.json:
        print(json.dumps({"rungs": [row.to_dict() for row in rows], "report": str(report)}))
    else:
        console = main_console()
        console.print(ladder_table(rows))
        console.print(f"report: {report}", highlight=False)
    return DONE


def _base(args: argparse.Namespace, overrides: list[str]) -> int:
    _no_overrides(overrides)
    _use_threads()
    _require_train("base")
    from agentq.base.make import BaseSettings, make_base
    from agentq.progress import RichStatus

    s = BaseSettings()
    totals = {"pretrain": s.pretrain_tokens, "demonstrate": s.demonstration_tokens}
    with RichStatus() as status:
        shows = {stage: status.stage(stage, total, "tokens") for stage, total in totals.items()}
        make_base(args.out, s, on_step=lambda stage, m: shows[stage](int(m["tokens"]), f"loss {m['loss']:.3f}"))
    print(json.dumps({"checkpoint": str(args.out)}) if args.json else f"checkpoint: {args.out}")
    return DONE


def _report(args: argparse.Namespace, overrides: list[str]) -> int:
    _no_overrides(overrides)
    from agentq.report import write_report

    path = write_report(args.path)
    print(json.dumps({"report": str(path)}) if args.json else f"report: {path}")
    return DONE


def _settings(args: argparse.Namespace, overrides: list[str]) -> int:
    _no_overrides(overrides)
    if args.json:
        print(json.dumps({s.key: s.default for s in settings()}))
    else:
        for s in settings():
            print(f"--{s.key} {s.default}".ljust(44) + s.description)
    return DONE


def _serve(args: argparse.Namespace, overrides: list[str]) -> int:
    _no_overrides(overrides)
    from agentq.envs.remote.connection import Connection
    from agentq.envs.remote.server import EnvServer
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


def _require_train(command: str) -> None:
    for module in ("torch", "transformers"):
        require(module, extra="train", for_=f"agentq {command}")


def _no_overrides(overrides: list[str]) -> None:
    if overrides:
        raise ConfigError(f"this command takes no settings; got '{overrides[0]}'")


def _use_threads() -> None:
    """One math thread a process unless OMP_NUM_THREADS says otherwise: on small shared machines two fight."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")


if __name__ == "__main__":
    sys.exit(main())
