"""The commands: what each takes and does. Each imports what it needs, so that help and errors come at once."""

from __future__ import annotations

import json
import sys
from argparse import SUPPRESS, Namespace
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentq import __version__
from agentq.cli import DONE, NOT_DONE, REFUSED
from agentq.cli.parser import Argument, Subcommand, argument
from agentq.errors import ConfigError, did_you_mean
from agentq.live.options import LiveOptions

if TYPE_CHECKING:
    from agentq.recipes.load import Setting

Run = Callable[[Namespace], int]
COMMANDS: dict[str, Subcommand] = {}
JSON = argument("--json", action="store_true", help="print the result as one JSON object")
CONFIG = argument("--config", type=Path, metavar="FILE", help="TOML file of settings")
RUN = (  # of every command with a run directory
    CONFIG,
    argument("--base", metavar="MODEL", help="checkpoint to start from; default: the embedded base"),
    argument("--env", dest="run.env", default=SUPPRESS, metavar="NAME", help="short for --run.env"),
    argument("--seed", dest="run.seed", default=SUPPRESS, metavar="N", help="short for --run.seed"),
    argument("--out", dest="run.out", default=SUPPRESS, metavar="DIR", help="short for --run.out"),
    argument("--clean", action="store_true", help="delete an earlier run of this command in the directory"),
    JSON,
)


def run(words: Sequence[str]) -> int:
    """Run the command in `words`. Returns the exit code."""
    name = " ".join(words[: 2 if words[:1] == ["env"] else 1])
    if name in COMMANDS:
        command, rest = COMMANDS[name], searching(words[len(name.split()) :])
        if {"-h", "--help"} & set(rest):
            return _show_help(command, rest)
        return command.run(command.parse(rest))
    if name == "--version":
        print(f"agentq {__version__}")
        return DONE
    if name in ("", "env", "-h", "--help", "env -h", "env --help"):
        print("usage: agentq COMMAND ...\n\nSearch, preferences and training for web agents.\n\ncommands:")
        print("\n".join(f"  {c.name:<10} {c.about}" for c in COMMANDS.values()))
        print("\nagentq COMMAND --help shows what a command takes and which settings it reads.")
        return DONE if "-" in name else REFUSED
    known = [each.removeprefix("env ") for each in COMMANDS if each.startswith("env ") == name.startswith("env ")]
    raise ConfigError(f"no command '{name}'{did_you_mean(name.removeprefix('env '), known)}")


def _show_help(command: Subcommand, words: Sequence[str]) -> int:
    """Print what a command takes, and the settings that it or its recipe reads."""
    print(command.parser().format_help(), end="")
    name = command.name + " --search" * any(word.startswith("--search=") for word in words)
    if name == "train":
        name = "" if words[0].startswith("-") else words[0]
        print(end="" if name else "\nagentq train RECIPE --help lists the settings of a recipe.\n")
    if command.takes_settings and name not in ("", "settings"):
        from agentq.recipes.run import listing

        print("\nsettings, with their defaults:", *map(_line, listing(name)), sep="\n")
    return DONE


def searching(words: Sequence[str]) -> list[str]:
    """The words, with `--search` alone replaced by `--search=tree`."""
    return [
        f"{word}=tree" if word == "--search" and following not in ("tree", "step") else word
        for word, following in zip(words, [*words[1:], ""], strict=False)
    ]


def command(name: str, about: str, *arguments: Argument, settings: bool = False) -> Callable[[Run], Run]:
    """Registers a function as a command."""

    def register(run: Run) -> Run:
        COMMANDS[name] = Subcommand(name, about, arguments, settings, run)
        return run

    return register


def _say(args: Namespace, result: dict[str, Any], text: str) -> int:
    """Print the result: as JSON, or as text."""
    print(json.dumps(result) if args.json else text, flush=True)
    return DONE


RECIPE = argument("recipe", metavar="RECIPE", help="name of a recipe, or a Python file that defines RECIPE")
MODEL = "name or directory of a model, vllm:PATH, or http://HOST/v1#MODEL"
CHECKPOINT = argument("checkpoint", metavar="CHECKPOINT", help=MODEL)
SEARCHED = "search once per task (tree, the default) or before each step; the critic is the base"
SEARCH = argument("--search", metavar="tree|step", choices=("tree", "step"), help=SEARCHED)


@command("eval", "measure a checkpoint on held-out tasks; resumable", CHECKPOINT, SEARCH, *RUN, settings=True)
@command("train", "train by a recipe and measure the result; resumable", RECIPE, *RUN, settings=True)
@command("ladder", "train and measure every rung of the paper's ladder; takes hours, resumable", *RUN, settings=True)
@command("demo", "run the whole loop on a built-in site, and write a table and a report", *RUN, settings=True)
def measured(args: Namespace) -> int:
    from agentq.recipes import run

    inputs = run.Inputs(args.settings, args.config, args.base, args.clean)
    if args.command == "train":
        result = run.train(args.recipe, inputs)
    elif args.command == "eval":
        result = run.evaluate(args.checkpoint, args.search, inputs)
    else:
        result = run.ladder(args.command, inputs)
    if not args.json:
        from agentq.progress import ladder_table, main_console

        main_console().print(ladder_table(result.rows))
    rows = [row.to_dict() for row in result.rows]
    return _say(args, {"rungs": rows, "report": str(result.report)}, f"report: {result.report}")


GOAL = argument("goal", metavar="GOAL", help="what the agent should do, in quotes")
LIVE = [argument(f"--{f.name.replace('_', '-')}", default=SUPPRESS, **f.metadata) for f in fields(LiveOptions)]


@command("run", "do one task on a live site; asks before each effect", GOAL, *LIVE, settings=True)
def run_live(args: Namespace) -> int:
    from agentq.recipes.load import load
    from agentq.recipes.settings import Live

    options = LiveOptions(**{f.name: getattr(args, f.name) for f in fields(LiveOptions) if f.name in args})
    settings = load(Live, "run", options.config, args.settings)
    options.check(settings.price)
    from agentq.live.command import run

    return run(args.goal, options, settings)


NEW = argument("--out", type=Path, required=True, metavar="DIR", help="where to write the checkpoint")
DEVICE = argument(
    "--device", default="auto", metavar="NAME", help="where to train: auto (a GPU, else the CPU), cpu, cuda"
)


@command("base", "make the embedded base model again, from its seed", NEW, DEVICE, JSON)
def base(args: Namespace) -> int:
    from agentq.recipes.run import require_train

    out = args.out
    held = sorted(entry.name for entry in out.iterdir()) if out.is_dir() else []
    if (out.exists() and not out.is_dir()) or (held and not (out / "pretrained").is_dir()):
        what = f"which holds {held[0]}" if held else "a file"
        raise ConfigError(f"--out must be a new directory, or one that agentq base made; got {out}, {what}")
    require_train("base")
    from agentq.base.make import BaseSettings, make_base
    from agentq.policies.placement import one_device
    from agentq.progress import RichStatus

    device = one_device(args.device, "--device", instead="the base is small")

    s = BaseSettings()
    totals = {"pretrain": s.pretrain_tokens, "demonstrate": s.demonstration_tokens}
    with RichStatus() as status:
        shows = {stage: status.stage(stage, total, "tokens") for stage, total in totals.items()}
        make_base(
            out, s, device=device, on_step=lambda stage, m: shows[stage](int(m["tokens"]), f"loss {m['loss']:.3f}")
        )
    return _say(args, {"checkpoint": str(out)}, f"checkpoint: {out}")


DIRECTORY = argument("run", type=Path, metavar="RUN", help="a run directory")
PAGE = argument("--out", type=Path, metavar="FILE", help="where to write the page; default: RUN/report.html")


@command("report", "write the report of a run directory", DIRECTORY, PAGE, JSON)
def report(args: Namespace) -> int:
    from agentq.report import write_report

    path = write_report(args.run, args.out)
    return _say(args, {"report": str(path)}, f"report: {path}")


VIEWED = argument("runs", nargs="+", type=Path, metavar="RUN", help="run directories; several are compared")
VIEW = argument("--out", type=Path, metavar="FILE", help="where to write the page; default: RUN/view.html")
LIVE_VIEW = argument("--live", action="store_true", help="serve the page on 127.0.0.1 until Ctrl-C instead")
PORT = argument("--port", type=int, default=0, metavar="N", help="port of --live; default: any that is free")


@command("view", "write a page that shows every tree and episode of a run", VIEWED, VIEW, LIVE_VIEW, PORT, JSON)
def view(args: Namespace) -> int:
    if args.live and args.out is not None:
        raise ConfigError("--live writes no file; leave out --out")
    from agentq.progress import until_interrupted
    from agentq.viewer import ViewServer, write_view

    if not args.live:
        path = write_view(args.runs, args.out)
        return _say(args, {"view": str(path)}, f"view: {path}")
    with ViewServer(args.runs, args.port) as server:
        _say(args, {"view": server.url}, f"view: {server.url} (Ctrl-C ends)")
        until_interrupted()
    return DONE


FORMATS = ("trl-preference", "trl-prompt-completion", "sharegpt", "parquet")
FORMAT = argument("--format", required=True, metavar="FORMAT", choices=FORMATS, help=" | ".join(FORMATS))
STAGE = argument("--stage", metavar="STAGE", help="the only stage to read; default: those that training reads")
FILE = argument("--out", type=Path, required=True, metavar="FILE", help="where to write the rows")


@command("export", "write what a run holds for other libraries", DIRECTORY, FORMAT, FILE, STAGE, JSON)
def export_run(args: Namespace) -> int:
    from agentq.export import export

    rows = export(args.run, args.format, args.out, args.stage)
    return _say(args, {"export": str(args.out), "rows": rows}, f"{rows} rows: {args.out}")


SHARDS = argument("runs", nargs="+", type=Path, metavar="RUN", help="directories of all shards of one run")
MERGED = argument("--out", type=Path, required=True, metavar="DIR", help="the directory of the run to make")


@command("merge", "make one run of its shards (--run.shard)", SHARDS, MERGED, JSON)
def merge(args: Namespace) -> int:
    from agentq.store.merge import merge

    count = merge(args.runs, args.out)
    text = f"{count} trees and episodes: {args.out}; the shards' command without --run.shard continues it"
    return _say(args, {"run": str(args.out), "records": count}, text)


NAME = argument("name", nargs="?", metavar="NAME", help="demo, ladder, eval, run, or a recipe; default: all of them")


@command("settings", "list the settings of a command or recipe, with defaults", NAME, CONFIG, JSON, settings=True)
def show_settings(args: Namespace) -> int:
    from agentq.recipes.run import listing

    rows = listing(args.name, args.config, args.settings)
    return _say(args, {s.key: s.default for s in rows}, "\n".join(map(_line, rows)))


def _line(s: Setting) -> str:
    return f"{f'--{s.key} {s.default}':<43} {s.description}"


SERVED = argument("name", metavar="NAME", help="browsergym/TASK, or FILE.py:FUNCTION for your own environment")
SERVER = (
    argument("--python", default=sys.executable, metavar="PATH", help="Python that has the environment; default: this"),
    argument("--at", default="127.0.0.1:7007", metavar="ADDRESS", help="HOST:PORT or a socket; default: %(default)s"),
    argument("--sessions", type=int, default=4, metavar="N", help="sessions, one process each; default: %(default)s"),
    argument("--idle", type=float, default=3600, metavar="SECONDS", help="silent sessions end; default: %(default)s"),
)


@command("env serve", "serve an environment until Ctrl-C; prints what --env takes", SERVED, *SERVER, JSON)
def serve(args: Namespace) -> int:
    from agentq.envs.remote.connection import Connection
    from agentq.envs.remote.env_server import EnvServer
    from agentq.envs.remote.token import VARIABLE
    from agentq.progress import until_interrupted

    with EnvServer(args.name, args.python, args.at, args.sessions, args.idle) as server:
        first = Connection(server.at)
        served = f"{first.hello.name}@{server.at}"
        first.hang_up()
        file = str(server.token.file) if server.token is not None and server.token.file is not None else None
        more = f"\nfrom another machine or user: {VARIABLE}=$(cat {file})" if file else ""
        _say(args, {"env": served, "token_file": file}, f"--env {served}{more}")
        until_interrupted()
    return DONE


CHECKED = argument("name", metavar="NAME", help="what --env takes, such as FILE.py:FUNCTION")
TASKS = argument("--tasks", type=int, default=5, metavar="N", help="training tasks to check on; default: %(default)s")


@command("env check", "check what search relies on; exit code 1 if it does not hold", CHECKED, TASKS, JSON)
def check(args: Namespace) -> int:
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


EXAMINED = argument("model", nargs="?", metavar="MODEL", help=f"{MODEL}; default: the embedded base")
SITE = argument("--env", default="booking", metavar="NAME", help="environment to examine; default: %(default)s")


@command(
    "doctor", "examine this machine, a model and an environment; exit code 1 if a check fails", EXAMINED, SITE, JSON
)
def doctor(args: Namespace) -> int:
    from agentq.doctor.checks import examine
    from agentq.policies.engine_names import embedded_base, read_name
    from agentq.progress import show_diagnosis

    model, rows = read_name(args.model) if args.model else embedded_base(), []
    for name, diagnosis in examine(model, args.env):
        rows.append({"check": name, **asdict(diagnosis)})
        if not args.json:
            show_diagnosis(name, diagnosis)
    healthy = all(row["verdict"] != "fail" for row in rows)
    if args.json:
        print(json.dumps({"model": str(model), "env": args.env, "healthy": healthy, "checks": rows}))
    return DONE if healthy else NOT_DONE
