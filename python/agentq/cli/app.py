"""The commands. Each is a function that imports what it needs."""

from __future__ import annotations

import json as json_
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter

from agentq import __version__
from agentq.cli import DONE, INTERRUPTED, NOT_DONE
from agentq.live.options import LiveOptions

if TYPE_CHECKING:
    from agentq.recipes.run import Result, RunPlace

app = App(
    name="agentq",
    help="Search, preferences and training for web agents.",
    help_epilogue="settings: --section.key value; agentq settings lists them",
    version=f"agentq {__version__}",
    help_format="plaintext",
    help_formatter="plain",
    default_parameter=Parameter(negative=(), allow_repeating=True, name_transform=lambda name: name.replace("_", "-")),
    result_action="return_value",
    suppress_keyboard_interrupt=False,
)
env = App(name="env", help="serve an environment of another Python, or check one")
app.command(env)

Settings = Annotated[dict[str, str], Parameter(show=False)]
Json = Annotated[bool, Parameter(help="print one JSON object as the result")]
File = Annotated[Path | None, Parameter(help="a TOML file of settings")]


def _short(setting: str) -> Parameter:
    return Parameter(help=f"short for --{setting}")


@Parameter(name="*")
@dataclass(frozen=True)
class RunOptions:
    """Options of every command with a run directory."""

    config: File = None
    base: Annotated[str | None, Parameter(help="checkpoint to start from; default: the embedded base")] = None
    env: Annotated[str | None, _short("run.env")] = None
    seed: Annotated[str | None, _short("run.seed")] = None
    out: Annotated[str | None, _short("run.out")] = None
    clean: Annotated[bool, Parameter(help="delete an earlier run of this command in the directory")] = False
    json: Json = False

    def given(self, settings: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
        """The settings, including those given by their short options."""
        short = {name: value for name in ("env", "seed", "out") if (value := getattr(self, name)) is not None}
        return {**settings, "run": {**settings.get("run", {}), **short}}

    def place(self) -> RunPlace:
        """The other options, for `recipes.run`."""
        from agentq.recipes.run import RunPlace

        return RunPlace(self.base, self.config, self.clean)

    def show(self, result: Result) -> int:
        """Print the rows of a run."""
        if self.json:
            rows = [row.to_dict() for row in result.rows]
            print(json_.dumps({"rungs": rows, "report": str(result.report)}))
            return DONE
        from agentq.progress import ladder_table, main_console

        console = main_console()
        console.print(ladder_table(result.rows))
        console.print(f"report: {result.report}", highlight=False)
        return DONE


@app.command
def demo(*, options: RunOptions = RunOptions(), **settings: Settings) -> int:
    """the whole loop on a built-in site, with a table and a report"""
    from agentq.recipes.run import ladder
    from agentq.recipes.settings import Demo

    return options.show(ladder(Demo, options.given(settings), options.place()))


@app.command
def ladder(*, options: RunOptions = RunOptions(), **settings: Settings) -> int:
    """every rung of the paper's ladder; takes hours, resumable"""
    from agentq.recipes.run import ladder
    from agentq.recipes.settings import Ladder

    return options.show(ladder(Ladder, options.given(settings), options.place()))


@app.command
def train(
    recipe: Annotated[str, Parameter(help="a recipe's name (agentq settings NAME), or a file that defines RECIPE")],
    /,
    *,
    options: RunOptions = RunOptions(),
    **settings: Settings,
) -> int:
    """train by a recipe and measure the result; resumable"""
    from agentq.recipes.run import train

    return options.show(train(recipe, options.given(settings), options.place()))


SEARCH = "search at test time: of the whole task, or before each step; the base is its critic"


@app.command(name="eval")
def evaluate(
    checkpoint: Annotated[str, Parameter(help="name or directory of a model, vllm:PATH, or http://HOST/v1#MODEL")],
    /,
    *,
    search_by: Annotated[  # not `search`: a section of settings has that name
        Literal["tree", "step"] | None, Parameter("--search", help=SEARCH, metavar="[tree|step]", accepts_keys=False)
    ] = None,
    options: RunOptions = RunOptions(),
    **settings: Settings,
) -> int:
    """measure any checkpoint on held-out tasks; resumable"""
    from agentq.recipes.run import evaluate

    return options.show(evaluate(checkpoint, search_by, options.given(settings), options.place()))


@app.command
def run(
    goal: Annotated[str, Parameter(help="what is to be done, in quotes")],
    /,
    *,
    options: LiveOptions,
    **settings: Settings,
) -> int:
    """do one task on a live site; asks before each effect"""
    from agentq.live.command import run
    from agentq.recipes.load import load
    from agentq.recipes.settings import Live

    try:
        return run(goal, options, load(Live, "run", options.config, settings))
    except KeyboardInterrupt:
        print("agentq: interrupted", file=sys.stderr)
        return INTERRUPTED


@app.command
def base(*, out: Annotated[Path, Parameter(help="where the checkpoint goes")], json: Json = False) -> int:
    """make the embedded base model again, from its seed"""
    from agentq.cli.commands import check_new_base
    from agentq.recipes.run import require_train

    check_new_base(out)
    require_train("base")
    from agentq.base.make import BaseSettings, make_base
    from agentq.progress import RichStatus

    s = BaseSettings()
    totals = {"pretrain": s.pretrain_tokens, "demonstrate": s.demonstration_tokens}
    with RichStatus() as status:
        shows = {stage: status.stage(stage, total, "tokens") for stage, total in totals.items()}
        make_base(out, s, on_step=lambda stage, m: shows[stage](int(m["tokens"]), f"loss {m['loss']:.3f}"))
    print(json_.dumps({"checkpoint": str(out)}) if json else f"checkpoint: {out}")
    return DONE


@app.command
def report(
    run: Annotated[Path, Parameter(help="a run directory")],
    /,
    *,
    out: Annotated[Path | None, Parameter(help="where the page goes; default: RUN/report.html")] = None,
    json: Json = False,
) -> int:
    """write report.html of a run directory"""
    from agentq.report import write_report

    path = write_report(run, out)
    print(json_.dumps({"report": str(path)}) if json else f"report: {path}")
    return DONE


NAMES = "demo, ladder, eval, run, or a recipe: what it reads, with its defaults and the settings given"


@app.command(name="settings")
def show_settings(
    name: Annotated[str | None, Parameter(help=NAMES)] = None,
    /,
    *,
    config: File = None,
    json: Json = False,
    **settings: Settings,
) -> int:
    """list every setting, or those of one command or recipe"""
    from agentq.cli.commands import listing

    rows = listing(name, config, settings)
    if json:
        print(json_.dumps({key: value for key, value, _ in rows}))
    else:
        print("\n".join(f"{f'--{key} {value}':<43} {description}" for key, value, description in rows))
    return DONE


@env.command
def serve(
    name: Annotated[str, Parameter(help="browsergym/TASK, or FILE.py:FUNCTION that makes your own")],
    /,
    *,
    python: Annotated[str, Parameter(help="the Python that has the environment")] = sys.executable,
    at: Annotated[str, Parameter(help="HOST:PORT or the path of a Unix socket")] = "127.0.0.1:7007",
    sessions: Annotated[int, Parameter(help="sessions at once, a process each")] = 4,
    idle: Annotated[float, Parameter(help="seconds after which a silent session ends")] = 3600.0,
    json: Json = False,
) -> int:
    """serve an environment until Ctrl-C; prints what --env takes"""
    import contextlib
    import threading

    from agentq.envs.remote.connection import Connection
    from agentq.envs.remote.env_server import EnvServer
    from agentq.envs.remote.token import VARIABLE

    with EnvServer(name, python, at, sessions, idle) as server:
        first = Connection(server.at)
        served = f"{first.hello.name}@{server.at}"
        first.hang_up()
        file = str(server.token.file) if server.token is not None and server.token.file is not None else None
        more = f"\nfrom another machine or user: {VARIABLE}=$(cat {file})" if file else ""
        print(json_.dumps({"env": served, "token_file": file}) if json else f"--env {served}{more}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()
    return DONE


@env.command
def check(
    name: Annotated[str, Parameter(help="what --env takes, such as FILE.py:FUNCTION of your own")],
    /,
    *,
    tasks: Annotated[int, Parameter(help="training tasks to check it on")] = 5,
    json: Json = False,
) -> int:
    """check what search relies on; exit code 1 if it does not hold"""
    from agentq.envs.check import check
    from agentq.errors import ConfigError

    if tasks < 1:
        raise ConfigError(f"--tasks must be at least 1; got {tasks}")
    found = []
    for finding in check(name, tasks):
        found.append(finding)
        if not json:
            print(finding, flush=True)
    holds = all(finding.holds is not False for finding in found)
    if json:
        checks = [{"promise": each.promise, "holds": each.holds, "said": each.said} for each in found]
        print(json_.dumps({"env": name, "tasks": tasks, "holds": holds, "checks": checks}))
    return DONE if holds else NOT_DONE
