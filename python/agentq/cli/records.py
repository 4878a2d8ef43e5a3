"""Commands on run directories: report, view, compare, export, runs, check, replay, merge."""

from __future__ import annotations

import shlex
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path

from agentq.cli import DONE, NOT_DONE
from agentq.cli.parser import JSON, argument, command, go_on, say
from agentq.errors import ConfigError

DIRECTORY = argument("run", type=Path, metavar="RUN", help="a run directory")
PAGE = argument("--out", type=Path, metavar="FILE", help="where to write the page; default: RUN/report.html")


@command("report", "write the report of a run directory", DIRECTORY, PAGE, JSON)
def report(args: Namespace) -> int:
    from agentq.report import write_report
    from agentq.status import Late, RichStatus

    with RichStatus() as status:
        path = write_report(args.run, args.out, status=Late(status))
    return say(args, {"report": str(path)}, f"report: {path}")


VIEWED = argument("runs", nargs="+", type=Path, metavar="RUN", help="run directories; several are compared")
VIEW = argument("--out", type=Path, metavar="FILE", help="where to write the page; default: RUN/view.html")
LIVE_VIEW = argument("--live", action="store_true", help="serve the page on 127.0.0.1 until Ctrl-C instead")
PORT = argument("--port", type=int, metavar="N", help="port of --live; default: any that is free")


@command("view", "write a page that shows every tree and episode of a run", VIEWED, VIEW, LIVE_VIEW, PORT, JSON)
def view(args: Namespace) -> int:
    if args.live and args.out is not None:
        raise ConfigError("--live writes no file; leave out --out")
    if not args.live and args.port is not None:
        raise ConfigError(f"--port is for --live; got {args.port} without it")
    from agentq.progress import until_interrupted
    from agentq.status import Late, RichStatus
    from agentq.viewer import ViewServer, write_view

    if not args.live:
        with RichStatus() as status:
            path = write_view(args.runs, args.out, status=Late(status))
        return say(args, {"view": str(path)}, f"view: {path}")
    with ViewServer(args.runs, args.port or 0) as server, until_interrupted():
        say(args, {"view": server.url}, f"view: {server.url} (Ctrl-C ends)")
    return DONE


COMPARED = argument(
    "runs", nargs="+", metavar="RUN[:RUNG]", help="two runs, or one: its first and last rung; default of RUNG: the last"
)


WITH = argument(
    "--with", nargs="+", dest="others", default=[], metavar="RUN[:RUNG]",
    help="runs of a second method, one per RUN and training seed, in the same order",
)  # fmt: skip


@command("compare", "compare two models task by task: the difference, and what one leaves out", COMPARED, WITH, JSON)
def compare(args: Namespace) -> int:
    from agentq.report.compare import compare_runs

    first, second, found = compare_runs(args.runs, args.others)
    names = {"first": [each.name for each in first], "second": [each.name for each in second]}
    lines = [*(f"first   {each}" for each in first), *(f"second  {each}" for each in second)]
    return say(args, names | asdict(found), "\n".join([*lines, "", str(found)]))


FORMATS = ("trl-preference", "trl-prompt-completion", "sharegpt", "hf-traces", "parquet")
FORMAT = argument("--format", required=True, metavar="FORMAT", choices=FORMATS, help=" | ".join(FORMATS))
STAGE = argument(
    "--stage",
    metavar="STAGE",
    help="the only stage to read; default: those of training, or all for hf-traces and parquet",
)
FILE = argument("--out", type=Path, required=True, metavar="FILE", help="file to write; for hf-traces a new directory")


PUSH = argument("--push", metavar="USER/NAME", help="upload it to this dataset on the Hugging Face hub, too")


@command("export", "write what a run holds for other libraries", DIRECTORY, FORMAT, FILE, STAGE, PUSH, JSON)
def export_run(args: Namespace) -> int:
    from agentq.export import client_of_hub, export, push
    from agentq.status import Late, RichStatus

    if args.push:
        client_of_hub()
    with RichStatus() as status:
        rows = export(args.run, args.format, args.out, args.stage, status=Late(status))
    result, text = {"export": str(args.out), "rows": rows}, f"{rows} rows: {args.out}"
    if args.push:
        result["pushed"] = address = push(args.out, args.push)
        text += f", {address}"
    return say(args, result, text)


FOLDER = argument("folder", nargs="?", type=Path, default=Path("runs"), metavar="FOLDER", help="default: runs")


@command("runs", "list the runs of a folder: state, command, rounds, success, origin", FOLDER, JSON)
def runs(args: Namespace) -> int:
    from agentq.progress import columns, show_table
    from agentq.report.runs import list_runs

    rows = list(list_runs(args.folder))
    if args.json:
        return say(args, {"runs": [asdict(row) for row in rows]}, "")
    if not rows:
        return say(args, {}, f"no runs in {args.folder}")
    show_table(columns([row.texts() for row in rows]))
    return DONE


SAVED = argument("--out", type=Path, metavar="DIR", help="make a new run of intact items")


@command("check", "read everything in a run; exit code 1 if something is damaged", DIRECTORY, SAVED, JSON)
def check(args: Namespace) -> int:
    from agentq.store.check import check_out, check_run, save

    if args.out is not None:
        check_out(args.out)
    found = []
    for finding in check_run(args.run):
        found.append(finding)
        if not args.json:
            print(f"{'ok' if finding.whole else 'damaged':<8}{finding.part:<32}{finding.said}", flush=True)
    whole = all(finding.whole for finding in found)
    result = {"run": str(args.run), "whole": whole, "checks": [finding._asdict() for finding in found]}
    text = "" if whole else f"agentq check {shlex.quote(str(args.run))} --out NEW makes a run of what is whole"
    if args.out is not None:
        kept, lost = save(args.run, args.out)
        result |= {"saved": str(args.out), "kept": kept, "lost": lost}
        text = f"{kept} trees and episodes saved, {lost} lost; {go_on(args.out)} makes what is missing"
    if text or args.json:
        say(args, result, text)
    return DONE if whole else NOT_DONE


STAGE_OF = argument("--stage", metavar="STAGE", help="default: the first stage with trees, else with episodes")
TASK_OF = argument("--task", metavar="TASK", help="seed of a tree's task, or key of an episode; default: the first")
NODE_OF = argument("--node", type=int, metavar="ID", help="node or step to go to; default: the best end")


@command(
    "replay",
    "do a recorded path again in its environment, without a model; exit code 1 if a page differs",
    DIRECTORY,
    STAGE_OF,
    TASK_OF,
    NODE_OF,
    JSON,
)
def replay_path(args: Namespace) -> int:
    from agentq.envs.site import printable
    from agentq.report.replay import replay, route

    way, steps = route(args.run, args.stage, args.task, args.node), []
    if not args.json:
        print(f"{way.env}, task {way.task.seed}: {printable(way.task.instruction)}")
    for step in replay(way):
        steps.append({"step": step.step, "action": step.action, "same": step.same, "reward": step.reward})
        if not args.json:
            end = "  success" if step.success else f"  {step.error_kind}" if step.error_kind else ""
            said = {True: "the recorded page", False: "another page", None: "no page recorded"}[step.same]
            print(f"{step.step:>3}  {printable(step.action):<40}  {said}{end}", flush=True)
    same = all(step["same"] is not False for step in steps)
    if args.json:
        say(args, {"env": way.env, "task": way.task.seed, "same": same, "steps": steps}, "")
    return DONE if same else NOT_DONE


SHARDS = argument("runs", nargs="+", type=Path, metavar="RUN", help="directories of all shards of one run")
MERGED = argument("--out", type=Path, required=True, metavar="DIR", help="the directory of the run to make")


@command("merge", "make one run of its shards (--run.shard)", SHARDS, MERGED, JSON)
def merge(args: Namespace) -> int:
    from agentq.store.merge import merge

    count = merge(args.runs, args.out)
    text = f"{count} trees and episodes: {args.out}; the shards' command without --run.shard continues it"
    return say(args, {"run": str(args.out), "records": count}, text)
