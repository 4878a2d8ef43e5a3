"""Reads the words of a command: argparse for its own arguments, `--section.key value` for settings."""

from __future__ import annotations

import re
import shlex
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from agentq.cli import DONE
from agentq.errors import ConfigError, did_you_mean
from agentq.output import print_json

if TYPE_CHECKING:
    from agentq.recipes.load import Setting

Run = Callable[[Namespace], int]
Argument = tuple[tuple[str, ...], dict[str, Any]]


def argument(*names: str, **words: Any) -> Argument:
    """An argument of a command, in the words of `ArgumentParser.add_argument`."""
    return names, words


class Subcommand(NamedTuple):
    """A command: the line about it in the help, its arguments, and the function that runs it."""

    name: str
    about: str
    arguments: Iterable[Argument]
    takes_settings: bool
    run: Callable[[Namespace], int]

    def parse(self, words: Sequence[str]) -> Namespace:
        """The arguments, with `settings` by section and name. Raises ConfigError if a word is wrong."""
        given, rest = _split(words)
        args, unknown = self.parser().parse_known_intermixed_args(rest)
        given |= {key: value for key, value in vars(args).items() if "." in key}  # --env is short for --run.env
        args.command, args.settings = self.name, {}
        for key, value in given.items():
            section, _, name = key.partition(".")
            args.settings.setdefault(section, {})[name] = value
        called = f"agentq {self.name}"
        if unknown and unknown[0].startswith("-"):
            options = [name for names, _ in self.arguments for name in names if name.startswith("-")]
            option = unknown[0].partition("=")[0]
            meant = self._meant(option, vars(args).get("recipe")) or did_you_mean(option, options)
            raise ConfigError(f"no option {option} of {called}{meant}")
        if unknown and self.takes_settings:
            raise ConfigError(f"command line: settings must be written --section.key value; got '{unknown[0]}'")
        if unknown:
            raise ConfigError(f"{called} takes no '{unknown[0]}'; {called} --help says what it takes")
        if given and not self.takes_settings:
            raise ConfigError(f"{called} takes no settings; got '--{next(iter(given))}': leave it out")
        return args

    def _meant(self, option: str, recipe: str | None) -> str:
        """`; did you mean --run.num_tasks?` for an option that is or resembles a setting's name; else nothing."""
        if not self.takes_settings:
            return ""
        from agentq.config import SYNONYMS
        from agentq.recipes.find import listing
        from agentq.recipes.settings import COMMANDS as READ

        name = option.lstrip("-").replace("-", "_")
        command = f"{self.name} {recipe}" if recipe else self.name
        keys = {f"--{s.key}": s.key.partition(".")[2] for s in listing(command if command in READ else None)}
        found = [key for key, own in keys.items() if own in (name, f"num_{name}", SYNONYMS.get(name))]
        found = found or [key for key, own in keys.items() if len(name) > 3 and name in own]
        return f"; did you mean {' or '.join(found)}?" if 0 < len(found) <= 3 else ""

    def parser(self) -> ArgumentParser:
        """The parser of the command's own arguments."""
        about = self.about[0].upper() + self.about[1:]
        parser = _Parser(f"agentq {self.name}", description=f"{about}.", allow_abbrev=False)
        for names, words in self.arguments:
            parser.add_argument(*names, **words)
        if self.takes_settings:
            parser.usage = f"{parser.format_usage().removeprefix('usage: ').rstrip()} [--SECTION.KEY VALUE ...]"
        return parser


COMMANDS: dict[str, Subcommand] = {}
JSON = argument("--json", action="store_true", help="print the result as one JSON object")
CONFIG = argument("--config", type=Path, metavar="FILE", help="TOML file of settings")
MODEL = "name or directory of a model, embedded, vllm:PATH, or http://HOST/v1#MODEL"


def go_on(run: Path) -> str:
    """The line that goes on with a run."""
    return shlex.join(["agentq", "resume", str(run)])


def command(name: str, about: str, *arguments: Argument, settings: bool = False) -> Callable[[Run], Run]:
    """Registers a function as a command."""

    def register(run: Run) -> Run:
        COMMANDS[name] = Subcommand(name, about, arguments, settings, run)
        return run

    return register


def say(args: Namespace, result: dict[str, Any], text: str) -> int:
    """Print the result: as JSON, or as text. Returns the exit code."""
    if args.json:
        print_json(result)
    else:
        print(text, flush=True)
    return DONE


def setting_line(s: Setting) -> str:
    """A setting in a list of settings."""
    return f"{f'--{s.key} {s.default}':<43} {s.description}"


def _split(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The values of `--section.key value` and `--section.key=value` by key, and the other words."""
    given, rest, left = {}, [], iter(words)
    for word in left:
        key, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--") or "." not in key:
            rest.append(word)
            continue
        if key.count(".") > 1:
            raise ConfigError(f"command line: settings must be written --section.key value; got '--{key}'")
        if not equals and (value := next(left, "--")).startswith("--"):
            raise ConfigError(f"command line: --{key} must be followed by a value; got nothing")
        given[key] = value
    return given, rest


class _Parser(ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Raises ConfigError in place of argparse's message and exit."""
        name, _, said = message.removeprefix("argument ").partition(": ")
        value = said.rpartition(": ")[2]
        if name == "the following arguments are required":
            raise ConfigError(f"{said} must be given; {self.prog} --help says what it takes")
        if said.startswith("expected"):
            raise ConfigError(f"command line: {name} must be followed by a value; got nothing")
        if said.startswith(("invalid int", "invalid float")):
            raise ConfigError(f"{name} must be a number; got {value}")
        if said.startswith("invalid choice"):
            given, _, choices = said.removeprefix("invalid choice: ").partition(" (choose from ")
            raise ConfigError(f"{name} must be {' or '.join(re.findall('[a-z-]+', choices))}; got {given}")
        raise ConfigError(f"{name}: {said}")
