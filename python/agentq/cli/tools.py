"""Commands that look: settings, env serve, env check, doctor."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from dataclasses import asdict

from agentq.cli import DONE, NOT_DONE
from agentq.cli.parser import CONFIG, JSON, MODEL, argument, command, say, setting_line
from agentq.errors import ConfigError

NAME = argument("name", nargs="?", metavar="NAME", help="demo, ladder, eval, run, or a recipe; default: all of them")


@command("settings", "list the settings of a command or recipe, with defaults", NAME, CONFIG, JSON, settings=True)
def show_settings(args: Namespace) -> int:
    from agentq.recipes.run import listing

    rows = listing(args.name, args.config, args.settings)
    return say(args, {s.key: s.default for s in rows}, "\n".join(map(setting_line, rows)))


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
        say(args, {"env": served, "token_file": file}, f"--env {served}{more}")
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
