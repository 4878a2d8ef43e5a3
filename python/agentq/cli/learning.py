"""Commands that run models: eval, train, ladder, demo, run, base. Each imports what it needs when it runs."""

from __future__ import annotations

import os
import sys
from argparse import SUPPRESS, Namespace
from collections.abc import Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from agentq.cli.parser import COMMANDS, CONFIG, JSON, MODEL, argument, command, go_on, say, setting_line
from agentq.errors import ConfigError
from agentq.live.options import LiveOptions

RUN = (  # of every command with a run directory
    CONFIG,
    argument("--env", dest="run.env", default=SUPPRESS, metavar="NAME", help="short for --run.env"),
    argument("--seed", dest="run.seed", default=SUPPRESS, metavar="N", help="short for --run.seed"),
    argument("--out", dest="run.out", default=SUPPRESS, metavar="DIR", help="short for --run.out"),
    argument("--clean", action="store_true", help="delete an earlier run of this command in the directory"),
    argument("--dry-run", action="store_true", help="show the settings and the directory, and do nothing"),
    JSON,
)
BASE = argument("--base", metavar="MODEL", help="checkpoint to start from; default: the embedded base")
CRITIC = argument(
    "--base",
    metavar="MODEL",
    help="critic and judge of --search; default: the base that the checkpoint was trained from, else the model itself",
)
RECIPE = argument("recipe", metavar="RECIPE", help="name of a recipe, or a Python file that defines RECIPE")
CHECKPOINT = argument("checkpoint", metavar="CHECKPOINT", help=MODEL)
SEARCHED = "search once per task (tree, the default) or before each step; --base ranks and judges"
SEARCH = argument("--search", metavar="tree|step", choices=("tree", "step"), help=SEARCHED)


@command("eval", "measure a checkpoint on held-out tasks; resumable", CHECKPOINT, SEARCH, CRITIC, *RUN, settings=True)
@command("train", "train by a recipe and measure the result; resumable", RECIPE, BASE, *RUN, settings=True)
@command(
    "ladder", "train and measure every rung of the paper's ladder; takes hours, resumable", BASE, *RUN, settings=True
)
@command("demo", "run the whole loop on a built-in site, and write a table and a report", BASE, *RUN, settings=True)
def measured(args: Namespace) -> int:
    from agentq.recipes import run
    from agentq.recipes.find import listing

    made = getattr(args, "made", {})  # by `resume`
    inputs = run.Inputs(args.settings, args.config, args.base, args.clean, dry=args.dry_run, made=made)
    if args.command == "train":
        result = run.train(args.recipe, inputs)
    elif args.command == "eval":
        result = run.evaluate(args.checkpoint, args.search, inputs)
    else:
        result = run.ladder(args.command, inputs)
    if args.dry_run:
        name = args.recipe if args.command == "train" else args.command
        name += f" --search{' step' * (args.search == 'step')}" if args.command == "eval" and args.search else ""
        used = listing(name, args.config, args.settings)
        text = "\n".join([*map(setting_line, used), f"run directory: {result.report}"])
        return say(args, {"settings": {s.key: s.default for s in used}, "out": str(result.report)}, text)
    if not args.json:
        from agentq.progress import ladder_table, show_table

        show_table(ladder_table(result.rows))
    rows = [row.to_dict() for row in result.rows]
    return say(args, {"rungs": rows, "report": str(result.report)}, f"report: {result.report}")


RUN_TO = argument("run", type=Path, metavar="RUN", help="the directory of a demo, ladder, train or eval")


@command(
    "resume", "go on with a run; higher --run.num_rounds or --eval.num_tasks extend it", RUN_TO, JSON, settings=True
)
def resume(args: Namespace) -> int:
    from agentq.recipes.again import command_of, stored_in
    from agentq.store.files import read_object

    words, folder = command_of(args.run)
    made = stored_in(read_object(args.run / "config.json"), args.settings)
    given = [f"--{section}.{name}={value}" for section, table in args.settings.items() for name, value in table.items()]
    words += [*given, f"--run.out={args.run.resolve()}", *(["--json"] if args.json else [])]
    if folder.is_dir():
        os.chdir(folder)  # paths in the words are relative to it
    own = COMMANDS[words[0]]
    again = own.parse(words[1:])
    again.made = made
    if again.config is not None and not again.config.exists():
        print(f"agentq: {again.config} is gone; settings that do not affect results have defaults", file=sys.stderr)
        again.config = None
    return own.run(again)


FORKED = (
    argument("--out", type=Path, required=True, metavar="DIR", help="the new directory"),
    argument(
        "--learn-again",
        action="store_true",
        help="keep what the first round collected, and learn from it again with other settings of learning",
    ),
)


@command(
    "fork",
    "copy a run, to continue the copy with other settings in later rounds",
    RUN_TO,
    *FORKED,
    JSON,
    settings=True,
)
def fork_run(args: Namespace) -> int:
    from agentq.recipes.again import GROWS, fork
    from agentq.store.claim import COMMAND
    from agentq.store.run import RunStore

    fork(args.run, args.out, args.settings, learn_again=args.learn_again)
    with RunStore.read(args.run) as run, RunStore.read(args.out) as new:
        done = (run.note(COMMAND) or {}).get("finished") and not args.learn_again
        rounds = new.config["run"].get("num_rounds", 0)
        grown = any(run.config[of].get(key) != new.config[of].get(key) for of, key in (s.split(".") for s in GROWS))
    more = f" --run.num_rounds {rounds + 1}" if done and rounds and not grown else ""  # nothing is left to do
    return say(args, {"run": str(args.out)}, f"{args.out}; go on with: {go_on(args.out)}{more}")


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


WHICH = argument(
    "name",
    nargs="?",
    choices=("small", "reading"),
    default="small",
    help="small: the embedded base; reading: one that reads words it has never seen (resumable); default: %(default)s",
)


TOKENS = argument(
    "--tokens", type=int, metavar="N", help="tokens to train reading for, the last 60 %% at a falling rate"
)


WIDTH = argument(
    "--width", type=int, metavar="N", help="hidden size of reading, a multiple of 32 (default: 160, 2.5 M parameters)"
)


BATCH = argument(
    "--batch",
    type=int,
    metavar="N",
    help="tokens of reading's batches (default: 6144); its exercises change later in proportion",
)


EARLIER = argument(
    "--base", type=Path, metavar="DIR", help="an earlier reading base to train on; its tokens count, too"
)


@command("base", "make a base model again, from its seed", WHICH, NEW, TOKENS, WIDTH, BATCH, EARLIER, DEVICE, JSON)
def base(args: Namespace) -> int:
    from agentq.recipes.find import require_train

    out = args.out
    held = sorted(entry.name for entry in out.iterdir()) if out.is_dir() else []
    kept = "pretrained" if args.name == "small" else "tokenizer"
    if (out.exists() and not out.is_dir()) or (held and not (out / kept).is_dir()):
        what = f"which holds {held[0]}" if held else "a file"
        raise ConfigError(f"--out must be a new directory, or one that agentq base made; got {out}, {what}")
    words = {"tokens": ("--tokens", 1), "hidden_size": ("--width", 32), "batch_tokens": ("--batch", 1)}
    given = {field: getattr(args, word[2:]) for field, (word, _) in words.items()}
    given = {field: value for field, value in given.items() if value is not None}
    for field, value in given.items():
        word, least = words[field]
        if args.name == "small" or value < least or value % least:
            must = "at least 1" if least == 1 else f"a multiple of {least}"
            raise ConfigError(f"{word} must be {must}, and is for reading; got {value} for {args.name}")
    if args.base is not None and args.width is not None:
        raise ConfigError(f"--width must be left out with --base, whose width stays; got {args.width}")
    if args.base is not None and args.name == "small":
        raise ConfigError(f"--base is for reading; got {args.base} for small: leave it out")
    require_train("base")
    from agentq.base.make import BaseSettings, make_base
    from agentq.base.reading.make import ReadingSettings, make_reading
    from agentq.policies.placement import one_device
    from agentq.status import RichStatus, Show

    device = one_device(args.device, "--device", instead="the base is small")
    s, reading = BaseSettings(), ReadingSettings(**given)
    stages = {"pretrain": s.pretrain_tokens, "demonstrate": s.demonstration_tokens}
    totals = stages if args.name == "small" else {"reading": reading.tokens}
    with RichStatus() as status:
        shows: dict[str, Show] = {}
        first = os.environ.get("RANK", "0") == "0"

        def show(stage: str, m: Mapping[str, Any]) -> None:
            if not first:
                return
            if stage not in shows:  # loading is over: the pace counts from here, and from what there was before
                shows[stage] = status.stage(stage, totals[stage], "tokens")
                shows[stage](int(m["tokens"] * (1 - 1 / max(1, m["step"]))), "")
            shows[stage](int(m["tokens"]), f"loss {m['loss']:.3f}")

        if first:  # what a terminal shows until the model and its exercises are there
            status.begin(f"agentq base {args.name}: {out}")
        if args.name == "small":
            make_base(out, s, device=device, on_step=show)
        else:
            make_reading(out, reading, start=args.base, device=device, on_step=partial(show, "reading"))
    return say(args, {"checkpoint": str(out)}, f"checkpoint: {out}")
