"""Commands that look: settings, envs, env serve, env check, doctor."""

from __future__ import annotations

import socket
import sys
from argparse import Namespace
from dataclasses import asdict

from agentq.cli import DONE, NOT_DONE
from agentq.cli.parser import CONFIG, JSON, MODEL, argument, command, say, setting_line
from agentq.errors import ConfigError

NAME = argument("name", nargs="?", metavar="COMMAND", help="demo, ladder, train, eval, run, or a recipe; default: all")
EVERY = (
    "every setting, with its default in agentq demo, or else in the first command or recipe that reads it; "
    "agentq settings COMMAND lists those of a command or recipe"
)
OF = argument("recipe", nargs="?", metavar="RECIPE", help="the recipe of train")


@command("settings", "list the settings of a command or recipe, with defaults", NAME, OF, CONFIG, JSON, settings=True)
def show_settings(args: Namespace) -> int:
    from agentq.recipes.find import listing

    if args.name == "train" and args.recipe is None:
        raise ConfigError("agentq settings train must be followed by a recipe, as in agentq settings train loop")
    if args.name != "train" and args.recipe is not None:
        raise ConfigError(f"agentq settings {args.name} takes no '{args.recipe}'; only train has a recipe")
    rows = listing(args.recipe or args.name, args.config, args.settings)
    lines = [] if args.name else [EVERY]
    return say(args, {s.key: s.default for s in rows}, "\n".join([*lines, *map(setting_line, rows)]))


FAMILY = argument(
    "family", nargs="?", default="", metavar="FAMILY", help="apps, chromium, miniwob or suite: all its names"
)


@command("envs", "list the environments that --env takes", FAMILY, JSON)
def list_envs(args: Namespace) -> int:
    from agentq import envs

    found = dict.fromkeys(envs.names(args.family), "") if args.family else envs.forms()
    return say(args, {"envs": list(found)}, "\n".join(f"{name:<20}{about}".rstrip() for name, about in found.items()))


SERVED = argument("name", metavar="NAME", help="browsergym/TASK, textworld/SIZE, alfworld/SPLIT, or FILE.py:FUNCTION")
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
        more = f"\nanother user: set {VARIABLE} to the word in {file}" if file else ""
        if (port := server.at.removeprefix("0.0.0.0:")) != server.at:
            there = f"--env {first.hello.name}@{socket.gethostname()}:{port}"
            more += f"\nanother machine: {'the same, and ' if file else ''}{there}"
        with until_interrupted():
            say(args, {"env": served, "token_file": file}, f"--env {served}{more}")
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
        say(args, {"env": args.name, "tasks": args.tasks, "holds": holds, "checks": checks}, "")
    return DONE if holds else NOT_DONE


EXAMINED = argument("model", nargs="?", metavar="MODEL", help=f"{MODEL}; default: the embedded base")
SITE = argument("--env", default="booking", metavar="NAME", help="environment to examine; default: %(default)s")


@command(
    "doctor",
    "examine this machine, a model and an environment; exit code 1 if a check fails",
    *(EXAMINED, SITE, JSON),
    settings=True,
)
def doctor(args: Namespace) -> int:
    from agentq.doctor.checks import examine
    from agentq.policies.engine_names import embedded_base, read_name
    from agentq.progress import show_diagnosis
    from agentq.recipes.load import load
    from agentq.recipes.settings import Examined

    model, rows = read_name(args.model) if args.model else embedded_base(), []
    s = load(Examined, "doctor", given=args.settings)
    for name, diagnosis in examine(model, args.env, settings=s.model, vllm=dict(s.vllm)):
        rows.append({"check": name, **asdict(diagnosis)})
        if not args.json:
            show_diagnosis(name, diagnosis)
    healthy = all(row["verdict"] != "fail" for row in rows)
    if args.json:
        say(args, {"model": str(model), "env": args.env, "healthy": healthy, "checks": rows}, "")
    return DONE if healthy else NOT_DONE
