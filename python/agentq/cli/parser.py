"""The words of the command line."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from agentq import __version__
from agentq.cli import REFUSED, commands
from agentq.errors import ConfigError, did_you_mean
from agentq.live.options import add_arguments
from agentq.recipes.presets import RECIPES

SHORT = ("env", "seed", "out")  # of --run.*
SEARCHES = ("tree", "step")  # of eval --search; alone it is the first
COMMANDS = {
    "demo": (
        commands.demo,
        "the whole loop on a built-in site: base, RFT, Agent Q, search at test time; a table and a report",
    ),
    "ladder": (commands.ladder, "every rung of the paper's ladder on one environment; for hours, resumable"),
    "train": (commands.train, "train by a recipe: rounds of collecting and learning, then held-out tasks; resumable"),
    "eval": (commands.evaluate, "measure any checkpoint on held-out tasks; resumable"),
    "run": (commands.run, "do one task on a live site, by search within a budget; asks before what may not be undone"),
    "base": (commands.base, "make the embedded base model again, from its seed"),
    "report": (commands.report, "write report.html of a run directory"),
    "settings": (commands.show_settings, "list every setting with its default, or those of one command or recipe"),
}


class _Parser(argparse.ArgumentParser):
    """Takes no abbreviated options; raises ConfigError for wrong usage."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)

    def error(self, message: str) -> NoReturn:
        """One line in place of argparse's several."""
        raise ConfigError(f"{message}; {self.prog} --help says what it takes")


def parse(words: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """The command's arguments, `run` among them, which does it, and the words of its settings.

    Raises:
        ConfigError: for wrong usage.
    """
    parser = _parser()
    _check_choice(words[:1], [*COMMANDS, "env"])
    if words[:1] == ["env"]:
        _check_choice(words[1:2], ["serve", "check"], "env ")
    settings, others = _split_settings(words)
    args, unknown = parser.parse_known_args(others)
    if args.command is None:
        parser.print_help()
        raise SystemExit(REFUSED)
    given = {short: getattr(args, short) for short in SHORT} if "env" in args else {}
    return args, [
        *settings,
        *unknown,
        *(f"--run.{short}={value}" for short, value in given.items() if value is not None),
    ]


def _split_settings(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words of settings, `--section.key value` or `--section.key=value`, and the others, which argparse reads."""
    settings: list[str] = []
    others: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--search":
            word += f"={rest.pop(0) if rest and rest[0] in SEARCHES else SEARCHES[0]}"
        is_setting = re.match(r"--\w+\.\w", word)
        (settings if is_setting else others).append(word)
        if is_setting and "=" not in word and rest and not rest[0].startswith("--"):
            settings.append(rest.pop(0))
    return settings, others


def _check_choice(word: Sequence[str], known: Sequence[str], of: str = "") -> None:
    if word and not word[0].startswith("-") and word[0] not in known:
        raise ConfigError(f"no command '{of}{word[0]}'{did_you_mean(word[0], known)}")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="agentq", description="Search, preferences and training for web agents.")
    parser.add_argument("--version", action="version", version=f"agentq {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND")
    epilog = "settings: --section.key value; agentq settings lists them"
    for name, (run, text) in COMMANDS.items():
        command = subparsers.add_parser(name, help=text, description=text, epilog=epilog)
        command.set_defaults(run=run)
        command.add_argument("--json", action="store_true", help="print one JSON object as the result")
        _add_arguments(name, command)
    text = "serve an environment that lives in another Python, or check one"
    env = subparsers.add_parser("env", help=text, description=text).add_subparsers(metavar="COMMAND", required=True)
    _add_serve(env)
    _add_check(env)
    return parser


def _add_arguments(name: str, command: argparse.ArgumentParser) -> None:
    if name == "train":
        text = f"a file that defines RECIPE, or one of {', '.join(RECIPES)}"
        command.add_argument("recipe", metavar="RECIPE", help=text)
    if name == "eval":
        text = "name or directory of a model, vllm:PATH, or http://HOST/v1#MODEL"
        command.add_argument("checkpoint", metavar="CHECKPOINT", help=text)
        text = "search at test time: of the whole task, or before each step; the base is its critic"
        command.add_argument("--search", choices=SEARCHES, metavar=f"[{'|'.join(SEARCHES)}]", help=text)
    if name in ("demo", "ladder", "train", "eval"):
        command.add_argument("--config", type=Path, help="a TOML file of settings")
        command.add_argument("--base", help="checkpoint to start from; default: the embedded base")
        for short in SHORT:
            command.add_argument(f"--{short}", help=f"short for --run.{short}")
        command.add_argument(
            "--clean", action="store_true", help="delete an earlier run of this command in the directory"
        )
    if name == "run":
        add_arguments(command)
    if name == "report":
        command.add_argument("path", type=Path, metavar="RUN", help="a run directory")
        command.add_argument("--out", type=Path, metavar="FILE", help="where the page goes; default: RUN/report.html")
    if name == "base":
        command.add_argument("--out", type=Path, required=True, help="where the checkpoint goes")
    if name == "settings":
        text = "demo, ladder, eval, run, or a recipe: what it reads, with its defaults and the settings given"
        command.add_argument("name", metavar="NAME", nargs="?", help=text)
        command.add_argument("--config", type=Path, help="a TOML file of settings")


def _add_serve(commands_of_env: Any) -> None:
    text = "serve an environment until Ctrl-C; prints what --env takes"
    serve = commands_of_env.add_parser("serve", help=text, description=text)
    serve.set_defaults(run=commands.serve)
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


def _add_check(commands_of_env: Any) -> None:
    text = "hold an environment to what search relies on: a line per promise; exit code 1 if one is broken"
    check = commands_of_env.add_parser("check", help=text, description=text)
    check.set_defaults(run=commands.check)
    check.add_argument("--json", action="store_true", help="print one JSON object as the result")
    check.add_argument("name", metavar="NAME", help="what --env takes, such as FILE.py:FUNCTION of your own")
    check.add_argument("--tasks", type=int, default=5, help="training tasks to check it on; default: 5")
