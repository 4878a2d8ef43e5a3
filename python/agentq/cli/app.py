"""Finds the command in the words and runs it, or shows its help."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

from agentq.cli import DONE, REFUSED, learning, records, tools  # noqa: F401  they register their commands in this order
from agentq.cli.completing import candidates
from agentq.cli.parser import COMMANDS, Subcommand, setting_line
from agentq.errors import ConfigError, did_you_mean
from agentq.output import json_alone


def run(words: Sequence[str]) -> int:
    """Run the command in `words`. Returns the exit code."""
    name = " ".join(words[: 2 if words[:1] == ["env"] else 1])
    if name in COMMANDS:
        command, rest = COMMANDS[name], searching(words[len(name.split()) :])
        if {"-h", "--help"} & set(rest):
            return _show_help(command, rest)
        with json_alone() if "--json" in rest else nullcontext():
            return command.run(command.parse(rest))
    if name == "_words":  # what a shell's completion asks
        print(*candidates(words[1:]), sep="\n")
        return DONE
    if name == "--version":
        from agentq import __version__

        print(f"agentq {__version__}")
        return DONE
    if name in ("", "env", "-h", "--help", "env -h", "env --help"):
        print("usage: agentq COMMAND ...\n\nSearch, preferences and training for language-model agents.\n\ncommands:")
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
    if command.takes_settings and name not in ("", "settings", "resume", "fork"):
        from agentq.recipes.find import listing

        print("\nsettings, with their defaults:", *map(setting_line, listing(name)), sep="\n")
    return DONE


def searching(words: Sequence[str]) -> list[str]:
    """The words, with `--search` alone replaced by `--search=tree`."""
    return [
        f"{word}=tree" if word == "--search" and following not in ("tree", "step") else word
        for word, following in zip(words, [*words[1:], ""], strict=False)
    ]
