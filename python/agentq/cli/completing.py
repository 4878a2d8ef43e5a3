"""Shell completion: `agentq completion bash` prints a script, which asks `agentq _words` for what may come next."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

from agentq.cli import DONE
from agentq.cli.parser import COMMANDS, argument, command
from agentq.errors import ConfigError

BASH = """_agentq() {
    local IFS=$'\\n'
    local words="$(agentq _words "${COMP_WORDS[@]:1:COMP_CWORD-1}" 2>/dev/null)"
    COMPREPLY=($(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _agentq agentq
"""
SCRIPTS = {
    "bash": BASH,
    "zsh": f"autoload -U +X bashcompinit && bashcompinit\n{BASH}",
    "fish": "complete -c agentq -a '(agentq _words (commandline -opc)[2..] 2>/dev/null)'\n",
}
SHELL = argument("shell", metavar="SHELL", choices=tuple(SCRIPTS), help=" | ".join(SCRIPTS))


@command("completion", "print a script that completes commands, options and settings in a shell", SHELL)
def completion(args: Namespace) -> int:
    print(SCRIPTS[args.shell], end="")
    return DONE


def candidates(words: Sequence[str]) -> list[str]:
    """What may follow these words of a command line, besides file names."""
    from agentq.recipes.settings import RECIPES

    if not words:
        return list(dict.fromkeys(name.partition(" ")[0] for name in COMMANDS))
    if list(words) == ["env"]:
        return [name.partition(" ")[2] for name in COMMANDS if name.startswith("env ")]
    name = " ".join(words[: 2 if words[0] == "env" else 1])
    if name not in COMMANDS:
        return []
    if words[-1] in ("--env", "--run.env"):
        from agentq import envs

        return [*envs.names(), *envs.names("chromium")]
    if words[-1].startswith("--") and "." in words[-1] and "=" not in words[-1]:
        return []  # the value of a setting
    made = COMMANDS[name]
    for names, said in made.arguments:
        if words[-1] in names and said.get("action") != "store_true":
            return list(map(str, said.get("choices", ())))
    following = {
        "train": [*RECIPES],
        "settings": [*RECIPES, "demo", "ladder", "eval", "run", "train"],
        "settings train": [*RECIPES],
    }
    first = following.get(" ".join(words), [])
    first += [str(choice) for names, said in made.arguments if names[0][0] != "-" for choice in said.get("choices", ())]
    options = [option for names, _ in made.arguments for option in names if option.startswith("--")]
    return [*first, *options, *(_settings(words) if made.takes_settings else ())]


def _settings(words: Sequence[str]) -> list[str]:
    """The settings that the command, or its recipe, reads."""
    from agentq.recipes.find import listing

    name = words[1] if words[0] in ("train", "settings") and len(words) > 1 else words[0]
    try:
        return [f"--{setting.key}" for setting in listing(name)]
    except ConfigError:
        return []
