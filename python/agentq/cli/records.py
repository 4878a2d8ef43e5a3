"""Commands on run directories: report, view, export, merge."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from agentq.cli import DONE
from agentq.cli.parser import JSON, argument, command, say
from agentq.errors import ConfigError

DIRECTORY = argument("run", type=Path, metavar="RUN", help="a run directory")
PAGE = argument("--out", type=Path, metavar="FILE", help="where to write the page; default: RUN/report.html")


@command("report", "write the report of a run directory", DIRECTORY, PAGE, JSON)
def report(args: Namespace) -> int:
    from agentq.report import write_report

    path = write_report(args.run, args.out)
    return say(args, {"report": str(path)}, f"report: {path}")


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
        return say(args, {"view": str(path)}, f"view: {path}")
    with ViewServer(args.runs, args.port) as server:
        say(args, {"view": server.url}, f"view: {server.url} (Ctrl-C ends)")
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
    return say(args, {"export": str(args.out), "rows": rows}, f"{rows} rows: {args.out}")


SHARDS = argument("runs", nargs="+", type=Path, metavar="RUN", help="directories of all shards of one run")
MERGED = argument("--out", type=Path, required=True, metavar="DIR", help="the directory of the run to make")


@command("merge", "make one run of its shards (--run.shard)", SHARDS, MERGED, JSON)
def merge(args: Namespace) -> int:
    from agentq.store.merge import merge

    count = merge(args.runs, args.out)
    text = f"{count} trees and episodes: {args.out}; the shards' command without --run.shard continues it"
    return say(args, {"run": str(args.out), "records": count}, text)
